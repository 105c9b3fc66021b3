"""What an engine works with: handed in by its scope, so that nothing in here reaches for a global."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Protocol
from uuid import UUID

from runs.drivers.base import SandboxPool
from runs.engine.checkpoint import CheckpointKeys
from runs.store.transition import Connection
from runs.tools.base import CallContext, CallOutcome, ToolSpec
from runs.tools.catalog import Catalog, SourceEntry


class Invoker(Protocol):
    """Sends one call to wherever its source is. Never raises for what the other side does."""

    async def invoke(
        self, source: SourceEntry, spec: ToolSpec, arguments: dict[str, Any], owner_id: int, context: CallContext
    ) -> CallOutcome: ...


@dataclass(slots=True)
class EngineContext:
    conn: Connection
    """The scope's own connection: nobody else's statements run on it. Replaced by `renew` when it is lost."""
    sandboxes: SandboxPool
    invoker: Invoker
    catalog: Catalog
    checkpoints: CheckpointKeys
    process_id: UUID
    base_url: str
    pause_expires_s: float
    notify: Callable[[UUID], None]
    """Tell whoever waits for this run that something was committed. Cheap; never raises."""
    hand_on: Callable[[UUID], None]
    """Tell the dispatcher that this run can go on elsewhere. Cheap; never raises."""
    renew: Callable[[], Awaitable[Connection]] | None = None
    """Give the lost connection back and take another one; None: a lost connection is an error."""


@dataclass(frozen=True, slots=True)
class RunIdentity:
    """Who a run is: given by the server, never by its code."""

    run_id: UUID
    epoch: int
    owner_id: int
    lineage: UUID
    timeout_s: float
    auto_approved_by: str | None = None
    """The operator who stands for every approval of this run (Run panel)."""
