"""The operator's decision on an unconfirmed run: by name, with a reason, whole or not at all."""

from dataclasses import dataclass
from typing import Any, Literal
from uuid import UUID, uuid4

from runs.domain import limits
from runs.domain.codes import Refusal
from runs.domain.outcomes import Completed, Failed
from runs.domain.principal import Principal
from runs.domain.states import RunState
from runs.services.answers import Body, running
from runs.services.scope import ServiceScope
from runs.store import resolve as store
from runs.store.submit import run_submit
from runs.store.transition import Connection, Moved, NewEvent

Decision = Literal["succeeded", "failed", "go_on", "run_again"]


@dataclass(frozen=True, slots=True)
class EffectWord:
    """What the operator found out about one unknown effect."""

    key: str
    happened: bool
    result: Any = None
    """What the call would have answered, where it happened and the run goes on."""


async def run_resolve(
    scope: ServiceScope,
    principal: Principal,
    *,
    run_id: UUID,
    decision: Decision,
    reason: str,
    effects: list[EffectWord],
    result: Any = None,
) -> Body:
    """Close an unconfirmed run, let it go on, or run its program again as a new, linked run.

    Answers the result union. Going on needs every unknown effect answered; one that did not happen is then sent
    once more, on this operator's word. Everything is one commit. Raises Refusal.
    """
    principal.require("operate")
    conn = await scope.connection()
    async with conn.transaction():
        run = await store.run_lock(conn, run_id)
        if run is None or not principal.sees(run["owner_id"]):
            raise Refusal("not_found", "There is no such run.")
        if run["state"] != RunState.UNCONFIRMED:
            raise Refusal("state_conflict", f"Only an unconfirmed run is resolved; this one is {run['state']}.")
        events = await _answer_effects(conn, principal, run_id, effects)
        said = {"by": principal.username, "reason": reason, "decision": decision}
        if decision == "run_again":
            body = await _run_again(scope, conn, principal, run, said)
        elif decision == "go_on":
            body = await _go_on(scope, conn, run_id, events, said)
        else:
            body = await _close(conn, run_id, decision, reason, result, events, said)
    scope.notify(run_id)
    if decision == "go_on":
        scope.hand_on(run_id)
    elif decision == "run_again":
        scope.hand_on(UUID(body["run_id"]))
    return body


async def _answer_effects(
    conn: Connection, principal: Principal, run_id: UUID, words: list[EffectWord]
) -> list[NewEvent]:
    unknown = await store.effects_unknown(conn, run_id)
    events = []
    for word in words:
        effect = unknown.get(word.key)
        if effect is None:
            raise Refusal("state_conflict", f"{word.key} is not an unknown effect of this run.")
        if not word.happened and not effect["is_over"]:
            wait = limits.SEND_WITHIN_S + limits.CALL_TIMEOUT_S
            raise Refusal(
                "state_conflict", f"Its request may still be under way; that can be said {wait:g} s after it."
            )
        await store.effect_answer(
            conn, run_id=run_id, key=word.key, happened=word.happened, result=word.result, by=principal.user_id
        )
        events.append(
            NewEvent(
                "effect_resolved",
                {"key": word.key, "tool": effect["tool"], "happened": word.happened, "by": principal.username},
            )
        )
    return events


async def _close(
    conn: Connection,
    run_id: UUID,
    decision: str,
    reason: str,
    result: Any,
    events: list[NewEvent],
    said: dict[str, Any],
) -> Body:
    unknown = len(await store.effects_unknown(conn, run_id))
    if decision == "succeeded":
        target, code = RunState.SUCCEEDED, None
        body = Completed(str(run_id), result, []).body()
    else:
        target, code = RunState.FAILED, "resolved_failed"
        settled = await store.effects_settled(conn, run_id)
        body = Failed(str(run_id), code, reason, None, settled, unknown, []).body()
    moved = await store.run_resolve(
        conn, run_id=run_id, target=target, code=code, outcome=uuid4(), body=body, events=events, data=said
    )
    if not isinstance(moved, Moved):
        raise Refusal("state_conflict")
    return body


async def _go_on(
    scope: ServiceScope, conn: Connection, run_id: UUID, events: list[NewEvent], said: dict[str, Any]
) -> Body:
    if not isinstance(await store.run_go_on(conn, run_id=run_id, events=events, data=said), Moved):
        unknown = sorted(await store.effects_unknown(conn, run_id))
        raise Refusal(
            "state_conflict", "It can go on only when every unknown effect is answered.", {"unknown": unknown}
        )
    return running(scope, run_id)


async def _run_again(
    scope: ServiceScope, conn: Connection, principal: Principal, run: dict[str, Any], said: dict[str, Any]
) -> Body:
    new_id = uuid4()
    await run_submit(
        conn,
        run_id=new_id,
        inline=False,
        process=scope.process_id,
        origin="background",
        owner=run["owner_id"],
        token=None,
        code=run["code"],
        inputs=run["inputs"],
        timeout_s=run["timeout_s"],
        follows=run["id"],
        data={"by": principal.username, "follows": str(run["id"]), "reason": said["reason"]},
    )
    await store.run_note(conn, run["id"], NewEvent("run_again", {**said, "run": str(new_id)}))
    return running(scope, new_id)
