"""Asking a run to stop. It is cancelled only when nothing works on it any more; until then it is stopping."""

from typing import Any
from uuid import UUID, uuid4

from runs.domain.codes import Refusal
from runs.domain.outcomes import Cancelled
from runs.domain.principal import Principal
from runs.domain.states import HELD, TERMINAL
from runs.services.answers import run_answer
from runs.services.scope import ServiceScope
from runs.store.events import cancel_ask, run_status
from runs.store.stops import run_cancel

_HELD = {state.value for state in HELD}
_SETTLING_S = 1.0
"""How long the answer waits for a run of this very process to be cancelled: it has only to be written."""
_FINAL = {state.value for state in TERMINAL}


async def run_stop(scope: ServiceScope, principal: Principal, run_id: UUID) -> dict[str, Any]:
    """Record the wish, and cancel at once where nothing works on the run.

    Answers `{run_id, state, stopping}`: a held run stops when its holder has interrupted it and its calls are
    settled. Repeatable; a final run answers as it is.
    """
    principal.require("run")
    conn = await scope.connection()
    status = await run_status(conn, run_id)
    if status is None or not principal.sees(status["owner_id"]):
        raise Refusal("not_found", "There is no such run.")
    if status["state"] not in _FINAL:
        await cancel_ask(conn, run_id=run_id, by=principal.user_id, by_name=principal.username)
        if status["state"] != "running":
            await run_cancel(
                conn,
                run_id=run_id,
                outcome=uuid4(),
                body=Cancelled(str(run_id)).body(),
                data={"by": principal.username},
            )
        elif await scope.cancel_here(run_id):
            await run_answer(scope, run_id, _SETTLING_S)
        scope.notify(run_id)
        status = await run_status(conn, run_id)
    if status is None:
        raise Refusal("not_found", "There is no such run.")
    return {
        "run_id": str(run_id),
        "state": status["state"],
        "stopping": status["state"] in _HELD and status["cancel_requested_at"] is not None,
    }
