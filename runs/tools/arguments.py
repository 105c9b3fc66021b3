"""The arguments of a call against the tool's schema: checked before a person is asked or anything is sent."""

import difflib
import json
from collections.abc import Sequence
from itertools import islice
from typing import Any

from jsonschema.exceptions import best_match
from referencing.exceptions import Unresolvable

from runs.tools.base import JSON, ToolSpec
from runs.tools.bounds import MAX_ARGUMENTS_BYTES, MAX_SCHEMA_ERRORS, MAX_SHOWN_CHARS, MAX_VALUE_DEPTH
from runs.tools.validators import validator_for
from runs.tools.values import NotJSON, to_json


class ArgumentsInvalid(ValueError):
    """The call does not fit the tool's schema; nothing was asked of anybody and nothing sent.

    `path` names the value (`amount`, `items[0].size`); `near` holds known names like an unknown one.
    """

    def __init__(self, message: str, path: str = "", near: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.path = path
        self.near = near


def validate_arguments(spec: ToolSpec, args: Sequence[object], kwargs: dict[str, object]) -> dict[str, JSON]:
    """The call's arguments by name, as JSON values that fit `spec.input_schema`. Raises ArgumentsInvalid.

    Positional arguments fill the required properties first, then the others, each in the order declared.
    Values are normalised as `to_json` says. Values of sensitive arguments never appear in a message.
    """
    properties: dict[str, Any] = spec.input_schema.get("properties") or {}
    required: list[str] = spec.input_schema.get("required") or []
    named = _name_positional(spec, args, kwargs, properties, required)
    if spec.input_schema.get("additionalProperties") is False:
        _refuse_unknown(spec, named, properties)
    missing = [name for name in required if name not in named]
    if missing:
        wanted = ", ".join(f"{name!r} ({_expected(properties.get(name))})" for name in missing)
        raise ArgumentsInvalid(f"{spec.address}: missing required argument {wanted}", missing[0])
    try:
        arguments = to_json(named, max_bytes=MAX_ARGUMENTS_BYTES, max_depth=MAX_VALUE_DEPTH)
    except NotJSON as exc:
        path = exc.path.removeprefix("$.").removeprefix("$")
        raise ArgumentsInvalid(f"{spec.address}: argument {path or 'list'!r}: {exc.why}", path) from None
    _check(spec, arguments)
    return dict(arguments)


def _name_positional(
    spec: ToolSpec,
    args: Sequence[object],
    kwargs: dict[str, object],
    properties: dict[str, Any],
    required: list[str],
) -> dict[str, object]:
    order = [name for name in required if name in properties]
    order += [name for name in properties if name not in order]
    if len(args) > len(order):
        raise ArgumentsInvalid(
            f"{spec.address} takes at most {len(order)} arguments ({', '.join(order) or 'none'}), got {len(args)}"
        )
    named: dict[str, object] = dict(zip(order, args, strict=False))
    for name in kwargs:
        if name in named:
            raise ArgumentsInvalid(f"{spec.address}: argument {name!r} given by position and by name", name)
    return named | kwargs


def _refuse_unknown(spec: ToolSpec, named: dict[str, object], properties: dict[str, Any]) -> None:
    for name in named:
        if name not in properties:
            near = tuple(difflib.get_close_matches(name[:MAX_SHOWN_CHARS], properties, n=3, cutoff=0.5))
            known = f"it takes: {', '.join(properties) or 'none'}"
            hint = f"did you mean {' or '.join(map(repr, near))}?" if near else known
            raise ArgumentsInvalid(
                f"{spec.address}: unknown argument {name[:MAX_SHOWN_CHARS]!r}; {hint}",
                name,
                near,
            )


def _check(spec: ToolSpec, arguments: dict[str, JSON]) -> None:
    validator = validator_for(spec.input_schema)
    try:
        errors = list(islice(validator.iter_errors(arguments), MAX_SCHEMA_ERRORS))
    except (Unresolvable, RecursionError, TypeError, AttributeError, KeyError) as exc:
        # A schema that is itself broken (MCP servers send such): refused before anything is sent, no crash.
        raise ArgumentsInvalid(
            f"{spec.address}: the tool's own schema cannot be used ({type(exc).__name__}); refresh its source"
        ) from exc
    if errors:
        error = best_match(errors)
        raise ArgumentsInvalid(f"{spec.address}: {_describe(error, spec)}", _path(error))


def _path(error: Any) -> str:
    text = ""
    for part in error.absolute_path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text


def _describe(error: Any, spec: ToolSpec) -> str:
    path = _path(error)
    top = str(error.absolute_path[0]) if error.absolute_path else ""
    hidden = top in spec.sensitive
    subject = f"argument {path!r}" if path else "the arguments"
    match error.validator:
        case "required":
            missing = [name for name in error.validator_value if name not in error.instance]
            return f"{subject}: {', '.join(map(repr, missing[:5]))} is missing"
        case "additionalProperties":
            known = ", ".join(error.schema.get("properties", {})) or "none"
            return f"{subject}: an unknown key (known: {known})"
        case "dependentRequired":
            missing = [n for names in error.validator_value.values() for n in names if n not in error.instance]
            return f"{subject}: needs also {', '.join(dict.fromkeys(map(repr, missing)))}"
    return f"{subject}: expected {_expected(error.schema, error)}, got {shown(error.instance, hidden=hidden)}"


def _expected(schema: Any, error: Any = None) -> str:
    if error is not None and error.validator not in ("type", "enum", "const", "anyOf", "oneOf"):
        return f"{error.validator} {_cut(error.validator_value)}"
    if not isinstance(schema, dict):
        return "any value"
    if "enum" in schema:
        return f"one of {_cut(schema['enum'])}"
    if "const" in schema:
        return _cut(schema["const"])
    if "type" in schema:
        kinds = schema["type"]
        return " or ".join(map(str, kinds)) if isinstance(kinds, list) else str(kinds)
    options = schema.get("anyOf") or schema.get("oneOf")
    if isinstance(options, list):
        return " or ".join(dict.fromkeys(_expected(option) for option in options[:5]))
    return "an object" if "properties" in schema or "$ref" in schema else "any value"


def shown(value: JSON, *, hidden: bool = False) -> str:
    """A value as it may stand in a message: cut, with its kind; only the kind where it is secret."""
    kind = _kind(value)
    return f"{kind} (hidden)" if hidden else f"{_cut(value)} ({kind})"


def _kind(value: JSON) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
        case _:
            return "object"


def _cut(value: JSON) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= MAX_SHOWN_CHARS else text[: MAX_SHOWN_CHARS - 1] + "…"
