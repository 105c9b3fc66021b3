"""The web process's clockwork: renew leases, reap what nobody holds, nudge what waits. Bounded, never the last word.

Every duty is repeated by the workers' periodic tasks, and each is safe to run twice at once; the advisory lock
only saves work.
"""

import asyncio
import time
from uuid import UUID

import psycopg
import structlog
from django.conf import settings
from psycopg.rows import dict_row

from executor_site.resources import Resources
from executor_site.scope import Scope
from runs.domain import limits
from runs.engine.hold import now
from runs.services.recover import runs_reap
from runs.store.leases import leases_renew, runs_waiting
from runs.store.transition import Connection

log = structlog.get_logger(__name__)

_LOCK = 7_301_959
"""Advisory lock of the process that nudges for all; any constant that nobody else uses."""
_REAP_EVERY_S = 2.0
_WAITING_S = 2.0
"""A run that waits longer than this has lost its task, or no worker is free; another task does no harm."""
_NUDGE_AGAIN_S = 30.0
"""The same run is nudged this often at most, so that a stopped cluster does not find thousands of tasks."""


class Housekeeper:
    def __init__(self, resources: Resources, *, sweeps: bool = True) -> None:
        self._resources = resources
        self._sweeps = sweeps
        """False in a job: it renews its own leases and leaves the rest to the web process."""
        self._nudged: dict[UUID, float] = {}
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._forever(), name="housekeeping")

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _forever(self) -> None:
        while True:
            try:
                async with await psycopg.AsyncConnection.connect(
                    settings.DATABASE_URL,
                    autocommit=True,
                    row_factory=dict_row,
                    application_name="executor housekeeping",
                ) as conn:
                    await self._rounds(conn)
            except (psycopg.Error, OSError) as error:
                log.warning("housekeeping_reconnects", error=type(error).__name__)
                await asyncio.sleep(limits.HOUSEKEEPING_S)

    async def _rounds(self, conn: Connection) -> None:
        reaped_at = 0.0
        while True:
            await self._beat(conn)
            due = self._sweeps and time.monotonic() - reaped_at >= _REAP_EVERY_S
            if due:
                reaped_at = time.monotonic()
                # By every process: one that is frozen keeps its lock, and its own runs are the ones to be reaped.
                await runs_reap(Scope(self._resources), conn)
                if await self._leads(conn):
                    await self._nudge(conn)
            await asyncio.sleep(limits.HOUSEKEEPING_S)

    async def _leads(self, conn: Connection) -> bool:
        row = await (await conn.execute("SELECT pg_try_advisory_lock(%s) AS held", (_LOCK,))).fetchone()
        return row is not None and bool(row["held"])

    async def _beat(self, conn: Connection) -> None:
        active = self._resources.active
        asked = active.ids()
        if asked:
            asked_at = now()
            rows = await leases_renew(conn, self._resources.process_id, asked)
            await active.apply_beat([(row["id"], row["cancel_asked"]) for row in rows], asked, asked_at=asked_at)

    async def _nudge(self, conn: Connection) -> None:
        now = time.monotonic()
        self._nudged = {run_id: at for run_id, at in self._nudged.items() if now - at < _NUDGE_AGAIN_S}
        for row in await runs_waiting(conn, older_than_s=_WAITING_S):
            if row["id"] not in self._nudged:
                self._nudged[row["id"]] = now
                self._resources.hand_on(row["id"])
