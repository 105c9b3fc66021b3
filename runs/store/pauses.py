"""Questions and their decisions: found, decided once, expired by the sweep."""

from typing import Any
from uuid import UUID

from psycopg.types.json import Jsonb

from runs.domain import limits
from runs.domain.states import RunEvent
from runs.store.transition import Connection, Moved, NewEvent, _Lost, events_param, move_sql, run_move

_COLUMNS = """
SELECT p.id, p.run_id, p.call_index, p.kind, p.tool, p.args, p.message, p.requested_schema, p.url, p.approver,
    p.created_at, p.expires_at, p.expires_at <= now() AS is_past, p.decision, p.content, p.reason, p.decided_via,
    p.decided_at, u.username AS decided_by, p.decided_by_id, p.outcome_id, r.owner_id, r.state AS run_state, r.epoch,
    r.outcome_id AS run_outcome_id, r.cancel_requested_at, r.purged_at
FROM runs_pausedexecution p JOIN runs_run r ON r.id = p.run_id LEFT JOIN auth_user u ON u.id = p.decided_by_id"""
_FIND = f"{_COLUMNS} WHERE p.id = %s"
_LOCK = f"{_COLUMNS} WHERE p.id = %s FOR UPDATE OF r, p"

_WRITE = """
UPDATE runs_pausedexecution SET decision = %(decision)s, content = %(content)s, reason = %(reason)s,
    decided_by_id = %(by)s, decided_via = %(via)s, decided_token_id = %(token)s, decided_at = now()
WHERE id = %(pause)s AND decision IS NULL RETURNING id"""

_DECIDE = move_sql(RunEvent.DECIDE, sets="decisions = r.decisions + 1")

_NOTE = """
WITH moved AS (
    UPDATE runs_run r SET decisions = r.decisions + 1, event_seq = r.event_seq + 1, updated_at = now()
    WHERE r.id = %(run)s RETURNING r.id, r.event_seq
)
INSERT INTO runs_event (run_id, seq, kind, data) SELECT id, event_seq, e.kind, e.data
FROM moved, jsonb_to_recordset(%(events)s) AS e(kind text, data jsonb)"""

_EXPIRED = f"""
SELECT p.id FROM runs_pausedexecution p
WHERE p.decision IS NULL AND p.expires_at <= now() ORDER BY p.expires_at LIMIT {limits.SWEEP_BATCH}"""


async def pause_find(conn: Connection, pause_id: UUID) -> dict[str, Any] | None:
    """The pause with its run's owner and state, or None."""
    return await (await conn.execute(_FIND, (pause_id,))).fetchone()


async def pause_lock(conn: Connection, pause_id: UUID) -> dict[str, Any] | None:
    """The same under row locks: call inside a transaction; what it shows stays true until commit."""
    return await (await conn.execute(_LOCK, (pause_id,))).fetchone()


async def pause_decide(
    conn: Connection,
    *,
    pause: dict[str, Any],
    decision: str,
    content: Any,
    reason: str | None,
    by: int | None,
    by_name: str | None,
    via: str,
    token: UUID | None,
) -> Moved | _Lost | None:
    """Store the decision of a locked, open pause; a paused run becomes suspended in the same transaction.

    Returns the move; None where the run was not paused (it works, and will see the decision before it pauses
    again). The caller commits.
    """
    written = await conn.execute(
        _WRITE,
        {
            "pause": pause["id"],
            "decision": decision,
            "content": None if content is None else Jsonb(content),
            "reason": reason,
            "by": by,
            "via": via,
            "token": token,
        },
    )
    if await written.fetchone() is None:
        raise LookupError(f"pause {pause['id']} was not open under its own lock")
    event = NewEvent(
        "decision",
        {
            "execution": f"exec_{pause['id']}",
            "tool": pause["tool"],
            "decision": decision,
            "by": by_name,
            "via": via,
            **({"reason": reason} if reason else {}),
        },
    )
    if pause["run_state"] == "paused":
        return await run_move(conn, RunEvent.DECIDE, _DECIDE, run_id=pause["run_id"], events=[event])
    await conn.execute(_NOTE, {"run": pause["run_id"], "events": events_param([event])})
    return None


async def pauses_expired(conn: Connection) -> list[UUID]:
    """Open pauses past their time, oldest first, one batch."""
    return [row["id"] for row in await (await conn.execute(_EXPIRED)).fetchall()]


_DECISIONS = "SELECT to_jsonb(p) AS pause FROM runs_pausedexecution p WHERE p.run_id = %s"
_DECISION_COUNT = "SELECT decisions FROM runs_run WHERE id = %s"


async def decisions_read(conn: Connection, run_id: UUID) -> tuple[int, dict[UUID, dict[str, Any]]]:
    """How many decisions the run has had, and all its pauses. The count is read first: it can only be too low."""
    row = await (await conn.execute(_DECISION_COUNT, (run_id,))).fetchone()
    if row is None:
        raise LookupError(f"run {run_id} is gone")
    pauses = await (await conn.execute(_DECISIONS, (run_id,))).fetchall()
    return row["decisions"], {UUID(row["pause"]["id"]): row["pause"] for row in pauses}


async def pauses_pending(conn: Connection, owner_id: int | None = None) -> int:
    """How many questions are open, of one owner's runs or of all."""
    query = """
    SELECT count(*) AS n FROM runs_pausedexecution p JOIN runs_run r ON r.id = p.run_id
    WHERE p.decision IS NULL AND (%(owner)s::int IS NULL OR r.owner_id = %(owner)s)"""
    row = await (await conn.execute(query, {"owner": owner_id})).fetchone()
    return 0 if row is None else int(row["n"])
