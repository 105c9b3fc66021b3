"""How values are written into paths, queries, headers and cookies (OpenAPI's styles, RFC 6570). Pure."""

import json
from urllib.parse import quote

from runs.tools.base import JSON

_RESERVED = ":/?[]@!$'()*,;"
"""Kept as they are under `allowReserved`; `#`, `&`, `=` and `+` never, since they would end or split the value."""
_DELIMITERS = {"form": ",", "spaceDelimited": "%20", "pipeDelimited": "%7C"}


def text_of(value: JSON) -> str:
    """One value as text: JSON's spelling for numbers and booleans, compact JSON for what is nested."""
    if isinstance(value, str):
        return value
    return "" if value is None else json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def encode(text: str, *, reserved: bool = False) -> str:
    """Percent-encoded, so that no `/`, `?`, `&` or `#` of a value means anything."""
    return quote(text, safe=_RESERVED if reserved else "", encoding="utf-8", errors="strict")


def path_text(name: str, value: JSON, style: str, explode: bool) -> str:
    """The encoded text for a `{name}` in a path."""
    if style == "matrix":
        return _matrix(encode(name), value, explode)
    start = "." if style == "label" else ""
    between = "." if style == "label" and explode else ","
    return start + _joined(value, explode, between)


def _joined(value: JSON, explode: bool, between: str) -> str:
    if isinstance(value, list):
        return between.join(encode(text_of(item)) for item in value)
    if isinstance(value, dict):
        equals = "=" if explode else ","
        pairs = (f"{encode(key)}{equals}{encode(text_of(item))}" for key, item in value.items())
        return (between if explode else ",").join(pairs)
    return encode(text_of(value))


def _matrix(name: str, value: JSON, explode: bool) -> str:
    if explode and isinstance(value, list):
        return "".join(f";{name}={encode(text_of(item))}" for item in value)
    if explode and isinstance(value, dict):
        return "".join(f";{encode(key)}={encode(text_of(item))}" for key, item in value.items())
    text = _joined(value, False, ",")
    return f";{name}={text}" if text else f";{name}"


def query_pairs(name: str, value: JSON, style: str, explode: bool, reserved: bool) -> list[tuple[str, str]]:
    """The encoded `name=value` pairs of a query parameter; none for null."""

    def text(item: JSON) -> str:
        return encode(text_of(item), reserved=reserved)

    if value is None:
        return []
    if style == "deepObject" and isinstance(value, dict):
        return [(encode(path), text(item)) for path, item in _deep(name, value)]
    if isinstance(value, list):
        if explode:
            return [(encode(name), text(item)) for item in value]
        return [(encode(name), _DELIMITERS.get(style, ",").join(text(item) for item in value))]
    if isinstance(value, dict):
        if explode:
            return [(encode(key), text(item)) for key, item in value.items()]
        parts = [part for key, item in value.items() for part in (encode(key), text(item))]
        return [(encode(name), _DELIMITERS.get(style, ",").join(parts))]
    return [(encode(name), text(value))]


def _deep(prefix: str, value: JSON) -> list[tuple[str, JSON]]:
    """`filter[a][b]=1`; lists repeat their key. Depth is bounded by that of arguments."""
    if isinstance(value, dict):
        return [pair for key, item in value.items() for pair in _deep(f"{prefix}[{key}]", item)]
    if isinstance(value, list):
        return [pair for item in value for pair in _deep(prefix, item)]
    return [] if value is None else [(prefix, value)]


def plain_text(value: JSON, explode: bool) -> str:
    """For a header (style `simple`): not percent-encoded."""
    if isinstance(value, list):
        return ",".join(text_of(item) for item in value)
    if isinstance(value, dict):
        equals = "=" if explode else ","
        return ",".join(f"{key}{equals}{text_of(item)}" for key, item in value.items())
    return text_of(value)
