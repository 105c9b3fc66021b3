"""Refuses a body over its path's limit before anything reads it, whatever its Content-Length says."""

import json

from executor_site.correlation import KEY
from executor_site.scope import ASGIApp, ASGIScope, Receive, Send
from runs.domain import limits

_BY_PATH = (("/api/v1/sources", limits.SOURCE_BODY_BYTES),)


class _TooLarge(Exception):
    pass


def body_limit(path: str) -> int:
    return next((limit for prefix, limit in _BY_PATH if path.startswith(prefix)), limits.BODY_BYTES)


class BodyLimit:
    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        limit = body_limit(scope["path"])
        declared = dict(scope["headers"]).get(b"content-length", b"0")
        if declared.isdigit() and int(declared) > limit:
            await _refuse(scope, send, limit)
            return
        received = 0
        answered = False

        async def counted() -> object:
            nonlocal received
            message = await receive()
            if message["type"] == "http.request":
                received += len(message.get("body", b""))
                if received > limit:
                    raise _TooLarge
            return message

        async def noted(message: object) -> None:
            nonlocal answered
            answered = True
            await send(message)  # type: ignore[arg-type]

        try:
            await self._app(scope, counted, noted)  # type: ignore[arg-type]
        except _TooLarge:
            if not answered:
                await _refuse(scope, send, limit)


async def _refuse(scope: ASGIScope, send: Send, limit: int) -> None:
    body = json.dumps(
        {
            "error": {
                "code": "payload_too_large",
                "message": f"The body is over {limit:,} bytes.",
                "correlation_id": scope.get(KEY, ""),
            }
        }
    ).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"connection", b"close"),
    ]
    await send({"type": "http.response.start", "status": 413, "headers": headers})
    await send({"type": "http.response.body", "body": body})
