"""Reading a run's events and outcomes, and waking those who wait for them.

NOTIFY carries only a run's id and has no durable commit of its own: it is sent after the commit, and a reader
that misses it catches up by query (limits.CATCH_UP_S). Data never travels in it (notes/django.md).
"""

from typing import Any
from uuid import UUID

from runs.domain import limits
from runs.store.transition import Connection

CHANNEL = "runs"

_AFTER = f"""
SELECT seq, kind, data, at FROM runs_event WHERE run_id = %s AND seq > %s ORDER BY seq LIMIT {limits.SSE_QUEUE}"""

_STATUS = """
SELECT r.id, r.state, r.epoch, r.event_seq, r.owner_id, r.cancel_requested_at, r.purged_at, o.status, o.body,
    r.outcome_id
FROM runs_run r LEFT JOIN runs_settledoutcome o ON o.id = r.outcome_id WHERE r.id = %s"""

_OUTCOME = "SELECT id, status, body, purged_at FROM runs_settledoutcome WHERE id = %s"


async def events_after(conn: Connection, run_id: UUID, seq: int) -> list[dict[str, Any]]:
    """The events after `seq`, in order, at most one page (limits.SSE_QUEUE)."""
    return await (await conn.execute(_AFTER, (run_id, seq))).fetchall()


async def run_status(conn: Connection, run_id: UUID) -> dict[str, Any] | None:
    """Where the run stands and the answer of its last stop."""
    return await (await conn.execute(_STATUS, (run_id,))).fetchone()


async def outcome_read(conn: Connection, outcome_id: UUID) -> dict[str, Any] | None:
    return await (await conn.execute(_OUTCOME, (outcome_id,))).fetchone()


async def runs_notify(conn: Connection, run_ids: list[UUID]) -> None:
    """Wake whoever listens for these runs. Not durable, on purpose: the catch-up query stands behind it."""
    await conn.execute(
        "SELECT set_config('synchronous_commit', 'off', true), pg_notify(%s, id) FROM unnest(%s::text[]) AS id",
        (CHANNEL, [str(run_id) for run_id in run_ids]),
    )


_ASK_CANCEL = """
WITH moved AS (
    UPDATE runs_run r SET cancel_requested_at = now(), cancel_requested_by_id = %(by)s,
        event_seq = r.event_seq + 1, updated_at = now()
    WHERE r.id = %(run)s AND r.cancel_requested_at IS NULL AND r.finished_at IS NULL
    RETURNING r.id, r.event_seq
)
INSERT INTO runs_event (run_id, seq, kind, data)
SELECT id, event_seq, 'cancel_requested', jsonb_build_object('by', %(by_name)s::text) FROM moved RETURNING seq"""


async def cancel_ask(conn: Connection, *, run_id: UUID, by: int, by_name: str) -> bool:
    """Record that somebody asked to stop the run. False: asked before, or already final."""
    return await (await conn.execute(_ASK_CANCEL, {"run": run_id, "by": by, "by_name": by_name})).fetchone() is not None
