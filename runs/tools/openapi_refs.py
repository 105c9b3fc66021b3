"""Local references of a document: JSON pointers, chains and loops. References to other places are refused."""

from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from runs.tools.base import JSON
from runs.tools.bounds import MAX_REF_CHAIN
from runs.tools.errors import DocumentError


@dataclass(frozen=True, slots=True)
class Document:
    """A parsed document and its version, such as (3, 1)."""

    root: dict[str, JSON]
    version: tuple[int, int]

    @property
    def modern(self) -> bool:
        """From 3.1 on, schemas are JSON Schema 2020-12 themselves."""
        return self.version >= (3, 1)

    def at(self, ref: str) -> JSON:
        """What a `$ref` points to. Raises DocumentError for places outside the document and missing ones."""
        if not ref.startswith("#"):
            raise DocumentError("spec_unsupported", f"reference to another document: {ref[:200]}", ref[:200])
        node: JSON = self.root
        for part in pointer_parts(ref):
            if isinstance(node, dict) and part in node:
                node = node[part]
            elif isinstance(node, list) and part.isascii() and part.isdigit() and int(part[:9]) < len(node):
                node = node[int(part[:9])]
            else:
                raise DocumentError("spec_invalid", f"reference to a missing place: {ref[:200]}", ref[:200])
        return node

    def follow(self, node: JSON, where: str) -> tuple[dict[str, Any], str]:
        """The object behind a chain of `$ref`s, and its place. Raises DocumentError for loops and non-objects."""
        seen: set[str] = set()
        while isinstance(node, dict) and isinstance(node.get("$ref"), str):
            ref = node["$ref"]
            if ref in seen or len(seen) >= MAX_REF_CHAIN:
                raise DocumentError("spec_invalid", f"references that lead in a circle: {ref[:200]}", where)
            seen.add(ref)
            node, where = self.at(ref), ref
        if not isinstance(node, dict):
            raise DocumentError("spec_invalid", "an object was expected", where)
        return node, where


def pointer_parts(ref: str) -> list[str]:
    """The steps of `#/a/b~1c`. Raises DocumentError for anchors (`#name`): nothing defines them."""
    text = unquote(ref[1:])
    if not text:
        return []
    if not text.startswith("/"):
        raise DocumentError("spec_unsupported", f"reference to an anchor: {ref[:200]}", ref[:200])
    return [part.replace("~1", "/").replace("~0", "~") for part in text[1:].split("/")]


def pointer(*parts: str) -> str:
    """The pointer of a place, for messages and names."""
    return "#" + "".join("/" + part.replace("~", "~0").replace("/", "~1") for part in parts)
