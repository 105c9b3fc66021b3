"""Taking hold of a run: claim, gate, release, refuse, and going on from a checkpoint. Each is one commit."""

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from psycopg.types.json import Jsonb

from runs.domain.states import RunEvent
from runs.store.transition import Connection, Moved, Reaped, _Lost, move_sql, run_move

_CLAIM = move_sql(RunEvent.CLAIM)
_GATE = move_sql(RunEvent.GATE, sets="command_started_at = coalesce(r.command_started_at, now())")
_RELEASE = move_sql(RunEvent.RELEASE, where="r.command_started_at IS NULL")
_REFUSE = move_sql(
    RunEvent.REFUSE,
    sets="error_code = %(code)s, outcome_id = %(outcome)s",
    ctes=""",
settled AS (
    INSERT INTO runs_settledoutcome (id, run_id, seq, status, body)
    SELECT %(outcome)s, id, event_seq, %(status)s, %(body)s FROM moved
)""",
)
_RESUME = move_sql(
    RunEvent.RESUME,
    sets="wake_at = NULL, command_started_at = coalesce(r.command_started_at, now())",
    where="(r.wake_at IS NULL OR r.wake_at <= now()) AND NOT EXISTS"
    " (SELECT FROM runs_checkpoint c WHERE c.run_id = r.id AND c.format > %(format)s)",
)


async def run_claim(conn: Connection, *, run_id: UUID, process: UUID) -> Moved | _Lost:
    """queued → claimed under a new epoch and lease, by this process alone."""
    return await run_move(conn, RunEvent.CLAIM, _CLAIM, run_id=run_id, process=process)


async def run_gate(conn: Connection, *, run_id: UUID, epoch: int) -> Moved | _Lost:
    """claimed → running: the point of no return, committed before anything is told to go."""
    return await run_move(conn, RunEvent.GATE, _GATE, run_id=run_id, epoch=epoch)


async def run_release(
    conn: Connection, *, run_id: UUID, epoch: int, why: str, reaped: Reaped | None = None
) -> Moved | _Lost:
    """claimed → queued, only while nothing has started."""
    return await run_move(
        conn, RunEvent.RELEASE, _RELEASE, run_id=run_id, epoch=epoch, reaped=reaped, data={"why": why}
    )


async def run_refuse(
    conn: Connection,
    *,
    run_id: UUID,
    epoch: int,
    code: str,
    outcome: UUID,
    body: dict[str, Any],
    reaped: Reaped | None = None,
) -> Moved | _Lost:
    """queued or claimed → failed: nothing has started and nothing will."""
    return await run_move(
        conn,
        RunEvent.REFUSE,
        _REFUSE,
        run_id=run_id,
        epoch=epoch,
        code=code,
        outcome=outcome,
        reaped=reaped,
        status="failed",
        body=Jsonb(body),
        data={"code": code},
    )


async def run_resume(conn: Connection, *, run_id: UUID, process: UUID, format: int) -> Moved | _Lost:
    """suspended → running under a new epoch and lease; lost while it sleeps or its checkpoint is newer than us."""
    return await run_move(conn, RunEvent.RESUME, _RESUME, run_id=run_id, process=process, format=format)


@dataclass(frozen=True, slots=True)
class Loaded:
    """All an engine needs to go on with a run, read in one statement."""

    run: dict[str, Any]
    checkpoint: dict[str, Any] | None
    pauses: dict[UUID, dict[str, Any]]
    effects: dict[str, dict[str, Any]]
    resumes: int


_LOAD = """
SELECT r.id, r.state, r.kind, r.epoch, r.owner_id, r.lineage, r.code, r.inputs, r.timeout_s,
    (SELECT u.username FROM auth_user u WHERE u.id = r.auto_approve_by_id) AS auto_approved_by,
    r.decisions, r.cancel_requested_at, r.token_id, r.wake_at,
    c.snapshot, c.state AS checkpoint_state, c.mac, c.format, c.epoch AS checkpoint_epoch,
    (SELECT count(*) FROM runs_attempt a WHERE a.run_id = r.id AND a.ended_by = 'lost') AS crashes,
    (SELECT coalesce(jsonb_agg(to_jsonb(p) ORDER BY p.created_at, p.call_index), '[]')
        FROM runs_pausedexecution p WHERE p.run_id = r.id) AS pauses,
    (SELECT coalesce(jsonb_agg(to_jsonb(e)), '[]') FROM runs_effect e
        WHERE e.run_id = r.id AND e.effect <> 'read') AS effects
FROM runs_run r LEFT JOIN runs_checkpoint c ON c.run_id = r.id WHERE r.id = %s"""


async def run_load(conn: Connection, run_id: UUID) -> Loaded | None:
    row = await (await conn.execute(_LOAD, (run_id,))).fetchone()
    if row is None:
        return None
    checkpoint = None
    if row["snapshot"] is not None or row["mac"] is not None:
        checkpoint = {
            "snapshot": bytes(row.pop("snapshot")),
            "state": row.pop("checkpoint_state"),
            "mac": bytes(row.pop("mac")),
            "format": row.pop("format"),
        }
    pauses = {UUID(pause["id"]): pause for pause in row.pop("pauses")}
    effects = {effect["key"]: effect for effect in row.pop("effects")}
    return Loaded(row, checkpoint, pauses, effects, row["crashes"])
