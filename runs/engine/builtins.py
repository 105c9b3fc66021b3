"""The functions every program has: questions to a person, emitted values, durable sleep, and the catalog.

Each takes the call's arguments as JSON and answers at once, or says what the program has to wait for.
"""

import math
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from runs.domain import limits
from runs.drivers.base import Answer, Raised, Returned
from runs.tools.catalog import Catalog
from runs.tools.validators import SchemaUnusable, check_schema

NAMES = frozenset({"ask", "open_url", "emit", "sleep", "search_tools", "describe_tool"})
_SIGNATURES: dict[str, tuple[tuple[str, ...], int]] = {
    "ask": (("message", "schema"), 1),
    "open_url": (("url", "message"), 1),
    "emit": (("value",), 1),
    "sleep": (("seconds",), 1),
    "search_tools": (("query", "limit", "source"), 1),
    "describe_tool": (("address",), 1),
}
_ANSWER_SCHEMA = {"type": "object", "properties": {"answer": {"type": "string"}}, "required": ["answer"]}


@dataclass(frozen=True, slots=True)
class Question:
    """A person has to answer before the program goes on."""

    kind: str
    message: str
    schema: dict[str, Any] | None = None
    url: str | None = None


@dataclass(frozen=True, slots=True)
class Sleep:
    seconds: float


@dataclass(frozen=True, slots=True)
class Emit:
    value: Any


def arguments(name: str, args: list[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a built-in by name, as a person is shown them."""
    bound = _bind(name, args, kwargs)
    return {} if isinstance(bound, Raised) else bound


def call(name: str, args: list[Any], kwargs: dict[str, Any], catalog: Catalog) -> Answer | Question | Sleep | Emit:
    """Serve one built-in. A wrong call raises TypeError or ValueError in the program, as Python would."""
    bound = _bind(name, args, kwargs)
    if isinstance(bound, Raised):
        return bound
    return _SERVE[name](bound, catalog)


def _bind(name: str, args: list[Any], kwargs: dict[str, Any]) -> dict[str, Any] | Raised:
    parameters, required = _SIGNATURES[name]
    if len(args) > len(parameters):
        return Raised("TypeError", f"{name}() takes at most {len(parameters)} arguments ({len(args)} given)")
    bound = dict(zip(parameters, args, strict=False))
    for key, value in kwargs.items():
        if key not in parameters:
            return Raised("TypeError", f"{name}() got an unexpected argument {key!r}; it takes {', '.join(parameters)}")
        if key in bound:
            return Raised("TypeError", f"{name}() got two values for {key!r}")
        bound[key] = value
    missing = [parameter for parameter in parameters[:required] if parameter not in bound]
    if missing:
        return Raised("TypeError", f"{name}() misses {missing[0]!r}")
    return bound


def _ask(bound: dict[str, Any], _catalog: Catalog) -> Answer | Question:
    message, schema = bound["message"], bound.get("schema") or _ANSWER_SCHEMA
    if not isinstance(message, str) or not message.strip():
        return Raised("TypeError", "ask() takes a question as text")
    if not isinstance(schema, dict):
        return Raised("TypeError", "ask() takes a JSON Schema as a dict")
    try:
        check_schema(schema)
    except SchemaUnusable as error:
        return Raised("ValueError", f"ask() got a schema that cannot be used: {error}")
    return Question("form", message[: limits.MESSAGE_CHARS], schema=schema)


def _open_url(bound: dict[str, Any], _catalog: Catalog) -> Answer | Question:
    url = bound["url"]
    if not isinstance(url, str) or len(url) > limits.MESSAGE_CHARS:
        return Raised("TypeError", "open_url() takes an address as text")
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username:
        return Raised("ValueError", "open_url() takes an http or https address without a user name")
    message = bound.get("message") or f"Please visit {parts.hostname} and confirm."
    return Question("url", str(message)[: limits.MESSAGE_CHARS], url=url)


def _emit(bound: dict[str, Any], _catalog: Catalog) -> Emit:
    return Emit(bound["value"])


def _sleep(bound: dict[str, Any], _catalog: Catalog) -> Answer | Sleep:
    seconds = bound["seconds"]
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or math.isnan(seconds):
        return Raised("TypeError", "sleep() takes a number of seconds")
    if seconds > limits.SLEEP_MAX_S:
        return Raised("ValueError", f"sleep() takes at most {limits.SLEEP_MAX_S:,.0f} seconds")
    return Sleep(max(0.0, float(seconds)))


def _search_tools(bound: dict[str, Any], catalog: Catalog) -> Answer:
    query, limit, source = bound["query"], bound.get("limit", 10), bound.get("source")
    if not isinstance(query, str) or isinstance(limit, bool) or not isinstance(limit, int):
        return Raised("TypeError", "search_tools() takes a query as text and a limit as a whole number")
    _, hits = catalog.search(query, source=source, limit=limit)
    return Returned(
        [{"address": hit.address, "description": hit.description, "effect": hit.effect.value} for hit in hits]
    )


def _describe_tool(bound: dict[str, Any], catalog: Catalog) -> Answer:
    address = str(bound["address"])
    spec = catalog.find(address)
    if spec is None or not catalog.visible(spec):
        return Raised("LookupError", not_found(address, catalog))
    return Returned(catalog.describe(spec))


def not_found(address: str, catalog: Catalog) -> str:
    near = catalog.near(address)
    hint = f"did you mean {', '.join(near)}?" if near else "find tools with search_tools(query)"
    return f"tool_not_found: there is no tool {address}; {hint}"


_SERVE = {
    "ask": _ask,
    "open_url": _open_url,
    "emit": _emit,
    "sleep": _sleep,
    "search_tools": _search_tools,
    "describe_tool": _describe_tool,
}
