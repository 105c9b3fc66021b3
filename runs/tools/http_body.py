"""Request bodies: arguments in JSON, forms, multipart, text and bytes. Pure but for the boundary's randomness."""

import base64
import binascii
import json
import secrets
from typing import Any
from urllib.parse import urlencode

from runs.tools.base import JSON
from runs.tools.http_styles import text_of


class BodyInvalid(ValueError):
    """The arguments cannot be written as the body the operation takes; nothing was sent."""


def encode_body(binding: dict[str, Any], arguments: dict[str, JSON]) -> tuple[bytes, str] | None:
    """The body and its content type, or None for a body that is left out. Raises BodyInvalid."""
    given = {name: arguments[argument] for argument, name in binding["arguments"].items() if argument in arguments}
    if not given and not binding["required"]:
        return None
    media = binding["media"].replace("*/*", "application/json").replace("application/*", "application/json")
    value: JSON = next(iter(given.values()), None) if binding["whole"] else given
    match binding["encoding"]:
        case "json":
            return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode(), media
        case "form":
            return urlencode(_fields(value), encoding="utf-8").encode(), media
        case "multipart":
            return _multipart(_members(value), frozenset(binding["files"]), media)
        case "text":
            return text_of(value).encode(), f"{media}; charset=utf-8" if media.startswith("text/") else media
        case _:
            return _bytes(value, "body"), "application/octet-stream" if "*" in media else media


def _members(value: JSON) -> dict[str, JSON]:
    if not isinstance(value, dict):
        raise BodyInvalid("the body must be an object of fields")
    return value


def _fields(value: JSON) -> list[tuple[str, str]]:
    """Form fields: lists repeat their name, nested objects are JSON, null is left out."""
    fields: list[tuple[str, str]] = []
    for name, item in _members(value).items():
        for single in item if isinstance(item, list) else [item]:
            if single is not None:
                fields.append((name, text_of(single)))
    return fields


def _bytes(value: JSON, name: str) -> bytes:
    if not isinstance(value, str):
        raise BodyInvalid(f"{name!r} must be text in base64")
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        raise BodyInvalid(f"{name!r} is not valid base64") from None


def _multipart(members: dict[str, JSON], files: frozenset[str], media: str) -> tuple[bytes, str]:
    boundary = secrets.token_hex(16)
    parts: list[bytes] = []
    for name, item in members.items():
        for single in item if isinstance(item, list) else [item]:
            if single is None:
                continue
            headers, content = _file(name, single) if name in files else _field(name, single)
            parts += [f"--{boundary}\r\n{headers}\r\n\r\n".encode(), content, b"\r\n"]
    parts.append(f"--{boundary}--\r\n".encode())
    return b"".join(parts), f"{media.partition(';')[0]}; boundary={boundary}"


def _field(name: str, value: JSON) -> tuple[str, bytes]:
    kind = "\r\nContent-Type: application/json" if isinstance(value, dict) else ""
    return f'Content-Disposition: form-data; name="{_quoted(name)}"{kind}', text_of(value).encode()


def _file(name: str, value: JSON) -> tuple[str, bytes]:
    """A file given as base64 text, or as an object with text or base64 and, if known, a name and type."""
    described: dict[str, Any] = value if isinstance(value, dict) else {"base64": value}
    content = described["text"].encode() if "text" in described else _bytes(described.get("base64"), name)
    default = "text/plain; charset=utf-8" if "text" in described else "application/octet-stream"
    kind = _quoted(described.get("content_type", default))
    filename = _quoted(described.get("filename", name))
    disposition = f'form-data; name="{_quoted(name)}"; filename="{filename}"'
    return f"Content-Disposition: {disposition}\r\nContent-Type: {kind}", content


def _quoted(text: str) -> str:
    """As browsers do: nothing in a name can end the header or the quotes."""
    return text.replace('"', "%22").replace("\r", "%0D").replace("\n", "%0A")
