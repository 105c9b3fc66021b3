"""What scopes really do, seen from outside: on which backend, for whom, and when each statement was sent.

The pool hands out connections that note every statement together with the request it was sent for (a context
variable that tasks inherit), and the pool notes who took and who gave back. `strays` judges the notes.
"""

import asyncio
import contextvars
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from psycopg import AsyncConnection

from executor_site.scope import KEY, Scope, ScopeMiddleware
from tests.support.engine import Site, bounded

CURRENT: contextvars.ContextVar[str] = contextvars.ContextVar("request", default="nobody")


@dataclass
class Notes:
    lines: list[tuple[str, int, str]] = field(default_factory=list)
    """(what, backend pid, for which request): "taken", "sent" or "given"."""

    def strays(self) -> list[str]:
        """Statements on a connection that its request did not hold just then."""
        found, holder = [], {}
        for what, pid, who in self.lines:
            if what == "taken":
                holder[pid] = who
            elif what == "given":
                holder.pop(pid, None)
            elif holder.get(pid) != who:
                found.append(f"{who} on backend {pid}, held by {holder.get(pid, 'nobody')}")
        return found

    def backends(self, who: str) -> list[int]:
        """The backends that a request's statements ran on, in order of first use."""
        return list(dict.fromkeys(pid for what, pid, name in self.lines if what == "sent" and name == who))


def watch(site: Site) -> Notes:
    """Before the site is opened: have its pool make connections that tell."""
    notes = Notes()

    class Watched(AsyncConnection[Any]):
        async def execute(self, *args: Any, **more: Any) -> Any:
            notes.lines.append(("sent", self.info.backend_pid, CURRENT.get()))
            return await super().execute(*args, **more)

    site.pool.connection_class = Watched
    taking, giving = site.pool.getconn, site.pool.putconn

    async def getconn(timeout: float | None = None) -> Any:
        conn = await taking(timeout)
        notes.lines.append(("taken", conn.info.backend_pid, CURRENT.get()))
        return conn

    async def putconn(conn: Any) -> None:
        notes.lines.append(("given", conn.info.backend_pid, CURRENT.get()))
        await giving(conn)

    site.pool.getconn, site.pool.putconn = getconn, putconn  # type: ignore[method-assign]
    return notes


@asynccontextmanager
async def watched_site() -> AsyncIterator[tuple[Site, Notes]]:
    site = Site()
    notes = watch(site)
    await site.open()
    notes.lines.clear()
    try:
        yield site, notes
    finally:
        await site.close()


Work = Callable[[Scope], Awaitable[None]]


async def request(site: Site, name: str, work: Work) -> None:
    """One HTTP request through the middleware that makes scopes; `work` is the view."""

    async def app(scope: Any, _receive: Any, send: Any) -> None:
        await work(scope[KEY])
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def ignored(_message: Any = None) -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    CURRENT.set(name)
    await bounded(ScopeMiddleware(app, lambda: site)({"type": "http", "headers": []}, ignored, ignored))


def start(site: Site, name: str, work: Work) -> "asyncio.Task[None]":
    return asyncio.create_task(request(site, name, work), name=f"request {name}")
