"""The parameters of an operation: which arguments they are and how each is written into a request."""

from dataclasses import dataclass
from typing import Any, Final

from runs.tools.base import JSON
from runs.tools.bounds import MAX_PARAMETERS, MAX_SCHEMA_TEXT_CHARS
from runs.tools.errors import DocumentError
from runs.tools.openapi_refs import Document
from runs.tools.openapi_schema import Fragment, Schemas

_STYLES: Final[dict[str, tuple[str, ...]]] = {
    "path": ("simple", "label", "matrix"),
    "query": ("form", "spaceDelimited", "pipeDelimited", "deepObject"),
    "header": ("simple",),
    "cookie": ("form",),
}
"""The styles of each place; the first one is its default."""
_DESCRIBED_ELSEWHERE: Final = frozenset(("accept", "content-type", "authorization"))
_OF_HTTP: Final = frozenset(
    ("host", "connection", "content-length", "transfer-encoding", "te", "trailer", "upgrade", "expect")
) | {"accept-encoding", "proxy-authorization"}
_OF_THE_RUN: Final = frozenset(("idempotency-key", "x-run-id"))
OURS: Final = _DESCRIBED_ELSEWHERE | _OF_HTTP | _OF_THE_RUN
"""Headers no program sets: OpenAPI describes the first by other keywords, the next belong to HTTP itself, and the
run's identity and key are given by the server, never by the code it runs."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """One argument that goes into the path, the query, a header or a cookie."""

    place: str
    name: str
    required: bool
    fragment: Fragment
    binding: dict[str, JSON]
    """name, in, style, explode, reserved, content: all that `request.py` needs to write it."""


def read_parameters(
    document: Document,
    schemas: Schemas,
    lists: tuple[tuple[JSON, str], ...],
    secrets: frozenset[tuple[str, str]],
) -> list[Parameter]:
    """The parameters of all lists, a later list overriding earlier ones by (place, name), in order of appearance.

    `secrets` are the (place, name) of credentials: the connection gives them, so they are no arguments.
    Raises DocumentError where a parameter cannot be understood: the request would be wrong without it.
    """
    found: dict[tuple[str, str], tuple[dict[str, Any], str]] = {}
    for items, where in lists:
        if items is None:
            continue
        if not isinstance(items, list) or len(items) > MAX_PARAMETERS:
            raise DocumentError("spec_invalid", f"parameters are no list of at most {MAX_PARAMETERS}", where)
        for number, item in enumerate(items):
            parameter, place_in_document = document.follow(item, f"{where}/{number}")
            name, place = parameter.get("name"), parameter.get("in")
            if not isinstance(name, str) or not isinstance(place, str) or place not in _STYLES:
                raise DocumentError("spec_invalid", "a parameter without a known `in` and `name`", place_in_document)
            # Header names are the same in any case; a second spelling must override, not double.
            key = (place, name.lower() if place == "header" else name)
            found[key] = (parameter, place_in_document)
    lowered = {(place, name.lower() if place == "header" else name) for place, name in secrets}
    return [
        _parameter(parameter, where, schemas)
        for (place, name), (parameter, where) in found.items()
        if (place, name) not in lowered and not (place == "header" and name in OURS)
    ]


def _parameter(parameter: dict[str, Any], where: str, schemas: Schemas) -> Parameter:
    place, name = parameter["in"], parameter["name"]
    style = parameter.get("style", _STYLES[place][0])
    if style not in _STYLES[place]:
        raise DocumentError("spec_unsupported", f"style {style!r} in a {place} parameter", where)
    explode = parameter.get("explode")
    media, schema = _content(parameter, where)
    fragment = schemas.translate({} if schema is None else schema, f"{where}/schema")
    return Parameter(
        place,
        name,
        place == "path" or parameter.get("required") is True,
        _described(fragment, parameter),
        {
            "name": name,
            "in": place,
            "style": style,
            "explode": explode if isinstance(explode, bool) else style in ("form", "deepObject"),
            "reserved": parameter.get("allowReserved") is True,
            "content": media,
        },
    )


def _content(parameter: dict[str, Any], where: str) -> tuple[str | None, JSON]:
    """The media type of a parameter with `content` (its value is written as JSON), and the schema."""
    content = parameter.get("content")
    if not isinstance(content, dict) or not content:
        return None, parameter.get("schema")
    media, body = next(iter(content.items()))
    return str(media), body.get("schema") if isinstance(body, dict) else None


def _described(fragment: Fragment, parameter: dict[str, Any]) -> Fragment:
    """The schema with the parameter's own description, deprecation and mark as secret."""
    if parameter.get("x-sensitive") is True:
        fragment.sensitive = True
    description = parameter.get("description")
    extra: dict[str, JSON] = {}
    if isinstance(description, str) and description:
        extra["description"] = description[:MAX_SCHEMA_TEXT_CHARS]
    if parameter.get("deprecated") is True:
        extra["deprecated"] = True
    if extra:
        body = fragment.body if isinstance(fragment.body, dict) else {} if fragment.body else {"not": {}}
        fragment.size += len(extra)
        # `$ref` beside a description is fine in 2020-12, but a link that may be cut must keep its own dict.
        fragment.body = {"allOf": [body]} | extra if "$ref" in body else body | extra
    return fragment
