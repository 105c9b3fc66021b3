"""One correlation id a request: in every log line, every error answer and the X-Correlation-Id header."""

import re
from uuid import uuid4

import structlog

from executor_site.scope import ASGIApp, ASGIScope, Receive, Send

HEADER = b"x-correlation-id"
KEY = "executor.correlation_id"
_ACCEPTED = re.compile(rb"[A-Za-z0-9._-]{1,64}")


class Correlation:
    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        given = dict(scope["headers"]).get(HEADER, b"")
        correlation_id = given.decode() if _ACCEPTED.fullmatch(given) else uuid4().hex
        structlog.contextvars.clear_contextvars()
        structlog.contextvars.bind_contextvars(correlation_id=correlation_id)

        async def tell(message: object) -> None:
            if isinstance(message, dict) and message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), (HEADER, correlation_id.encode())]
            await send(message)  # type: ignore[arg-type]

        await self._app({**scope, KEY: correlation_id}, receive, tell)
