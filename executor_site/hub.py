"""One LISTEN connection per process, and everybody here who waits for a run (notes/django.md, "Wake-ups").

A wake-up says only "look again": the reader queries. A lost one costs at most limits.CATCH_UP_S.
"""

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from uuid import UUID

import psycopg
import structlog

from runs.domain import limits
from runs.store.events import CHANNEL, runs_notify
from runs.store.transition import Connection

log = structlog.get_logger(__name__)

_RECONNECT_S = 0.5
_PENDING = 10_000
"""Wake-ups waiting to be sent; more are dropped, and their readers catch up by query."""


class Hub:
    def __init__(self, database_url: str, *, on_lost: Callable[[], Awaitable[None]] | None = None) -> None:
        """`on_lost` is awaited when the database dropped our connection: the pool's are probably gone as well."""
        self._url = database_url
        self._on_lost = on_lost
        self._waiters: dict[UUID, set[asyncio.Event]] = defaultdict(set)
        self._outgoing: asyncio.Queue[UUID] = asyncio.Queue(_PENDING)
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        self._tasks = [
            asyncio.create_task(self._forever(self._listen), name="hub listen"),
            asyncio.create_task(self._forever(self._send), name="hub send"),
        ]

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.wake_all()

    def notify(self, run_id: UUID) -> None:
        """Wake the waiters of every process soon. Cheap; never raises."""
        self._wake(run_id)
        with contextlib.suppress(asyncio.QueueFull):
            self._outgoing.put_nowait(run_id)

    def wake_all(self) -> None:
        for run_id in list(self._waiters):
            self._wake(run_id)

    def _wake(self, run_id: UUID) -> None:
        for event in self._waiters.get(run_id, ()):
            event.set()

    @contextlib.asynccontextmanager
    async def waiting(self, run_id: UUID) -> AsyncIterator[asyncio.Event]:
        """An event that is set whenever something of this run was committed; clear it before looking."""
        event = asyncio.Event()
        self._waiters[run_id].add(event)
        try:
            yield event
        finally:
            self._waiters[run_id].discard(event)
            if not self._waiters[run_id]:
                del self._waiters[run_id]

    async def _forever(self, duty: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                await duty()
            except psycopg.Error as error:
                log.warning("hub_reconnects", error=type(error).__name__)
                await asyncio.sleep(_RECONNECT_S)
                if self._on_lost is not None:
                    await self._on_lost()
                self.wake_all()

    async def _connect(self) -> Connection:
        return await psycopg.AsyncConnection.connect(
            self._url, autocommit=True, row_factory=psycopg.rows.dict_row, application_name="executor hub"
        )

    async def _listen(self) -> None:
        async with await self._connect() as conn:
            await conn.execute(f"LISTEN {CHANNEL}")
            async for notice in conn.notifies():
                with contextlib.suppress(ValueError):
                    self._wake(UUID(notice.payload))

    async def _send(self) -> None:
        async with await self._connect() as conn:
            while True:
                batch = {await self._outgoing.get()}
                while not self._outgoing.empty() and len(batch) < limits.SWEEP_BATCH:
                    batch.add(self._outgoing.get_nowait())
                await runs_notify(conn, list(batch))


async def wait_for(event: asyncio.Event, timeout: float) -> None:
    """Until the event is set, or `timeout` seconds."""
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(event.wait(), timeout)
