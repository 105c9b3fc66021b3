"""The keywords of a schema, by what they hold, and how OpenAPI 3.0's own ones read in JSON Schema 2020-12.

A keyword that is in none of these tables, or whose value is not of its kind, is left out.
"""

from collections.abc import Callable
from typing import Any, Final

from runs.tools.base import JSON
from runs.tools.bounds import MAX_SCHEMA_TEXT_CHARS

_TYPES = frozenset(["null", "boolean", "object", "array", "number", "string", "integer"])
_VALUE_DEPTH = 16
"""Nesting of an example, default or enum value: such values illustrate."""

Kept = tuple[JSON, int]
"""What is kept of a keyword's value, and how many values that is; 0 means the keyword is left out."""


def plain_value(value: JSON, depth: int = 1) -> Kept:
    """A value as it is, with its size; nothing of one nested too deep. Long texts are cut."""
    if isinstance(value, str):
        return value[: 4 * MAX_SCHEMA_TEXT_CHARS], 1
    if not isinstance(value, (dict, list)):
        return value, 1
    if depth > _VALUE_DEPTH:
        return None, 0
    total = 1
    for item in value.values() if isinstance(value, dict) else value:
        size = plain_value(item, depth + 1)[1]
        if not size:
            return None, 0
        total += size
    return value, total


def _text(value: JSON) -> Kept:
    return (value[:MAX_SCHEMA_TEXT_CHARS], 1) if isinstance(value, str) and value else (None, 0)


def _pattern(value: JSON) -> Kept:
    # A cut pattern would say something else; one that long is nobody's.
    return (value, 1) if isinstance(value, str) and len(value) <= 4 * MAX_SCHEMA_TEXT_CHARS else (None, 0)


def _number(value: JSON) -> Kept:
    return (value, 1) if isinstance(value, (int, float)) and not isinstance(value, bool) else (None, 0)


def _positive(value: JSON) -> Kept:
    return (value, 1) if _number(value)[1] and value > 0 else (None, 0)


def _count(value: JSON) -> Kept:
    return (value, 1) if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else (None, 0)


def _flag(value: JSON) -> Kept:
    return (value, 1) if isinstance(value, bool) else (None, 0)


def _names(value: JSON) -> Kept:
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        return None, 0
    names = list(dict.fromkeys(value))
    return names, len(names)


def _options(value: JSON) -> Kept:
    return plain_value(value) if isinstance(value, list) and value else (None, 0)


def _name_lists(value: JSON) -> Kept:
    if isinstance(value, dict) and all(_names(names)[1] for names in value.values()):
        return plain_value(value)
    return None, 0


PLAIN_KEYWORDS: Final[dict[str, Callable[[JSON], Kept]]] = {
    **dict.fromkeys(("title", "description", "format", "contentEncoding", "contentMediaType"), _text),
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), _number),
    **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"), _count),
    **dict.fromkeys(("minContains", "maxContains"), _count),
    **dict.fromkeys(("uniqueItems", "deprecated", "readOnly", "writeOnly"), _flag),
    "multipleOf": _positive,
    "pattern": _pattern,
    "required": _names,
    "dependentRequired": _name_lists,
    "enum": _options,
    "examples": _options,
    "default": plain_value,
    "const": plain_value,
}
_EXCLUSIVE: Final = (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum"))
SCHEMA_KEYWORDS = frozenset(
    ("items", "additionalProperties", "not", "contains", "propertyNames", "if", "then", "else")
) | {"unevaluatedItems", "unevaluatedProperties"}
SCHEMA_LIST_KEYWORDS = frozenset(["allOf", "anyOf", "oneOf", "prefixItems"])
SCHEMA_MAP_KEYWORDS = frozenset(["patternProperties", "dependentSchemas"])
SAME_INSTANCE = frozenset(["allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas"])
"""Keywords whose schemas apply to the value itself, not to a part of it."""


def clean_types(schema: dict[str, Any], out: dict[str, JSON]) -> None:
    """Sets `type` and, for 3.0, what `nullable` and boolean exclusive bounds say; changes `out`."""
    declared = schema.get("type")
    if isinstance(declared, str):
        if declared in _TYPES:
            out["type"] = declared
    elif isinstance(declared, list):
        types = [name for name in declared if isinstance(name, str) and name in _TYPES]
        if types:
            out["type"] = types[0] if len(types) == 1 else list(dict.fromkeys(types))
    for bound, exclusive in _EXCLUSIVE:
        if exclusive in schema and schema[exclusive] is True and bound in out:
            out[exclusive] = out.pop(bound)
    # Also in documents that call themselves 3.1: it has no other meaning there, and generators mix them up.
    if schema.get("nullable") is True:
        _allow_null(out)


def _allow_null(out: dict[str, JSON]) -> None:
    if "enum" in out and None not in out["enum"]:
        out["enum"] = [*out["enum"], None]
    if "const" in out:
        out["enum"] = [out.pop("const"), None]
    if "type" in out:
        types = [out["type"]] if isinstance(out["type"], str) else out["type"]
        out["type"] = list(dict.fromkeys([*types, "null"]))
    for key in ("allOf", "anyOf", "oneOf"):
        if key in out:
            _allow_null_beside(out, key)


def _allow_null_beside(out: dict[str, JSON], key: str) -> None:
    """`allOf: [X], nullable` means X or null, which no other keyword of the same object can say."""
    inner = {key: out.pop(key)}
    out["allOf"] = [*out.get("allOf", []), {"anyOf": [inner, {"type": "null"}]}]
