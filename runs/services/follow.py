"""Following a run: its events after a point, and whether there will be more. No connection is held in between."""

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from runs.domain.codes import Refusal
from runs.domain.principal import Principal
from runs.domain.states import TERMINAL
from runs.services.scope import ServiceScope
from runs.store.events import events_after, run_status

_TERMINAL = {state.value for state in TERMINAL}


@dataclass(frozen=True, slots=True)
class Page:
    events: list[dict[str, Any]]
    is_over: bool
    """The run is final and these were its last events."""


async def run_seen(scope: ServiceScope, principal: Principal, run_id: UUID) -> None:
    """Raises Refusal not_found, also for another owner's run."""
    principal.require("run")
    status = await run_status(await scope.connection(), run_id)
    if status is None or not principal.sees(status["owner_id"]):
        raise Refusal("not_found", "There is no such run.")


async def events_page(scope: ServiceScope, run_id: UUID, after: int) -> Page:
    """The next events after `after`, at most limits.SSE_QUEUE. Gives the scope's connection back."""
    conn = await scope.connection()
    events = await events_after(conn, run_id, after)
    # Read after the events: a run that is final by then has no event beyond those of the next round.
    status = None if events else await run_status(conn, run_id)
    await scope.release()
    is_over = not events and (status is None or (status["state"] in _TERMINAL and status["event_seq"] <= after))
    return Page(events, is_over)


async def events_all(scope: ServiceScope, run_id: UUID, after: int) -> list[dict[str, Any]]:
    """Every event after `after` that there is now."""
    found: list[dict[str, Any]] = []
    while page := (await events_page(scope, run_id, after)).events:
        found += page
        after = page[-1]["seq"]
    return found
