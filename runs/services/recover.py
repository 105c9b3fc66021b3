"""Reconciling runs whose holder is gone, and going on with those that can (spec/design.md, section 6).

Called before a process takes new work and on every sweep; running it twice, or in two processes, moves a run once.
"""

from typing import Any
from uuid import UUID, uuid4

import structlog

from runs.domain import limits
from runs.domain.crashpoints import reach
from runs.domain.effects import EffectClass, EffectState
from runs.domain.guards import EffectView, RunView, Verdict, outcome_unknown, verdict
from runs.domain.outcomes import Cancelled, Failed, Unconfirmed
from runs.domain.process import Liveness, ProcessIdentity
from runs.domain.states import RunKind, RunState
from runs.drivers.identity import host_name, liveness
from runs.engine.engine import CheckpointRefused, ExecutionEngine
from runs.engine.execution import Execution
from runs.engine.settle import operator_url
from runs.services.scope import ServiceScope
from runs.store import stops
from runs.store.claim import run_refuse, run_release
from runs.store.leases import runs_held_elsewhere
from runs.store.transition import Connection, Moved, Reaped, _Lost

log = structlog.get_logger(__name__)


async def runs_reap(scope: ServiceScope, conn: Connection) -> int:
    """Judge every held run whose holder is gone. Returns how many were moved; a run that fails is left and logged."""
    moved = 0
    for run in await runs_held_elsewhere(conn, own=scope.process_id, host=host_name()):
        gone = _holder_gone(run)
        if gone is None:
            continue
        try:
            if await _reap(scope, conn, run, gone):
                moved += 1
        except LookupError:
            log.exception("reap_failed", run_id=str(run["id"]))
    return moved


def _holder_gone(run: dict[str, Any]) -> Reaped | None:
    """An expired lease, or proof that the process is dead; a living process of this host keeps its lease."""
    identity = ProcessIdentity(run["host"], run["boot_id"], run["pid_namespace"], run["pid"], run["started_ticks"])
    proven = liveness(identity) is Liveness.DEAD
    return Reaped(proven_dead=proven) if proven or run["lease_expired"] else None


async def _reap(scope: ServiceScope, conn: Connection, run: dict[str, Any], gone: Reaped) -> bool:
    effects = [
        (effect, EffectView(EffectState(effect["state"]), EffectClass(effect["effect"]), effect["honours_key"]))
        for effect in run["open_effects"]
    ]
    view = RunView(RunState(run["state"]), run["epoch"], run["cancel_asked"], RunKind(run["kind"]))
    judged = verdict(
        view,
        tuple(seen for _, seen in effects),
        attempts=run["attempts"] if view.state is RunState.CLAIMED else run["crashes"],
        attempts_before_gate=limits.ATTEMPTS_BEFORE_GATE,
        attempts_after_crash=limits.ATTEMPTS_AFTER_CRASH,
    )
    reach("in_reap")
    unknown = [effect for effect, seen in effects if outcome_unknown(seen)]
    moved = await _apply(scope, conn, run, judged, unknown, gone)
    log.warning("run_reaped", run_id=str(run["id"]), verdict=judged.value, moved=isinstance(moved, Moved))
    if not isinstance(moved, Moved):
        return False
    scope.notify(run["id"])
    if judged in (Verdict.SUSPEND, Verdict.RELEASE):
        scope.hand_on(run["id"])
    return True


async def _apply(
    scope: ServiceScope,
    conn: Connection,
    run: dict[str, Any],
    judged: Verdict,
    unknown: list[dict[str, Any]],
    gone: Reaped,
) -> Moved | _Lost:
    run_id: UUID = run["id"]
    held = {"run_id": run_id, "epoch": run["epoch"], "reaped": gone}
    match judged:
        case Verdict.RELEASE:
            return await run_release(conn, **held, why="its worker is gone; nothing has started")
        case Verdict.REFUSE:
            body = Failed(str(run_id), "attempts_exhausted", "No worker could start it.", None, 0, 0, []).body()
            return await run_refuse(conn, **held, code="attempts_exhausted", outcome=uuid4(), body=body)
        case Verdict.CANCEL:
            body = Cancelled(str(run_id)).body()
            if run["state"] == RunState.CLAIMED:
                data = {"why": "asked to stop; its worker is gone"}
                return await stops.run_cancel(conn, run_id=run_id, outcome=uuid4(), body=body, data=data, reaped=gone)
            return await stops.run_cancel_confirmed(
                conn, **held, outcome=uuid4(), body=body, why="asked to stop; its host is gone"
            )
        case Verdict.SUSPEND:
            return await stops.run_suspend(conn, **held, why="its host is gone")
        case Verdict.GIVE_UP:
            message = f"The run lost its host {run['crashes']} times and is given up."
            body = Failed(str(run_id), "sandbox_crashed", message, None, run["settled"], 0, []).body()
            return await stops.run_finish(
                conn, **held, outcome=uuid4(), body=body, code="sandbox_crashed", events=[], reads=[]
            )
        case Verdict.DOUBT:
            return await _doubt(scope, conn, run, unknown or run["open_effects"], gone)


async def _doubt(
    scope: ServiceScope, conn: Connection, run: dict[str, Any], unknown: list[dict[str, Any]], gone: Reaped
) -> Moved | _Lost:
    code = "effect_unknown" if unknown else "sandbox_liveness_unconfirmed"
    tools = ", ".join(effect["tool"] for effect in unknown)
    message = f"The host was lost while {tools or 'the program'} was under way; it may or may not have happened."
    body = Unconfirmed(
        str(run["id"]),
        code,
        message,
        [{"key": effect["key"], "tool": effect["tool"], "state": "unknown"} for effect in unknown],
        operator_url(scope.base_url, run["id"]),
    ).body()
    return await stops.run_doubt(
        conn, run_id=run["id"], epoch=run["epoch"], code=code, outcome=uuid4(), body=body, why=message, reaped=gone
    )


async def go_on(scope: ServiceScope, engine: ExecutionEngine, run_id: UUID) -> Execution | None:
    """Go on with a run that was just claimed here. None: its checkpoint failed its check, and the run with it."""
    try:
        return await engine.go_on(run_id)
    except CheckpointRefused as refused:
        log.exception("checkpoint_refused", run_id=str(run_id))
        settled = sum(1 for effect in refused.loaded.effects.values() if effect["state"] == "settled")
        message = "The stored checkpoint failed its check; nothing of it was run."
        body = Failed(str(run_id), "checkpoint_invalid", message, None, settled, 0, []).body()
        await stops.run_finish(
            await scope.connection(),
            run_id=run_id,
            epoch=refused.epoch,
            outcome=uuid4(),
            body=body,
            code="checkpoint_invalid",
            events=[],
            reads=[],
        )
        scope.notify(run_id)
        return None
