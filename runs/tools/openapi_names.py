"""Names of tools and arguments: Python identifiers that depend on the operation, never on the document's order.

Where two operations would get one name, *both* get a longer one: a name that was granted to one operation
does not come to mean another because a sibling appears. (A document can still give an operation the name another
one had: whoever keeps grants compares method and path as well.)
"""

import builtins
import hashlib
import keyword
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache

from runs.tools.bounds import MAX_NAME_CHARS

_BOUNDARY = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_OTHER = re.compile(r"[^a-z0-9]+")
_PARAMETER = re.compile(r"\{([^{}]*)\}")
_KEYWORDS = frozenset(keyword.kwlist)
_TOOL_RESERVED = _KEYWORDS | frozenset(name.lower() for name in dir(builtins))
"""`from shop import list` would take the builtin away; as an argument, `id` harms nobody."""
PLACES = ("path", "query", "header", "cookie", "body")
"""Where an argument goes, in the order in which places keep the plain name."""


@lru_cache(maxsize=4096)
def snake(text: str) -> str:
    """`users.list-all`, `createHTTPCharge` → `users_list_all`, `create_http_charge`; may be empty."""
    folded = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()
    return _OTHER.sub("_", _BOUNDARY.sub("_", folded).lower()).strip("_")


def path_name(method: str, path: str) -> str:
    """`GET /items/{id}` → `get_items_by_id`."""
    readable = _PARAMETER.sub(r"by_\1", path)
    return snake(f"{method}_{readable}")


def tool_names(operations: Sequence[tuple[str, str, str | None]]) -> list[str]:
    """The names of operations given as (method, path, operationId), all different; same set, same names."""
    bases = [_identifier(_base(*operation), "op", _TOOL_RESERVED) for operation in operations]
    counts = Counter(bases)
    longer = [
        base if counts[base] == 1 else _identifier(_joined(base, path_name(method, path)), "op", _TOOL_RESERVED)
        for base, (method, path, _) in zip(bases, operations, strict=True)
    ]
    taken = {base for base in bases if counts[base] == 1}
    contested = Counter(name for name, base in zip(longer, bases, strict=True) if counts[base] > 1)
    names = []
    for name, base, (method, path, _) in zip(longer, bases, operations, strict=True):
        if counts[base] == 1 or (contested[name] == 1 and name not in taken and name not in counts):
            names.append(name)
        else:
            names.append(_digested(base, f"{method.upper()} {path}"))
    return names


def argument_names(keys: Iterable[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """Argument names of (place, name), pairwise different; the same set gives the same names in any order.

    `id` in the path and in the query become `id` and `id_query`.
    """
    names: dict[tuple[str, str], str] = {}
    taken: set[str] = set()
    ordered = sorted(set(keys), key=lambda key: (PLACES.index(key[0]), _plain(key[1]) != key[1], key[1]))
    # Plain names first, whoever can have one; a made-up name must not push out one that a document gives.
    for place, name in ordered:
        plain = _plain(name)
        if plain not in taken:
            names[place, name] = plain
            taken.add(plain)
    for place, name in ordered:
        if (place, name) not in names:
            placed = _cut(f"{_plain(name)}_{place}")
            chosen = placed if placed not in taken else _digested(_plain(name), f"{place} {name}")
            names[place, name] = chosen
            taken.add(chosen)
    return names


@lru_cache(maxsize=4096)
def _plain(name: str) -> str:
    return _identifier(snake(name), "arg", _KEYWORDS)


def _base(method: str, path: str, operation_id: str | None) -> str:
    return snake(operation_id or "") or path_name(method, path)


def _joined(base: str, path: str) -> str:
    """Without saying a thing twice: `list` and `get_users` → `list_get_users`; equal ones stay one."""
    return base if base == path else f"{base.rstrip('_')}_{path}"


def _identifier(name: str, prefix: str, reserved: frozenset[str]) -> str:
    if not name or name[0].isdigit():
        name = f"{prefix}_{name}".rstrip("_")
    name = _cut(name)
    return f"{name}_" if name in reserved else name


def _cut(name: str) -> str:
    """At most MAX_NAME_CHARS; what is cut lives on in a digest, so that different names stay different."""
    return name if len(name) <= MAX_NAME_CHARS else _digested(name, name)


def _digested(name: str, of: str) -> str:
    digest = hashlib.sha256(of.encode()).hexdigest()[:8]
    return f"{name[: MAX_NAME_CHARS - 9].rstrip('_')}_{digest}"
