"""The demo service itself: a plain ASGI application with two reads, two effects and its ledger."""

import asyncio
import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import parse_qs, unquote

from runs.demo.ledger import Ledger
from runs.demo.place import document

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

_BODY_BYTES = 100_000
"""The largest note, escaped."""
_SLOW_MAX_MS = 600_000.0
UNKNOWN_ITEM = "unknown"
"""The id of the item there is not: for trying what an upstream's error looks like."""


class Answer(Exception):
    """Ends the handling of a request with this status and value."""

    def __init__(self, status: int, value: Any) -> None:
        self.status = status
        self.value = value


class DemoService:
    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise ValueError(f"{scope['type']} is not served here")
        kind = b"application/json"
        try:
            if (scope["method"], scope["path"]) == ("GET", "/ledger"):
                status, kind, content = 200, b"text/plain; charset=utf-8", self._ledger.read()
            elif (scope["method"], scope["path"]) == ("GET", "/openapi.json"):
                status, content = 200, document()
            else:
                status, value = await self._serve(scope, receive)
                content = json.dumps(value).encode()
        except Answer as answer:
            status, content = answer.status, json.dumps(answer.value).encode()
        headers = [(b"content-type", kind), (b"content-length", str(len(content)).encode())]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": content})

    async def _serve(self, scope: Message, receive: Receive) -> tuple[int, Any]:
        # raw_path, so that an id with a slash in it stays one id.
        path = scope.get("raw_path", scope["path"].encode()).decode("latin-1").partition("?")[0]
        match scope["method"], path.strip("/").split("/"):
            case "GET", ["items", quoted]:
                return 200, item(unquote(quoted))
            case "GET", ["slow"]:
                ms = milliseconds(scope["query_string"].decode("latin-1"))
                await asyncio.sleep(ms / 1000)
                return 200, {"waited_ms": ms}
            case "POST", ["charges"]:
                args = await body(receive, {"amount": (int, float), "ref": (str,)})
                number = self._record("create_charge", args, scope)
                return 201, {"id": f"ch_{number:06d}", **args, "status": "charged"}
            case "POST", ["notes"]:
                args = await body(receive, {"text": (str,)})
                return 201, {"id": f"note_{self._record('create_note', args, scope):06d}", **args}
        raise Answer(404, {"error": "There is no such address; see /openapi.json."})

    def _record(self, operation: str, args: dict[str, Any], scope: Message) -> int:
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        return self._ledger.append(
            operation, args, key=headers.get(b"idempotency-key"), run_id=headers.get(b"x-run-id")
        )


def item(item_id: str) -> dict[str, Any]:
    """The same item for the same id, always."""
    if item_id == UNKNOWN_ITEM:
        raise Answer(404, {"error": f"There is no item {item_id!r}."})
    number = sum(item_id.encode())
    return {"id": item_id, "name": f"Item {item_id}", "price": number % 90 + 9.5, "in_stock": number % 3 != 0}


def milliseconds(query: str) -> float:
    try:
        ms = float(parse_qs(query)["ms"][0])
    except (KeyError, ValueError):
        raise Answer(422, {"error": "ms is a number of milliseconds."}) from None
    if not 0 <= ms <= _SLOW_MAX_MS:
        raise Answer(422, {"error": f"ms is from 0 to {_SLOW_MAX_MS:.0f}."})
    return ms


async def body(receive: Receive, fields: dict[str, tuple[type, ...]]) -> dict[str, Any]:
    """A JSON object of exactly these fields. Nothing else is an effect, and none is recorded for it."""
    content = b""
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Answer(400, {"error": "The body did not come whole."})
        content += message.get("body", b"")
        more = message.get("more_body", False)
        if len(content) > _BODY_BYTES:
            raise Answer(413, {"error": f"The body is over {_BODY_BYTES} bytes."})
    try:
        args = json.loads(content)
    except ValueError:
        raise Answer(400, {"error": "The body is not JSON."}) from None
    right = isinstance(args, dict) and args.keys() == fields.keys()
    if not right or any(isinstance(args[name], bool) or not isinstance(args[name], fields[name]) for name in fields):
        raise Answer(422, {"error": f"The body is an object with {' and '.join(fields)}."})
    return dict(args)
