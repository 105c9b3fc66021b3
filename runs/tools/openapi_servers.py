"""Where a document's operations live: `servers` with variables, relative ones, and an explicit base address."""

import re
from typing import Any
from urllib.parse import urljoin, urlsplit

from runs.tools.base import JSON
from runs.tools.errors import DocumentError

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_VARIABLE = re.compile(r"\{([^{}]+)\}")


def root_address(servers: JSON, base_url: str | None, document_url: str | None) -> str:
    """The base address of a document. Raises DocumentError where nothing says one.

    An explicit `base_url` wins. Given without a path, it is completed by a *relative* server address
    (`https://host` and `/api/v3`). Without it, relative ones are relative to the document's own address.
    """
    declared = server_address(servers)
    if base_url is not None:
        base = _checked(base_url)
        if declared is not None and not _absolute(declared) and urlsplit(base).path in ("", "/"):
            return _checked(_join(base, declared))
        return base
    if declared is not None and _absolute(declared):
        return _checked(declared)
    if document_url is not None:
        return _checked(_join(document_url, declared or "/"))
    raise DocumentError("spec_invalid", "the document names no absolute server; give a base_url", "#/servers")


def override_address(servers: JSON, root: str, base_url: str | None) -> str | None:
    """An operation's or path's own server, made absolute; None where the document's base holds."""
    declared = server_address(servers)
    # An explicit address means "there, and nowhere else": credentials meant for it must not go where a document says.
    if declared is None or base_url is not None:
        return None
    address = _checked(_join(root, declared))
    return None if address == root else address


def server_address(servers: JSON) -> str | None:
    """The first server, its variables at their defaults; None where there is none."""
    if not isinstance(servers, list) or not servers or not isinstance(servers[0], dict):
        return None
    url, variables = servers[0].get("url"), servers[0].get("variables")
    if not isinstance(url, str) or not url.strip():
        return None
    values: dict[str, Any] = variables if isinstance(variables, dict) else {}

    def default(match: re.Match[str]) -> str:
        variable = values.get(match[1])
        value = variable.get("default") if isinstance(variable, dict) else None
        if value is None:
            raise DocumentError("spec_invalid", f"the server variable {match[1]!r} has no default", "#/servers")
        return str(value)

    return _VARIABLE.sub(default, url.strip())


def _absolute(address: str) -> bool:
    return _SCHEME.match(address) is not None


def _join(base: str, address: str) -> str:
    try:
        return urljoin(base, address)
    except ValueError:
        raise DocumentError("spec_invalid", f"not an address: {address[:200]!r}", "#/servers") from None


def _checked(address: str) -> str:
    """The address without query, fragment and final slash. Raises DocumentError unless it is http or https."""
    try:
        parts = urlsplit(address.strip())
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        valid = False
    if not valid:
        raise DocumentError("spec_invalid", f"not an http(s) address: {address[:200]!r}", "#/servers")
    if parts.username is not None or parts.password is not None:
        raise DocumentError("spec_invalid", "an address with user name or password in it", "#/servers")
    return parts._replace(query="", fragment="").geturl().rstrip("/")
