"""What a service works in: one request's or one job's own connection and engine, and the process around them."""

import asyncio
from contextlib import AbstractAsyncContextManager
from typing import Protocol
from uuid import UUID

from runs.engine.engine import ExecutionEngine
from runs.store.transition import Connection


class ServiceScope(Protocol):
    process_id: UUID
    base_url: str
    draining: asyncio.Event
    """Set when this process is to stop: long waits end early, work is handed on."""

    known_catalog_version: int | None
    """Set by whoever read it along with something else, to save a query."""

    async def connection(self) -> Connection:
        """The scope's own, taken at first use."""

    async def engine(self) -> ExecutionEngine:
        """The scope's own, built at first use over its connection."""

    async def release(self) -> None:
        """Give the connection back, if no engine works on it; the next use takes one again."""

    def notify(self, run_id: UUID) -> None: ...

    def hand_on(self, run_id: UUID) -> None: ...

    async def cancel_here(self, run_id: UUID) -> bool:
        """Stop the run if this very process works on it; its sandbox is gone on return."""

    def waiting(self, run_id: UUID) -> AbstractAsyncContextManager[asyncio.Event]: ...

    def take_inline_place(self) -> None:
        """Count one inline execution until the scope ends. Raises Refusal `overloaded`."""
