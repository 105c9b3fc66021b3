"""The scope of one request or job: its own connection, its own engine, both ended when it ends.

An ASGI middleware around the router makes one for every HTTP request, so Ninja views and Channels consumers
share the seam. Nothing is taken before it is used; the engine is shut down, and awaited, before the connection
goes back (spec/design.md, section 5).
"""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import AbstractAsyncContextManager
from typing import Any
from uuid import UUID

import structlog
from django.conf import settings

from executor_site.resources import Resources
from runs.domain.codes import Refusal
from runs.engine.context import EngineContext
from runs.engine.engine import ExecutionEngine, RunEngine
from runs.services.invoker import SourceInvoker
from runs.store.access import catalog_version
from runs.store.transition import Connection
from runs.tools.catalog import Catalog

log = structlog.get_logger(__name__)

KEY = "executor.scope"
"""Where the request's scope is in the ASGI scope."""

_DRAIN_SHARE = 0.6
"""Of the site's drain: what calls in flight get to be answered, before the server itself is ended."""

ASGIScope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
ASGIApp = Callable[[ASGIScope, Receive, Send], Awaitable[None]]


class Scope:
    """Satisfies `runs.services.scope.ServiceScope`."""

    def __init__(self, resources: Resources) -> None:
        self._resources = resources
        self.process_id = resources.process_id
        self.base_url = resources.base_url
        self.draining = resources.draining
        self._conn: Connection | None = None
        self._engine: ExecutionEngine | None = None
        self._building = asyncio.Lock()
        self._places = 0
        self._ending = False
        self._closed = False
        self.known_catalog_version: int | None = None
        """Set by whoever read it along with something else, to save a query."""

    async def connection(self) -> Connection:
        """The scope's own connection; another one where the server dropped it."""
        if self._closed:
            raise RuntimeError("the scope has ended")
        async with self._building:
            if self._conn is not None and self._conn.closed:
                lost, self._conn = self._conn, None
                await self._resources.pool.putconn(lost)
            if self._conn is None:
                self._conn = await self._resources.pool.getconn()
            return self._conn

    async def catalog(self) -> Catalog:
        conn = await self.connection()
        if self.known_catalog_version is None:
            self.known_catalog_version = await catalog_version(conn)
        return await self._resources.catalog(conn, self.known_catalog_version)

    async def engine(self) -> ExecutionEngine:
        if self._ending:
            raise RuntimeError("the scope is ending: an engine built now would be shut down by nobody")
        if self._engine is None:
            conn, catalog = await self.connection(), await self.catalog()
            if self._engine is None:
                self._engine = RunEngine(self._context(conn, catalog), self._resources.active)
        return self._engine

    def _context(self, conn: Connection, catalog: Catalog) -> EngineContext:
        resources = self._resources
        return EngineContext(
            conn=conn,
            sandboxes=resources.sandboxes,
            invoker=resources.invoker,
            catalog=catalog,
            checkpoints=resources.checkpoints,
            process_id=resources.process_id,
            base_url=resources.base_url,
            pause_expires_s=settings.PAUSE_EXPIRES_S,
            notify=self.notify,
            hand_on=self.hand_on,
            renew=self.connection,
        )

    @property
    def invoker(self) -> SourceInvoker:
        """The process's guard and client, for documents that are fetched by address."""
        return self._resources.invoker

    def figures(self) -> dict[str, tuple[str, float]]:
        """What this process has in use, for /metrics: by name, what it is and how much."""
        resources, pool = self._resources, self._resources.pool.get_stats()
        return {
            "active_runs": ("Runs being worked on, each with a sandbox or waiting for a call.", len(resources.active)),
            "inline_used": ("Inline executions.", resources.inline_used),
            "inline_places": ("Inline executions there is room for.", resources.inline_places),
            "database_connections": ("Connections in the pool.", pool.get("pool_size", 0)),
            "database_connections_idle": ("Connections nobody uses.", pool.get("pool_available", 0)),
            "database_requests_waiting": ("Requests that wait for a connection.", pool.get("requests_waiting", 0)),
        }

    def notify(self, run_id: UUID) -> None:
        self._resources.hub.notify(run_id)

    def hand_on(self, run_id: UUID) -> None:
        self._resources.hand_on(run_id)

    async def cancel_here(self, run_id: UUID) -> bool:
        return await self._resources.active.cancel(run_id)

    def waiting(self, run_id: UUID) -> AbstractAsyncContextManager[asyncio.Event]:
        return self._resources.hub.waiting(run_id)

    def take_inline_place(self) -> None:
        if self._resources.draining.is_set():
            raise Refusal("unavailable", "This server is stopping.", retry_after_s=2)
        if self._resources.inline_used >= self._resources.inline_places:
            raise Refusal("overloaded", retry_after_s=1)
        self._resources.inline_used += 1
        self._places += 1

    async def release(self) -> None:
        """Give the connection back early: for a scope that from now on only waits, and has no engine."""
        async with self._building:
            if self._engine is None and self._conn is not None:
                conn, self._conn = self._conn, None
                await self._resources.pool.putconn(conn)

    async def close(self, *, within_s: float | None = None) -> None:
        """End the engine, wait for it, then give the connection back. Repeatable."""
        self._ending = True
        engine, self._engine = self._engine, None
        try:
            if engine is not None:
                await engine.shutdown(within_s=within_s)
        finally:
            self._closed = True
            self._resources.inline_used -= self._places
            self._places = 0
            conn, self._conn = self._conn, None
            if conn is not None:
                await self._resources.pool.putconn(conn)


class ScopeMiddleware:
    """Gives every HTTP request its own scope and closes it after the last byte, whatever became of the client."""

    def __init__(self, app: ASGIApp, resources: Callable[[], Resources]) -> None:
        self._app = app
        self._resources = resources

    async def __call__(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        own = Scope(self._resources())
        try:
            await self._app({**scope, KEY: own}, receive, send)
        finally:
            await _to_the_end(own.close(within_s=_drain_budget(own)))


def _drain_budget(scope: Scope) -> float | None:
    """How long calls in flight are awaited: their own time-out, or what a stopping process has left."""
    return settings.DRAIN_SECONDS * _DRAIN_SHARE if scope.draining.is_set() else None


async def _to_the_end(closing: Awaitable[None]) -> None:
    """Await a scope's end even if this task is cancelled meanwhile: its connection must not go before its engine."""
    task = asyncio.ensure_future(closing)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as error:
            cancelled = error
    failure = None if task.cancelled() else task.exception()
    if failure is not None:
        log.error("scope_close_failed", exc_info=failure)
    if cancelled is not None:
        raise cancelled


def of_request(request: Any) -> Scope:
    """The scope of a Django request."""
    own = request.scope[KEY]
    if not isinstance(own, Scope):
        raise TypeError("the request has no scope of ours")
    return own
