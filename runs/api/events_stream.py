"""GET /runs/{id}/events: a run's events over SSE, replayed after Last-Event-ID and followed live (Channels).

Holds no database connection while it waits, sends a comment every limits.SSE_HEARTBEAT_S, and ends by itself
after the final event, or when this process drains (the client reconnects with its Last-Event-ID).
"""

import asyncio
import json
from http.cookies import SimpleCookie
from typing import Any
from uuid import UUID

from channels.generic.http import AsyncHttpConsumer
from django.conf import settings

from executor_site.correlation import KEY as CORRELATION
from executor_site.orm import orm_read
from executor_site.scope import KEY, Scope
from runs.api.auth import rate_limited, session_principal
from runs.api.render import event_row, last_event_id
from runs.domain import limits
from runs.domain.codes import Refusal
from runs.domain.principal import Principal
from runs.services.authenticate import principal_of_header
from runs.services.follow import events_page, run_seen

_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
]
_open_streams = 0


class RunEvents(AsyncHttpConsumer):
    async def handle(self, body: bytes) -> None:
        self._own: Scope = self.scope[KEY]
        try:
            if self.scope["method"] not in ("GET", "HEAD"):
                raise Refusal("method_not_allowed")
            await self._serve()
        except Refusal as refusal:
            await self._refuse(refusal)

    async def _serve(self) -> None:
        principal = await self._principal()
        await rate_limited(principal)
        run_id = self._run_id()
        await run_seen(self._own, principal, run_id)
        after = self._last_event_id()
        await self._stream(run_id, after)

    async def _stream(self, run_id: UUID, after: int) -> None:
        global _open_streams
        if _open_streams >= limits.SSE_STREAMS_PER_PROCESS:
            raise Refusal("overloaded", "Too many open streams in this process.", retry_after_s=5)
        _open_streams += 1
        try:
            await self.send_headers(status=200, headers=_HEADERS)
            await self.send_body(b": open\n\n", more_body=True)
            await self._follow(run_id, after)
            await self.send_body(b"")
        finally:
            _open_streams -= 1

    async def _follow(self, run_id: UUID, after: int) -> None:
        loop = asyncio.get_running_loop()
        sent_at = loop.time()
        async with self._own.waiting(run_id) as changed:
            while not self._own.draining.is_set():
                changed.clear()
                page = await events_page(self._own, run_id, after)
                if page.events:
                    after = page.events[-1]["seq"]
                    await self.send_body(b"".join(_frame(event) for event in page.events), more_body=True)
                    sent_at = loop.time()
                    continue
                if page.is_over:
                    return
                if loop.time() - sent_at >= limits.SSE_HEARTBEAT_S:
                    await self.send_body(b": still here\n\n", more_body=True)
                    sent_at = loop.time()
                await self._wait(changed)

    async def _wait(self, changed: asyncio.Event) -> None:
        waits = [asyncio.ensure_future(changed.wait()), asyncio.ensure_future(self._own.draining.wait())]
        try:
            await asyncio.wait(waits, timeout=limits.CATCH_UP_S, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    async def _principal(self) -> Principal:
        header = self._header(b"authorization")
        if header:
            return await principal_of_header(self._own, header)
        morsel = SimpleCookie(self._header(b"cookie")).get(settings.SESSION_COOKIE_NAME)
        principal = await orm_read(session_principal, None if morsel is None else morsel.value)
        if principal is None:
            raise Refusal("unauthorized", "Send Authorization: Bearer <token>, or log in to the admin.")
        return principal

    def _run_id(self) -> UUID:
        try:
            return UUID(self.scope["url_route"]["kwargs"]["run_id"])
        except ValueError:
            raise Refusal("not_found", "There is no such run.") from None

    def _last_event_id(self) -> int:
        return last_event_id(self._header(b"last-event-id"))

    def _header(self, name: bytes) -> str:
        return next((value.decode("latin-1") for key, value in self.scope["headers"] if key == name), "")

    async def _refuse(self, refusal: Refusal) -> None:
        error: dict[str, Any] = {
            "code": refusal.code.name,
            "message": refusal.message,
            "correlation_id": self.scope.get(CORRELATION, ""),
        }
        headers = [(b"content-type", b"application/json")]
        if refusal.code.http == 401:
            headers.append((b"www-authenticate", b"Bearer"))
        if refusal.retry_after_s is not None:
            headers.append((b"retry-after", str(refusal.retry_after_s).encode()))
        await self.send_response(refusal.code.http, json.dumps({"error": error}).encode(), headers=headers)


def _frame(event: dict[str, Any]) -> bytes:
    row = event_row(event)
    return f"id: {row['seq']}\nevent: {row['kind']}\ndata: {json.dumps(row)}\n\n".encode()
