"""Taking a program: inline in the request's own engine, or queued for a worker. Stored before anything works."""

import hashlib
from typing import Any
from uuid import uuid4

from runs.domain.codes import Refusal
from runs.domain.crashpoints import reach
from runs.domain.effects import canonical_json
from runs.domain.principal import Principal
from runs.engine.context import RunIdentity
from runs.engine.engine import ProgramText
from runs.services.answers import Body, execution_answer, run_answer, running
from runs.services.scope import ServiceScope
from runs.store.submit import Submitted, run_submit


async def run_execute(
    scope: ServiceScope,
    principal: Principal,
    *,
    code: str,
    inputs: dict[str, Any],
    timeout_s: float,
    wait_s: float,
    idempotency_key: str | None = None,
    auto_approve: bool = False,
    origin: str = "inline",
) -> Body:
    """Run code in this request. The run is committed before it works; its outcome before it is answered.

    A repeated idempotency key with the same request answers with the first run; with another one: 409.
    """
    principal.require("run")
    if auto_approve:
        principal.require("operate")
        principal.require("approve")
    scope.take_inline_place()
    conn, engine = await scope.connection(), await scope.engine()
    run_id = uuid4()
    submitted = await run_submit(
        conn,
        run_id=run_id,
        inline=True,
        process=scope.process_id,
        origin=origin,
        owner=principal.user_id,
        token=principal.token_id,
        code=code,
        inputs=inputs,
        timeout_s=timeout_s,
        auto_approve_by=principal.user_id if auto_approve else None,
        idempotency_key=idempotency_key,
        digest=request_digest("executions", code, inputs, timeout_s) if idempotency_key else None,
        data={"by": principal.username, "origin": origin},
    )
    if not _is_new(submitted):
        return await run_answer(scope, submitted.run_id, wait_s)
    identity = RunIdentity(
        run_id, 1, principal.user_id, run_id, timeout_s, principal.username if auto_approve else None
    )
    begin = engine.execute if auto_approve else engine.execute_with_pause
    execution = await begin(identity, ProgramText(code, inputs))
    return await execution_answer(scope, execution, wait_s)


async def run_enqueue(
    scope: ServiceScope,
    principal: Principal,
    *,
    code: str,
    inputs: dict[str, Any],
    timeout_s: float,
    idempotency_key: str | None = None,
) -> Body:
    """Store a run for the workers and answer `running` at once. Its task is only a nudge: a sweep stands behind it."""
    principal.require("run")
    conn = await scope.connection()
    run_id = uuid4()
    submitted = await run_submit(
        conn,
        run_id=run_id,
        inline=False,
        process=scope.process_id,
        origin="background",
        owner=principal.user_id,
        token=principal.token_id,
        code=code,
        inputs=inputs,
        timeout_s=timeout_s,
        idempotency_key=idempotency_key,
        digest=request_digest("runs", code, inputs, timeout_s) if idempotency_key else None,
        data={"by": principal.username, "origin": "background"},
    )
    if not _is_new(submitted):
        return await run_answer(scope, submitted.run_id, 0)
    scope.notify(run_id)
    scope.hand_on(run_id)
    return running(scope, run_id)


def request_digest(endpoint: str, code: str, inputs: dict[str, Any], timeout_s: float) -> str:
    """What makes two requests the same: all that decides what the program does."""
    text = canonical_json({"endpoint": endpoint, "code": code, "inputs": inputs, "timeout_s": timeout_s})
    return hashlib.sha256(text.encode()).hexdigest()


def _is_new(submitted: Submitted) -> bool:
    """False for a repeat of the same request. Raises Refusal for a key that named another one."""
    if not submitted.same_request:
        raise Refusal("idempotency_conflict")
    if submitted.is_new:
        reach("after_submit")
    return submitted.is_new
