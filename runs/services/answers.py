"""Waiting for a run's or a decision's answer, whoever computes it: this process, another one, or one yet to start."""

import asyncio
import contextlib
import time
from typing import Any
from uuid import UUID

from runs.domain import limits
from runs.domain.codes import Refusal
from runs.domain.outcomes import Running
from runs.domain.states import TERMINAL, RunState
from runs.engine.execution import Execution
from runs.services.scope import ServiceScope
from runs.store.events import outcome_read, run_status
from runs.store.pauses import pause_find

Body = dict[str, Any]

_STOPPED = {state.value for state in TERMINAL} | {RunState.PAUSED.value}


def running(scope: ServiceScope, run_id: UUID) -> Body:
    return Running(str(run_id), f"{scope.base_url}/api/v1/runs/{run_id}/events").body()


async def execution_answer(scope: ServiceScope, execution: Execution, wait_s: float) -> Body:
    """The stored answer of an execution of ours, or of whoever goes on with it; `running` after `wait_s`."""
    deadline = time.monotonic() + wait_s
    body = await execution_stop(scope, execution, wait_s)
    if body is not None:
        return body
    if not execution.done.done():
        return running(scope, execution.identity.run_id)
    return await run_answer(scope, execution.identity.run_id, deadline - time.monotonic())


async def execution_stop(scope: ServiceScope, execution: Execution, wait_s: float) -> Body | None:
    """The answer of an execution's next stop. None: it still works after `wait_s`, or it goes on elsewhere.

    One that broke here was logged; the reaper judges its run, and its answer is waited for like any other.
    """
    await first(execution.done, scope.draining, wait_s)
    if not execution.done.done() or execution.done.exception() is not None:
        return None
    return execution.done.result()


async def run_answer(scope: ServiceScope, run_id: UUID, wait_s: float) -> Body:
    """The answer of the run's last stop, waited for while it works; `running` after `wait_s` seconds."""
    deadline = time.monotonic() + wait_s
    async with scope.waiting(run_id) as changed:
        while True:
            changed.clear()
            status = await run_status(await scope.connection(), run_id)
            if status is None:
                raise Refusal("not_found", "There is no such run.")
            if status["state"] in _STOPPED and status["outcome_id"] is not None:
                return _body_of(status)
            if not await _changed(scope, changed, deadline):
                return running(scope, run_id)


async def decision_answer(scope: ServiceScope, pause_id: UUID, run_id: UUID, wait_s: float) -> Body:
    """The run's next stop after a decision, also where another process computes it."""
    deadline = time.monotonic() + wait_s
    async with scope.waiting(run_id) as changed:
        while True:
            changed.clear()
            conn = await scope.connection()
            pause = await pause_find(conn, pause_id)
            if pause is None:
                raise Refusal("not_found", "There is no such execution.")
            # A run that ended while this decision was on its way answers with its end.
            ended = pause["run_state"] in _STOPPED - {RunState.PAUSED.value}
            outcome_id = pause["outcome_id"] or (pause["run_outcome_id"] if ended else None)
            if outcome_id is not None:
                outcome = await outcome_read(conn, outcome_id)
                if outcome is not None:
                    return _body_of(outcome)
            if pause["purged_at"] is not None:
                raise Refusal("already_settled")
            if not await _changed(scope, changed, deadline):
                return running(scope, run_id)


def _body_of(row: dict[str, Any]) -> Body:
    if row["body"] is None:
        raise Refusal("already_settled", detail={"status": row["status"]})
    return dict(row["body"])


async def _changed(scope: ServiceScope, changed: asyncio.Event, deadline: float) -> bool:
    """Wait for a wake-up or the catch-up poll. False: the time is over, or this process is to stop."""
    left = deadline - time.monotonic()
    if left <= 0 or scope.draining.is_set():
        return False
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(changed.wait(), min(left, limits.CATCH_UP_S))
    return True


async def first(done: asyncio.Future[Any], draining: asyncio.Event, wait_s: float | None = None) -> None:
    """Until the execution is done, the time is over, or this process drains. The execution is never cancelled."""
    drained = asyncio.ensure_future(draining.wait())
    timeout = None if wait_s is None else max(0.0, wait_s)
    try:
        await asyncio.wait({done, drained}, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
    finally:
        drained.cancel()
