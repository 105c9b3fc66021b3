"""The birth of a run: one row, one event, one commit. A repeated idempotency key gets the first run."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from psycopg.types.json import Jsonb

from runs.domain import limits
from runs.domain.states import RunState
from runs.store.transition import Connection

_SUBMIT = f"""
WITH moved AS (
    INSERT INTO runs_run (id, kind, state, origin, owner_id, token_id, lineage, follows_id, code, inputs, timeout_s,
        auto_approve_by_id, idempotency_key, request_digest, epoch, process_id, lease_expires_at,
        command_started_at, event_seq, decisions)
    SELECT %(id)s, 'code', %(state)s, %(origin)s, %(owner)s, %(token)s, %(lineage)s, %(follows)s, %(code)s,
        %(inputs)s, %(timeout_s)s, %(auto_approve_by)s, %(key)s, %(digest)s,
        CASE WHEN %(inline)s THEN 1 ELSE 0 END,
        CASE WHEN %(inline)s THEN %(process)s::uuid END,
        CASE WHEN %(inline)s THEN now() + interval '{limits.LEASE_S} s' END,
        CASE WHEN %(inline)s THEN now() END, 1, 0
    ON CONFLICT (owner_id, idempotency_key) WHERE idempotency_key IS NOT NULL DO NOTHING
    RETURNING id, state, epoch
), happened AS (
    INSERT INTO runs_event (run_id, seq, kind, data) SELECT id, 1, 'submit', %(data)s FROM moved
), attempt_begun AS (
    INSERT INTO runs_attempt (run_id, epoch, process_id) SELECT id, epoch, %(process)s::uuid FROM moved WHERE %(inline)s
)
SELECT id FROM moved"""

_FIRST = "SELECT id, request_digest FROM runs_run WHERE owner_id = %(owner)s AND idempotency_key = %(key)s"


@dataclass(frozen=True, slots=True)
class Submitted:
    run_id: UUID
    is_new: bool
    same_request: bool = True
    """False where the idempotency key named another request before: nothing was written."""


async def run_submit(
    conn: Connection,
    *,
    run_id: UUID,
    inline: bool,
    process: UUID,
    origin: str,
    owner: int,
    token: UUID | None,
    code: str,
    inputs: Mapping[str, Any],
    timeout_s: float,
    auto_approve_by: int | None = None,
    idempotency_key: str | None = None,
    digest: str | None = None,
    follows: UUID | None = None,
    lineage: UUID | None = None,
    data: Mapping[str, Any] | None = None,
) -> Submitted:
    """Store a code run as running (inline: this process holds it) or queued. Committed on return."""
    state = RunState.RUNNING if inline else RunState.QUEUED
    params = {
        "id": run_id,
        "state": state.value,
        "origin": origin,
        "owner": owner,
        "token": token,
        "lineage": lineage or run_id,
        "follows": follows,
        "code": code,
        "inputs": Jsonb(dict(inputs)),
        "timeout_s": timeout_s,
        "auto_approve_by": auto_approve_by,
        "key": idempotency_key,
        "digest": digest,
        "inline": inline,
        "process": process,
        "data": Jsonb({"state": state.value, **(data or {})}),
    }
    if await (await conn.execute(_SUBMIT, params)).fetchone():
        return Submitted(run_id, is_new=True)
    first = await (await conn.execute(_FIRST, params)).fetchone()
    if first is None:
        raise LookupError("an idempotency key conflicted with a run that is not there")
    return Submitted(first["id"], is_new=False, same_request=first["request_digest"] == digest)
