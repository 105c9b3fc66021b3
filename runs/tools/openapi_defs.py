"""Definitions: their names, the circles they must not form, and which of them a tool takes along."""

import hashlib
import re
from collections.abc import Iterable, Mapping
from typing import Any

from runs.tools.base import JSON
from runs.tools.errors import DocumentError
from runs.tools.openapi_refs import pointer_parts

_PLAIN = re.compile(r"[A-Za-z0-9._-]+")
_COMPONENT = ["components", "schemas"]
LEFT_OUT = "Left out here: the whole schema is too large. Any value is taken; the upstream checks it."

Links = list[tuple[str, dict[str, JSON]]]


def definition_name(ref: str) -> str:
    """The name under which `$defs` holds what is referred to: a component's own name where it has one."""
    parts = pointer_parts(ref) if ref.startswith("#") else [ref]
    last = parts[-1] if parts else "document"
    if len(parts) == 3 and parts[:2] == _COMPONENT and _PLAIN.fullmatch(last):
        return last
    slug = re.sub(r"[^A-Za-z0-9]+", "_", last).strip("_")[:40] or "schema"
    return f"{slug}__{hashlib.sha256('/'.join(parts).encode()).hexdigest()[:8]}"


def local_ref(name: str) -> str:
    return f"#/$defs/{name}"


def cut_circles(links: Mapping[str, Links]) -> None:
    """Makes every reference accept anything by which a value would be checked against the same schema again.

    `Pet: oneOf [Cat]` with `Cat: allOf [Pet]` is common with discriminators; a validator would not come back.
    Both directions are cut, so that the result does not depend on where one begins.
    """
    component = _components({name: [target for target, _ in targets] for name, targets in links.items()})
    for name, targets in links.items():
        for target, link in targets:
            if component.get(target) == component[name]:
                link.pop("$ref", None)


def _components(graph: Mapping[str, list[str]]) -> dict[str, int]:
    """The strongly connected component of each name, by number: names that lead to each other share one.

    Tarjan's algorithm without recursion: documents have chains of thousands of definitions.
    """
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    on_stack: set[str] = set()
    component: dict[str, int] = {}
    for root in graph:
        if root in index:
            continue
        work = [(root, iter(graph[root]))]
        index[root] = low[root] = len(index)
        stack.append(root)
        on_stack.add(root)
        while work:
            name, targets = work[-1]
            for target in targets:
                if target not in graph:
                    continue
                if target not in index:
                    index[target] = low[target] = len(index)
                    stack.append(target)
                    on_stack.add(target)
                    work.append((target, iter(graph[target])))
                    break
                if target in on_stack:
                    low[name] = min(low[name], index[target])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[name])
                if low[name] == index[name]:
                    while True:
                        member = stack.pop()
                        on_stack.discard(member)
                        component[member] = index[name]
                        if member == name:
                            break
    return component


def gather(refs: Iterable[str], definitions: Mapping[str, Any], budget: int) -> tuple[dict[str, JSON], bool]:
    """The definitions reachable from `refs`, nearest first up to `budget` values; the rest accept anything.

    Also whether one of them is marked as secret. Raises the DocumentError of a definition that has one.
    """
    found: dict[str, JSON] = {}
    sensitive = False
    level = sorted(set(refs))
    while level:
        following: set[str] = set()
        for name in level:
            fragment = definitions[name]
            if fragment.error is not None:
                error: DocumentError = fragment.error
                raise error
            if fragment.size > budget:
                found[name] = {"description": LEFT_OUT}
                continue
            budget -= fragment.size
            found[name] = fragment.body
            sensitive = sensitive or fragment.sensitive
            following |= fragment.refs
        level = sorted(following - found.keys())
    return dict(sorted(found.items())), sensitive
