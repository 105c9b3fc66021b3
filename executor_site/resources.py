"""What one process has of everything: pool, hub, sandboxes, HTTP client, catalog; opened and closed as a whole.

A scope borrows from here and gives back. Belongs to one event loop of one process.
"""

import asyncio
import contextlib
import os
from concurrent.futures import ThreadPoolExecutor
from uuid import UUID, uuid4

import psycopg
import structlog
from django.conf import settings
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool

from runs.drivers.base import SandboxPool
from runs.drivers.identity import identity_of
from runs.drivers.monty import MontyPool
from runs.engine.active import ActiveRuns
from runs.engine.checkpoint import CheckpointKeys
from runs.selectors.catalog import catalog_load
from runs.services import tasks
from runs.services.invoker import SourceInvoker
from runs.store.leases import process_end, process_register
from runs.store.transition import Connection
from runs.tools.catalog import Catalog

from .hub import Hub

log = structlog.get_logger(__name__)

_POOL_KEPT = 4
"""Connections kept open: a first burst does not wait for each to be opened in turn."""
POOL_WAIT_S = 10.0
"""How long a request waits for a connection before it is told to come back."""


class Resources:
    """`role` is web or worker. `open` before use; `close` when no scope is left."""

    def __init__(self, *, role: str, pool_size: int | None = None, sandboxes: SandboxPool | None = None) -> None:
        self.role = role
        self.process_id: UUID = uuid4()
        self.identity = identity_of(os.getpid())
        self.base_url: str = settings.BASE_URL
        self.draining = asyncio.Event()
        self.active = ActiveRuns()
        self.hub = Hub(settings.DATABASE_URL, on_lost=self._drop_lost)
        self.checkpoints = CheckpointKeys(settings.CREDENTIAL_KEYS)
        self.sandboxes = sandboxes or MontyPool(
            directory=settings.VAR_DIR / "run", max_processes=settings.SANDBOX_PROCESSES
        )
        self.inline_places = settings.INLINE_PER_PROCESS
        self.inline_used = 0
        self.pool: AsyncConnectionPool[Connection] = AsyncConnectionPool(
            settings.DATABASE_URL,
            min_size=min(_POOL_KEPT, pool_size or settings.DATABASE_POOL),
            max_size=pool_size or settings.DATABASE_POOL,
            timeout=POOL_WAIT_S,
            open=False,
            kwargs={"autocommit": True, "row_factory": dict_row, "application_name": f"executor {role}"},
        )
        self.invoker = SourceInvoker(self.pool, settings.CREDENTIAL_KEYS)
        self._catalog: Catalog | None = None
        self._catalog_loading = asyncio.Lock()
        self._tasks_thread = ThreadPoolExecutor(1, thread_name_prefix="tasks")

    async def open(self) -> None:
        await self.pool.open(wait=True)
        async with self.pool.connection() as conn:
            await process_register(conn, process_id=self.process_id, role=self.role, identity=self.identity)
        self.hub.start()

    async def close(self) -> None:
        """Say goodbye, then give everything back. Whatever fails is logged, and the rest is still closed."""
        self.draining.set()
        with contextlib.suppress(psycopg.Error, TimeoutError):
            async with self.pool.connection(timeout=1.0) as conn:
                await process_end(conn, self.process_id)
        await self.hub.close()
        await self.invoker.close()
        await self.sandboxes.close()
        await self.pool.close()
        self._tasks_thread.shutdown(wait=True)

    async def _drop_lost(self) -> None:
        """After a restart of the database: drop the pool's dead connections now, not one failed request each."""
        await self.pool.check()

    async def catalog(self, conn: Connection, version: int) -> Catalog:
        """The catalog, at least as fresh as `version`; read once per change."""
        found = self._catalog
        if found is not None and found.version >= version:
            return found
        async with self._catalog_loading:
            if self._catalog is None or self._catalog.version < version:
                self._catalog = await catalog_load(conn, version)
            return self._catalog

    def hand_on(self, run_id: UUID) -> None:
        """Send the run's id to the workers, off this loop. A lost one is found by the sweep for waiting runs."""
        try:
            self._tasks_thread.submit(_sent, run_id)
        except RuntimeError:
            log.warning("task_not_sent", run_id=str(run_id), why="this process is closing; the sweep finds the run")


def _sent(run_id: UUID) -> None:
    try:
        tasks.send(run_id)
    except Exception:
        log.exception("task_not_sent", run_id=str(run_id))
