"""What a person says of a source, checked: the bodies of POST /sources, …/refresh and PATCH, and the name's rules."""

import builtins
import json
import keyword
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Never, TypeVar

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, TypeAdapter, ValidationError, model_validator

from runs.domain import limits
from runs.domain.codes import Refusal
from runs.engine.builtins import NAMES

STANDARD_MODULES = frozenset(
    [
        "asyncio",
        "base64",
        "binascii",
        "bisect",
        "collections",
        "copy",
        "csv",
        "dataclasses",
        "datetime",
        "decimal",
        "functools",
        "hashlib",
        "itertools",
        "json",
        "math",
        "os",
        "pathlib",
        "random",
        "re",
        "sys",
        "time",
        "tomllib",
        "typing",
        "unicodedata",
    ]
)
"""Modules that programs import from the sandbox itself: a source of that name would hide one of them."""
_NAME = re.compile(r"[a-z][a-z0-9_]*")
_SHOWN = 20
"""Faults told of one body."""

# Printable ASCII, as addresses are written; the rest of what can be wrong with one the guard says better.
Url = Annotated[
    str, StringConstraints(min_length=1, max_length=limits.URL_CHARS, strip_whitespace=True, pattern=r"^[!-~]+$")
]
ToolName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_]{1,190}$")]
Name = Annotated[str, StringConstraints(min_length=1, max_length=limits.SOURCE_NAME_CHARS)]


class Body(BaseModel):
    model_config = ConfigDict(extra="forbid")


class OpenAPIIn(Body):
    """A source from an OpenAPI document, given here or at an address."""

    kind: Literal["openapi"]
    name: Name
    spec: str | dict[str, Any] | None = Field(None, description="The document: JSON or YAML text, or an object.")
    spec_url: Url | None = Field(None, description="Where the document is; fetched now and with every refresh.")
    base_url: Url | None = Field(None, description="Where the service is, if the document does not say it right.")
    honours_key: bool = Field(False, description="The service acts once for one Idempotency-Key.")
    trust_effects: bool = Field(False, description="Let the document's x-executor-effect decide effect classes.")

    @model_validator(mode="after")
    def one_document(self) -> "OpenAPIIn":
        if (self.spec is None) == (self.spec_url is None):
            raise ValueError("give either spec or spec_url")
        return self


class PythonIn(Body):
    """A source from functions of this site: `name` is a key of the setting PYTHON_SOURCES."""

    kind: Literal["python"]
    name: Name
    honours_key: bool = False


SourceIn = Annotated[OpenAPIIn | PythonIn, Field(discriminator="kind")]


class RefreshIn(Body):
    """A new document, for a source whose document was given; nothing, for one with an address."""

    spec: str | dict[str, Any] | None = None
    trust_effects: bool = False


class ChangeIn(Body):
    """What changes; the rest stays."""

    base_url: Url | None = None
    honours_key: bool | None = None
    grant: Literal["all"] | list[ToolName] | None = Field(None, description="Tools that were reviewed, or all of them.")
    effects: dict[ToolName, Literal["read", "idempotent", "effect"]] = Field(
        default_factory=dict, max_length=1_000, description="The owner's word on what a tool does; kept by a refresh."
    )


_T = TypeVar("_T")
_source: TypeAdapter[OpenAPIIn | PythonIn] = TypeAdapter(SourceIn)
_refresh: TypeAdapter[RefreshIn] = TypeAdapter(RefreshIn)
_change: TypeAdapter[ChangeIn] = TypeAdapter(ChangeIn)


def read_source(body: bytes) -> OpenAPIIn | PythonIn:
    """Raises Refusal invalid_json or invalid_request."""
    return _read(body, _source)


def read_refresh(body: bytes) -> RefreshIn:
    """An empty body asks for the plain refresh. Raises Refusal invalid_json or invalid_request."""
    return _read(body or b"{}", _refresh)


def read_change(body: bytes) -> ChangeIn:
    """Raises Refusal invalid_json or invalid_request."""
    return _read(body, _change)


def _read(body: bytes, shape: TypeAdapter[_T]) -> _T:
    # Not the API's parser: a body here may hold a whole document, which is read where it is imported.
    try:
        value = json.loads(body.decode("utf-8"), parse_constant=_not_json)
    except RecursionError:
        raise Refusal("invalid_json", "The body is nested too deeply.") from None
    except ValueError as error:
        raise Refusal("invalid_json", f"The body is not JSON in UTF-8: {str(error)[:200]}") from None
    try:
        return shape.validate_python(value)
    except ValidationError as error:
        faults = error.errors(include_url=False, include_input=False, include_context=False)[:_SHOWN]
        detail = [{"where": ".".join(("body", *map(str, fault["loc"]))), "message": fault["msg"]} for fault in faults]
        raise Refusal("invalid_request", f"{detail[0]['where']}: {detail[0]['message']}", detail) from None


def _not_json(name: str) -> Never:
    raise ValueError(f"{name} is not JSON")


def check_name(name: str) -> str:
    """A name that agent code can import and that hides nothing. Raises Refusal invalid_request."""
    why = None
    if not _NAME.fullmatch(name):
        why = "it must be lowercase letters, digits and underscores, and begin with a letter"
    elif keyword.iskeyword(name) or keyword.issoftkeyword(name):
        why = "it is a word of Python"
    elif name in STANDARD_MODULES:
        why = "programs import a module of that name already"
    elif name in NAMES or hasattr(builtins, name) or name == "inputs":
        why = "programs have something of that name already"
    if why:
        raise Refusal("invalid_request", f"{name[:100]!r} cannot name a source: {why}.")
    return name


def registered_module(name: str, registered: Mapping[str, str]) -> str:
    """The module of a Python source. Raises Refusal invalid_request."""
    module = registered.get(name)
    if module is None:
        known = ", ".join(sorted(registered)) or "none"
        raise Refusal("invalid_request", f"{name!r} is not registered in PYTHON_SOURCES; registered: {known}.")
    return module
