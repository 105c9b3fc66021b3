"""The body of an operation: which arguments it consists of and how it is encoded."""

from dataclasses import dataclass
from typing import Any, Final

from runs.tools.base import JSON
from runs.tools.bounds import MAX_PARAMETERS
from runs.tools.errors import DocumentError
from runs.tools.openapi_names import argument_names
from runs.tools.openapi_refs import Document
from runs.tools.openapi_schema import Fragment, Schemas

WHOLE = "body"
"""The argument that is the whole body, where it is not taken apart."""
_FLAT_KEYWORDS = frozenset(
    ("type", "properties", "required", "allOf", "additionalProperties", "title", "description")
) | {"example", "examples", "externalDocs", "xml", "deprecated", "discriminator", "$schema", "$comment"}
"""An object that says only this is the sum of its properties; `oneOf`, `default` and the like say more."""
_FILE: Final[dict[str, JSON]] = {
    "description": "A file: its content in base64, or an object with a name and text or base64.",
    "anyOf": [
        {"type": "string", "contentEncoding": "base64"},
        {
            "type": "object",
            "properties": {
                "filename": {"type": "string"},
                "content_type": {"type": "string"},
                "text": {"type": "string"},
                "base64": {"type": "string", "contentEncoding": "base64"},
            },
            "oneOf": [{"required": ["text"]}, {"required": ["base64"]}],
            "additionalProperties": False,
        },
    ],
}
_FILE_SIZE = 24


@dataclass(frozen=True, slots=True)
class Body:
    """The body's arguments by property name, or the one argument `body` (`whole`)."""

    media: str
    encoding: str
    """json, form, multipart, text or binary."""
    required: bool
    whole: Fragment | None
    properties: dict[str, Fragment]
    required_properties: list[str]
    files: tuple[str, ...] = ()
    """Properties that are files (multipart only)."""


def read_body(document: Document, schemas: Schemas, body: JSON, where: str, taken: frozenset[str]) -> Body | None:
    """The operation's body, taken apart unless a property's argument name is in `taken`. None where there is none.

    Raises DocumentError for a body that is required and has no media type.
    """
    if body is None:
        return None
    found, where = document.follow(body, where)
    content = found.get("content")
    required = found.get("required") is True
    if not isinstance(content, dict) or not content:
        if required:
            raise DocumentError("spec_invalid", "a required body without content", where)
        return None
    media, encoding = _choose([str(name) for name in content])
    described = content[media]
    schema = described.get("schema") if isinstance(described, dict) else None
    schema, where = {} if schema is None else schema, f"{where}/content/{media.replace('/', '~1')}/schema"
    if encoding == "binary":
        fragment = Fragment({"type": "string", "contentEncoding": "base64"}, size=2)
        return Body(media, encoding, required, fragment, {}, [])
    if encoding == "text":
        return Body(media, encoding, required, Fragment({"type": "string"}, size=1), {}, [])
    flat = flat_properties(document, schema)
    if flat is not None:
        # Before names are compared: the `id` a server gives an object is no rival of the `id` in the path.
        writable = {name: part for name, part in flat[0].items() if not schemas.read_only(part)}
        flat = writable, [name for name in flat[1] if name in writable]
    if flat is not None and 0 < len(flat[0]) <= MAX_PARAMETERS and not _names(flat[0]) & taken:
        return _apart(document, schemas, flat, where, Body(media, encoding, required, None, {}, []))
    return Body(media, encoding, required, schemas.translate(schema, where), {}, [])


def _names(properties: dict[str, JSON]) -> set[str]:
    return set(argument_names(("body", name) for name in properties).values())


def _apart(
    document: Document, schemas: Schemas, flat: tuple[dict[str, JSON], list[str]], where: str, body: Body
) -> Body:
    properties, required = flat
    fragments: dict[str, Fragment] = {}
    files: list[str] = []
    for name, schema in properties.items():
        many = _file(document, schema) if body.encoding == "multipart" else None
        if many is None:
            fragments[name] = schemas.translate(schema, f"{where}/properties/{name}")
        else:
            files.append(name)
            file: dict[str, JSON] = {"type": "array", "items": _FILE} if many else _FILE
            fragments[name] = Fragment(file, size=_FILE_SIZE)
    return Body(body.media, body.encoding, body.required, None, fragments, required, tuple(files))


def flat_properties(document: Document, schema: JSON, depth: int = 1) -> tuple[dict[str, JSON], list[str]] | None:
    """Properties and required names of a schema that is nothing but an object with properties; else None.

    `allOf` of such objects is one. Not where it takes further keys by name (`additionalProperties`): keyword
    arguments could not name them.
    """
    if depth > 8:
        return None
    try:
        found, _ = document.follow(schema, "")
    except DocumentError:
        # Translating the whole schema reports it, with its place.
        return None
    if any(key not in _FLAT_KEYWORDS and not key.startswith("x-") for key in found):
        return None
    if found.get("type", "object") != "object" or found.get("additionalProperties", False) is not False:
        return None
    own = found.get("properties", {})
    wanted = found.get("required", [])
    if not isinstance(own, dict) or not isinstance(wanted, list):
        return None
    properties: dict[str, JSON] = {}
    required: list[str] = []
    parts = found.get("allOf", [])
    for part in parts if isinstance(parts, list) else []:
        inner = flat_properties(document, part, depth + 1)
        if inner is None or inner[0].keys() & properties.keys():
            return None
        properties |= inner[0]
        required += inner[1]
    if properties.keys() & own.keys():
        return None
    properties |= own
    required += [name for name in wanted if isinstance(name, str)]
    return properties, list(dict.fromkeys(required))


def _file(document: Document, schema: JSON) -> bool | None:
    """Whether a multipart property is a list of files (True), one file (False) or no file (None)."""
    try:
        found, _ = document.follow(schema, "")
        if found.get("type") == "array":
            inner, _ = document.follow(found.get("items", {}), "")
            return True if _is_file(inner) else None
    except DocumentError:
        return None
    return False if _is_file(found) else None


def _is_file(schema: dict[str, Any]) -> bool:
    if schema.get("format") in ("binary", "byte"):
        return True
    kind = schema.get("contentMediaType")
    return isinstance(kind, str) and not kind.startswith(("text/", "application/json"))


def _choose(media: list[str]) -> tuple[str, str]:
    """The media type to send: the one that carries structure best, whatever the document's order."""
    return min(((name, encoding_of(name)) for name in media), key=lambda pair: (_ORDER.index(pair[1]), pair[0]))


_ORDER = ("json", "form", "multipart", "text", "binary")


def encoding_of(media: str) -> str:
    kind = media.partition(";")[0].strip().lower()
    if kind == "application/json" or kind.endswith("+json") or kind in ("*/*", "application/*"):
        return "json"
    if kind == "application/x-www-form-urlencoded":
        return "form"
    if kind.startswith("multipart/"):
        return "multipart"
    if kind.startswith("text/") or kind.endswith(("/xml", "+xml", "/yaml", "+yaml", "/x-ndjson", "/graphql")):
        return "text"
    return "binary"
