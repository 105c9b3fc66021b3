"""Signatures of Python functions as JSON Schema, and JSON arguments back as what the annotations say."""

import inspect
import typing
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import typing_extensions
from pydantic import ConfigDict, PydanticSchemaGenerationError, PydanticUserError, TypeAdapter, with_config
from pydantic.errors import PydanticInvalidForJsonSchema

from runs.tools.base import JSON, CallContext
from runs.tools.values import NotJSON, to_json

CONTEXT = "context"
_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


@dataclass(frozen=True, slots=True)
class Signature:
    """What a function takes and gives."""

    input_schema: dict[str, JSON]
    output_schema: dict[str, JSON] | None
    sensitive: frozenset[str]
    takes_context: bool
    adapter: TypeAdapter[Any]

    def values(self, arguments: dict[str, JSON]) -> dict[str, Any]:
        """The arguments as enums, dates, dataclasses …; what is not given is left to the function's own defaults.

        Raises pydantic.ValidationError.
        """
        return dict(self.adapter.validate_python(arguments))


def read_signature(function: Callable[..., Any]) -> Signature:
    """Raises TypeError, naming function and parameter, where an argument could not be given as JSON by name."""
    hints = typing.get_type_hints(function, include_extras=True)
    fields: dict[str, Any] = {}
    defaults: dict[str, JSON] = {}
    takes_context = False
    for name, parameter in inspect.signature(function).parameters.items():
        if name == CONTEXT and hints.get(name) is CallContext:
            takes_context = True
            continue
        if parameter.kind not in _NAMED:
            raise TypeError(f"{function.__qualname__}: {name!r} cannot be given by name")
        annotation = hints.get(name, Any)
        if parameter.default is inspect.Parameter.empty:
            fields[name] = typing_extensions.Required[annotation]
        else:
            fields[name] = typing_extensions.NotRequired[annotation]
            _note_default(defaults, name, parameter.default)
    adapter, schema = _arguments_schema(function, fields)
    for name, default in defaults.items():
        schema["properties"][name].setdefault("default", default)
    return Signature(schema, _output_schema(hints), frozenset(_sensitive(schema)), takes_context, adapter)


def _note_default(defaults: dict[str, JSON], name: str, default: object) -> None:
    try:
        defaults[name] = to_json(default)
    except NotJSON:
        # A default that cannot be shown still holds: the function fills it in itself.
        return


def _arguments_schema(function: Callable[..., Any], fields: dict[str, Any]) -> tuple[TypeAdapter[Any], dict[str, JSON]]:
    make: Any = typing_extensions.TypedDict
    arguments = make("Arguments", fields)
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(
            with_config(ConfigDict(extra="forbid", arbitrary_types_allowed=False))(arguments)
        )
        schema = adapter.json_schema(mode="validation")
    except (PydanticSchemaGenerationError, PydanticInvalidForJsonSchema, PydanticUserError) as exc:
        raise TypeError(f"{function.__qualname__}: {str(exc).splitlines()[0]}") from exc
    schema.pop("title", None)
    schema["type"] = "object"
    schema.setdefault("properties", {})
    schema["additionalProperties"] = False
    for described in schema["properties"].values():
        described.pop("title", None)
    return adapter, schema


def _output_schema(hints: dict[str, Any]) -> dict[str, JSON] | None:
    if "return" not in hints or hints["return"] in (Any, type(None)):
        return None
    try:
        return TypeAdapter(hints["return"]).json_schema(mode="serialization")
    except (PydanticSchemaGenerationError, PydanticInvalidForJsonSchema, PydanticUserError):
        # Answers are described where they can be, never checked.
        return None


def _sensitive(schema: dict[str, JSON]) -> list[str]:
    """Arguments annotated with `SecretStr`, or with `x-sensitive` in their own schema."""
    return [
        name
        for name, described in schema["properties"].items()
        if described.get("format") == "password" or described.get("x-sensitive") is True
    ]
