"""Security schemes of a document: which credentials an operation takes, as OR of ANDs."""

from typing import Any

from runs.tools.base import JSON
from runs.tools.errors import DocumentError
from runs.tools.openapi_refs import Document

Alternatives = list[dict[str, JSON]]
"""Each alternative maps the names of its schemes to how their secret is sent; an empty one means: without."""


def read_schemes(document: Document) -> dict[str, JSON]:
    """Every scheme by name: `{"kind": "header"|"query"|"cookie", "name"}`, `bearer`, `basic` or `unsupported`."""
    components = document.root.get("components")
    declared = components.get("securitySchemes") if isinstance(components, dict) else None
    schemes: dict[str, JSON] = {}
    for name, scheme in declared.items() if isinstance(declared, dict) else ():
        try:
            found, _ = document.follow(scheme, f"#/components/securitySchemes/{name}")
        except DocumentError as exc:
            # Only the operations that need it cannot be called; they say so when they are.
            schemes[name] = {"kind": "unsupported", "why": exc.message}
            continue
        schemes[name] = _scheme(found)
    return schemes


def _scheme(scheme: dict[str, Any]) -> dict[str, JSON]:
    match scheme.get("type"), str(scheme.get("scheme", "")).lower():
        case "apiKey", _ if scheme.get("in") in ("header", "query", "cookie") and isinstance(scheme.get("name"), str):
            return {"kind": scheme["in"], "name": scheme["name"]}
        case "http", "bearer":
            return {"kind": "bearer"}
        case "http", "basic":
            return {"kind": "basic"}
        case (("oauth2" | "openIdConnect"), _):
            # The token is got elsewhere and kept as the connection's secret.
            return {"kind": "bearer"}
        case kind, name:
            return {"kind": "unsupported", "why": f"{kind} {name}".strip()}


def operation_security(document: Document, operation: dict[str, Any], schemes: dict[str, JSON]) -> Alternatives:
    """The operation's own alternatives, else the document's; empty where none is needed."""
    declared = operation.get("security", document.root.get("security"))
    if not isinstance(declared, list):
        return []
    return [
        {str(name): schemes.get(name, {"kind": "unsupported", "why": "not declared"}) for name in alternative}
        for alternative in declared
        if isinstance(alternative, dict)
    ]


def secret_places(alternatives: Alternatives) -> frozenset[tuple[str, str]]:
    """Where credentials go, as (place, name): parameters of these names are no arguments."""
    return frozenset(
        (scheme["kind"], scheme["name"])
        for alternative in alternatives
        for scheme in alternative.values()
        if "name" in scheme
    )
