"""From a tool's binding and arguments to one HTTP request. Pure: what cannot be sent as meant is refused here."""

import json
import re
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from runs.tools.base import JSON
from runs.tools.bounds import MAX_URL_BYTES
from runs.tools.credentials import Applied
from runs.tools.http_body import BodyInvalid, encode_body
from runs.tools.http_styles import encode, path_text, plain_text, query_pairs

_PLACEHOLDER = re.compile(r"\{([^{}]+)\}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


class RequestInvalid(ValueError):
    """The arguments make no request that means what the operation means; nothing was sent."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A request as it will be sent. Not shown by repr: it holds secrets."""

    method: str
    url: str = field(repr=False)
    headers: list[tuple[bytes, bytes]] = field(repr=False)
    content: bytes | None = field(repr=False)


def plan_request(
    binding: dict[str, Any],
    base_url: str,
    arguments: dict[str, JSON],
    applied: Applied,
    extra_headers: dict[str, str],
) -> Plan:
    """The request of the binding with these arguments and credentials. Raises RequestInvalid.

    Credentials and `extra_headers` win over an argument of the same name.
    """
    try:
        return _plan(binding, base_url, arguments, applied, extra_headers)
    except (BodyInvalid, UnicodeEncodeError) as exc:
        why = str(exc) if isinstance(exc, BodyInvalid) else "text that is not valid Unicode"
        raise RequestInvalid(why) from None


def _plan(
    binding: dict[str, Any],
    base_url: str,
    arguments: dict[str, JSON],
    applied: Applied,
    extra_headers: dict[str, str],
) -> Plan:
    given = {(p["in"], p["name"]): (p, arguments[p["arg"]]) for p in binding["parameters"] if p["arg"] in arguments}
    path = _path(binding["path"], given)
    query = "&".join(f"{name}={value}" for name, value in _query(given, applied))
    body = None if binding["body"] is None else encode_body(binding["body"], arguments)
    headers = _headers(given, applied, extra_headers)
    if body is not None:
        headers.append((b"Content-Type", body[1].encode()))
    base = urlsplit(binding.get("server") or base_url)
    url = f"{base.scheme}://{base.netloc}{base.path.rstrip('/')}{path}" + (f"?{query}" if query else "")
    if len(url) > MAX_URL_BYTES:
        raise RequestInvalid(f"the address would be longer than {MAX_URL_BYTES} bytes")
    return Plan(binding["method"], url, headers, None if body is None else body[0])


Given = dict[tuple[str, str], tuple[dict[str, Any], JSON]]


def _path(template: str, given: Given) -> str:
    """The path with its parameters filled in; every segment stays the one segment it is in the template."""

    def fill(match: re.Match[str]) -> str:
        entry = given.get(("path", match[1]))
        if entry is None:
            raise RequestInvalid(f"the path needs {match[1]!r}")
        parameter, value = entry
        text = _content(parameter, value)
        filled = (
            encode(text) if text is not None else path_text(match[1], value, parameter["style"], parameter["explode"])
        )
        if not filled:
            # `/items/` is another operation than `/items/7`: often the one that lists or deletes all.
            raise RequestInvalid(f"the path parameter {match[1]!r} must not be empty")
        return filled

    segments = []
    for segment in template.split("/"):
        filled = _PLACEHOLDER.sub(fill, segment)
        if filled != segment and filled in (".", ".."):
            # Encoding does not help: `%2e%2e` still means "one up" to many servers.
            raise RequestInvalid("a path parameter must not be '.' or '..'")
        segments.append(filled)
    return "/".join(segments)


def _query(given: Given, applied: Applied) -> list[tuple[str, str]]:
    pairs: list[tuple[str, str]] = []
    for (place, name), (parameter, value) in given.items():
        if place != "query":
            continue
        text = _content(parameter, value)
        if text is not None:
            pairs.append((encode(name), encode(text)))
        else:
            pairs += query_pairs(name, value, parameter["style"], parameter["explode"], parameter["reserved"])
    return pairs + [(encode(name), encode(value)) for name, value in applied.query]


def _headers(given: Given, applied: Applied, extra: dict[str, str]) -> list[tuple[bytes, bytes]]:
    headers: dict[str, tuple[str, str]] = {}
    cookies: list[tuple[str, str]] = []
    for (place, name), (parameter, value) in given.items():
        text = _content(parameter, value)
        if place == "header" and value is not None:
            headers[name.lower()] = (name, plain_text(value, parameter["explode"]) if text is None else text)
        elif place == "cookie" and text is not None:
            cookies.append((encode(name), encode(text)))
        elif place == "cookie":
            cookies += query_pairs(name, value, "form", parameter["explode"], False)
    for name, secret in (applied.headers | extra).items():
        headers[name.lower()] = (name, secret)
    cookies += [(encode(name), encode(secret)) for name, secret in applied.cookies]
    if cookies:
        headers["cookie"] = ("Cookie", "; ".join(f"{name}={value}" for name, value in cookies))
    for name, text in headers.values():
        if not _TOKEN.fullmatch(name) or _CONTROL.search(text):
            # The value is not repeated: it may be a secret.
            raise RequestInvalid(f"the header {name[:100]!r} would hold characters that no header may hold")
    # Blanks at the ends mean nothing in a header, and h11 refuses them only after it has begun to send.
    return [(name.encode(), text.strip(" \t").encode()) for name, text in headers.values()]


def _content(parameter: dict[str, Any], value: JSON) -> str | None:
    """The text of a parameter with a media type of its own: JSON, unless it is plain text."""
    media = parameter["content"]
    if media is None:
        return None
    if isinstance(value, str) and "json" not in media:
        return value
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
