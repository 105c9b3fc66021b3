"""Deciding a pause and going on: once, by an identified person; the same decision again gets the same outcome."""

import json
import time
from typing import Any
from uuid import UUID

from runs.domain import limits
from runs.domain.codes import Refusal
from runs.domain.crashpoints import reach
from runs.domain.principal import Principal
from runs.engine.checkpoint import FORMAT
from runs.services.answers import Body, decision_answer, execution_stop
from runs.services.recover import go_on
from runs.services.scope import ServiceScope
from runs.store.claim import run_resume
from runs.store.events import outcome_read
from runs.store.pauses import pause_decide, pause_find, pause_lock
from runs.store.transition import Moved
from runs.tools.validators import SchemaUnusable, errors_of

_PREFIX = "exec_"


def pause_id_of(execution_id: str) -> UUID:
    """Raises Refusal not_found for whatever is not one of our ids."""
    try:
        if not execution_id.startswith(_PREFIX):
            raise ValueError(execution_id)
        return UUID(execution_id.removeprefix(_PREFIX))
    except ValueError:
        raise _unknown() from None


def _unknown() -> Refusal:
    return Refusal("not_found", "There is no such execution.")


async def pause_read(scope: ServiceScope, principal: Principal, execution_id: str) -> dict[str, Any]:
    """The pause, if the principal may see its run."""
    pause = await pause_find(await scope.connection(), pause_id_of(execution_id))
    if pause is None or not principal.sees(pause["owner_id"]):
        raise _unknown()
    return pause


async def pause_outcome(scope: ServiceScope, pause: dict[str, Any]) -> Any:
    """What came of a decided pause: the stored answer, or only its kind once retention removed it."""
    if pause["outcome_id"] is None:
        return None
    row = await outcome_read(await scope.connection(), pause["outcome_id"])
    return None if row is None else row["body"] or {"status": row["status"], "code": "already_settled"}


async def pause_resume(
    scope: ServiceScope,
    principal: Principal,
    *,
    execution_id: str,
    action: str,
    content: Any = None,
    reason: str | None = None,
    wait_s: float,
    via: str,
    go_on_here: bool = True,
) -> Body:
    """Decide and go on. The decision, and this process's claim of the run, are one commit.

    `go_on_here=False` leaves the going on to the workers and answers after the decision is stored.
    """
    pause_id = pause_id_of(execution_id)
    conn, engine = await scope.connection(), await scope.engine()
    resumed = False
    async with conn.transaction():
        pause = await pause_lock(conn, pause_id)
        if pause is None or not principal.sees(pause["owner_id"]):
            raise _unknown()
        principal.require_decision(pause["approver"])
        is_new = _check(pause, action, content)
        if is_new:
            decided = await pause_decide(
                conn,
                pause=pause,
                decision=action,
                content=content,
                reason=reason,
                by=principal.user_id,
                by_name=principal.username,
                via=via,
                token=principal.token_id,
            )
            if isinstance(decided, Moved) and go_on_here:
                claimed = await run_resume(conn, run_id=pause["run_id"], process=scope.process_id, format=FORMAT)
                resumed = isinstance(claimed, Moved)
    run_id = pause["run_id"]
    if is_new:
        scope.notify(run_id)
        reach("after_decide")
    if resumed:
        execution = await go_on(scope, engine, run_id)
        if execution is not None:
            deadline = time.monotonic() + wait_s
            body = await execution_stop(scope, execution, wait_s)
            if body is not None:
                return body
            wait_s = deadline - time.monotonic()
    elif is_new:
        scope.hand_on(run_id)
    return await decision_answer(scope, pause_id, run_id, wait_s)


def _check(pause: dict[str, Any], action: str, content: Any) -> bool:
    """True for a decision to be stored; False for the same one again. Raises Refusal for everything else."""
    decision = pause["decision"]
    if decision is None:
        if pause["purged_at"] is not None:
            raise Refusal("already_settled")
        if pause["is_past"]:
            raise Refusal("pause_expired")
        if action == "accept":
            check_content(pause, content)
        return True
    if decision == "expired":
        raise Refusal("pause_expired")
    if decision == "withdrawn":
        return False
    if decision != action or (action == "accept" and pause["kind"] == "form" and pause["content"] != content):
        raise Refusal(
            "decided_differently",
            f"This was decided before: {decision}, by {pause['decided_by']}.",
            {"decision": decision, "decided_by": pause["decided_by"], "decided_at": pause["decided_at"].isoformat()},
        )
    return False


def check_content(pause: dict[str, Any], content: Any) -> None:
    """An accepted form's content fits its schema; the other kinds take none that means anything."""
    if content is not None and len(json.dumps(content)) > limits.CONTENT_BYTES:
        raise Refusal("content_invalid", f"The content is over {limits.CONTENT_BYTES:,} bytes; the pause stays open.")
    if pause["kind"] != "form":
        return
    try:
        errors = errors_of(pause["requested_schema"], content)
    except SchemaUnusable as error:
        raise Refusal("content_invalid", f"No answer fits the requested schema: {error}. It can be declined.") from None
    if errors:
        raise Refusal(
            "content_invalid",
            "The content does not fit the requested schema; the pause stays open.",
            [{"path": error.json_path, "message": error.message[:300]} for error in errors],
        )
