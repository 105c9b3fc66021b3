"""An operator's word on an unconfirmed run: unknown effects answered, the run closed or sent on its way.

The caller opens the transaction: what the operator said is written whole or not at all.
"""

from typing import Any
from uuid import UUID

from psycopg.types.json import Jsonb

from runs.domain import limits
from runs.domain.states import RunEvent, RunState
from runs.store.transition import Connection, Moved, NewEvent, _Lost, move_sql, run_move

_LOCK = """
SELECT r.id, r.state, r.kind, r.epoch, r.owner_id, r.code, r.inputs, r.timeout_s, r.event_seq
FROM runs_run r WHERE r.id = %s FOR UPDATE"""

_UNKNOWN = f"""
SELECT key, tool, reserved_at < now() - interval '{limits.SEND_WITHIN_S + limits.CALL_TIMEOUT_S} s' AS is_over
FROM runs_effect WHERE run_id = %s AND state = 'unknown' FOR UPDATE"""

_ANSWER = """
UPDATE runs_effect SET state = %(state)s::text, answer = %(answer)s, ok = %(ok)s, resolved_by_id = %(by)s,
    settled_at = CASE WHEN %(state)s::text = 'settled' THEN now() END
WHERE key = %(key)s AND run_id = %(run)s AND state = 'unknown' RETURNING key"""

_OUTCOME = """,
settled AS (
    INSERT INTO runs_settledoutcome (id, run_id, seq, status, body)
    SELECT %(outcome)s, id, event_seq, %(status)s, %(body)s FROM moved
)"""
_RESOLVE = move_sql(
    RunEvent.RESOLVE,
    sets="error_code = %(code)s, outcome_id = %(outcome)s",
    ctes=_OUTCOME,
)
_GO_ON = move_sql(RunEvent.GO_ON, sets="error_code = NULL, finished_at = NULL, cancel_requested_at = NULL")


async def run_lock(conn: Connection, run_id: UUID) -> dict[str, Any] | None:
    return await (await conn.execute(_LOCK, (run_id,))).fetchone()


async def effects_unknown(conn: Connection, run_id: UUID) -> dict[str, dict[str, Any]]:
    """The run's unknown effects by key; `is_over`: no request of it can still be under way."""
    rows = await (await conn.execute(_UNKNOWN, (run_id,))).fetchall()
    return {row["key"]: row for row in rows}


_SETTLED_COUNT = """
SELECT count(*) AS n FROM runs_effect WHERE run_id = %s AND state = 'settled' AND effect <> 'read'
    AND coalesce((answer->>'sent')::bool, true)"""


async def effects_settled(conn: Connection, run_id: UUID) -> int:
    """Calls of the run that may have changed something and were answered."""
    row = await (await conn.execute(_SETTLED_COUNT, (run_id,))).fetchone()
    return 0 if row is None else int(row["n"])


async def effect_answer(conn: Connection, *, run_id: UUID, key: str, happened: bool, result: Any, by: int) -> None:
    """Settle an unknown effect with what an operator found out, or release it to be sent once more."""
    answer = {"kind": "succeeded", "value": result, "by_operator": True} if happened else None
    await conn.execute(
        _ANSWER,
        {
            "state": "settled" if happened else "released",
            "answer": None if answer is None else Jsonb(answer),
            "ok": True if happened else None,
            "by": by,
            "key": key,
            "run": run_id,
        },
    )


async def run_resolve(
    conn: Connection,
    *,
    run_id: UUID,
    target: RunState,
    code: str | None,
    outcome: UUID,
    body: dict[str, Any],
    events: list[NewEvent],
    data: dict[str, Any],
) -> Moved | _Lost:
    """unconfirmed → succeeded or failed, with a new outcome; what was answered before stays what it was."""
    return await run_move(
        conn,
        RunEvent.RESOLVE,
        _RESOLVE,
        run_id=run_id,
        target=target,
        code=code,
        outcome=outcome,
        status=body["status"],
        body=Jsonb(body),
        events=events,
        data=data,
    )


async def run_go_on(conn: Connection, *, run_id: UUID, events: list[NewEvent], data: dict[str, Any]) -> Moved | _Lost:
    """unconfirmed → suspended: replayable, and no effect unknown any more. Any host goes on."""
    return await run_move(conn, RunEvent.GO_ON, _GO_ON, run_id=run_id, events=events, data=data)


_NOTE = """
WITH moved AS (
    UPDATE runs_run SET event_seq = event_seq + 1, updated_at = now() WHERE id = %s RETURNING id, event_seq
)
INSERT INTO runs_event (run_id, seq, kind, data) SELECT id, event_seq, %s, %s FROM moved"""


async def run_note(conn: Connection, run_id: UUID, event: NewEvent) -> None:
    """Add an event to a run, whatever its state."""
    await conn.execute(_NOTE, (run_id, event.kind, Jsonb(dict(event.data))))
