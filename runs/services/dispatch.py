"""A worker's job: take one run, if it is still there to be taken, and drive it to its next stop.

The task carries only the run's id; the claim in the row decides. Redelivered, late and duplicate tasks find
nothing to do (notes/django.md, "django-q2").
"""

from uuid import UUID, uuid4

import structlog

from runs.domain import limits
from runs.domain.crashpoints import reach
from runs.domain.outcomes import Failed
from runs.engine.checkpoint import FORMAT
from runs.engine.execution import Execution
from runs.services.answers import first
from runs.services.recover import go_on
from runs.services.scope import ServiceScope
from runs.store.claim import run_claim, run_gate, run_refuse, run_resume
from runs.store.events import run_status
from runs.store.transition import Moved

log = structlog.get_logger(__name__)


async def run_dispatch(scope: ServiceScope, run_id: UUID) -> str:
    """Claim and drive a queued or suspended run. Returns what was done: `nothing`, or the state it stopped in."""
    conn = await scope.connection()
    status = await run_status(conn, run_id)
    if status is None:
        return "nothing"
    execution: Execution | None = None
    if status["state"] == "queued":
        execution = await _begin(scope, run_id)
    elif status["state"] == "suspended":
        claimed = await run_resume(conn, run_id=run_id, process=scope.process_id, format=FORMAT)
        if isinstance(claimed, Moved):
            execution = await go_on(scope, await scope.engine(), run_id)
    if execution is None:
        return "nothing"
    await first(execution.done, scope.draining)
    if not execution.done.done():
        return "handed on"  # this process stops: the scope's end interrupts the run and suspends it
    ended = await run_status(conn, run_id)
    return "nothing" if ended is None else str(ended["state"])


async def _begin(scope: ServiceScope, run_id: UUID) -> Execution | None:
    conn = await scope.connection()
    claimed = await run_claim(conn, run_id=run_id, process=scope.process_id)
    if not isinstance(claimed, Moved):
        return None
    reach("after_claim")
    if claimed.epoch > limits.ATTEMPTS_BEFORE_GATE:
        message = f"It was claimed {claimed.epoch - 1} times and never got to start."
        body = Failed(str(run_id), "attempts_exhausted", message, None, 0, 0, []).body()
        await run_refuse(
            conn, run_id=run_id, epoch=claimed.epoch, code="attempts_exhausted", outcome=uuid4(), body=body
        )
        scope.notify(run_id)
        return None
    engine = await scope.engine()
    if not isinstance(await run_gate(conn, run_id=run_id, epoch=claimed.epoch), Moved):
        log.info("gate_lost", run_id=str(run_id), epoch=claimed.epoch)
        return None
    reach("after_gate")
    scope.notify(run_id)
    return await go_on(scope, engine, run_id)
