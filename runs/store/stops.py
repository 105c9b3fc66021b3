"""Where a run stops: paused, handed on, or final. The move, its outcome and all it leaves are one commit."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from psycopg.types.json import Jsonb

from runs.domain.states import RunEvent
from runs.store.ledger import CHECKPOINT_CTE, READS_CTE, StoredCheckpoint
from runs.store.transition import OPEN_CALLS, Connection, Moved, NewEvent, Reaped, _Lost, move_sql, run_move

_OUTCOME = """,
settled AS (
    INSERT INTO runs_settledoutcome (id, run_id, seq, status, body)
    SELECT %(outcome)s, id, event_seq, %(status)s, {body} FROM moved
    RETURNING body
), answered AS (
    UPDATE runs_pausedexecution p SET outcome_id = %(outcome)s FROM moved m
    WHERE p.run_id = m.id AND p.decision IS NOT NULL AND p.outcome_id IS NULL
)"""
_WITHDRAW = """,
withdrawn AS (
    UPDATE runs_pausedexecution p SET decision = 'withdrawn', decided_at = now(), decided_via = 'engine',
        outcome_id = %(outcome)s
    FROM moved m WHERE p.run_id = m.id AND p.decision IS NULL
)"""
_OUTPUTS = """,
outputs AS (
    INSERT INTO runs_output (run_id, name, text, total_bytes)
    SELECT m.id, x.name, x.text, x.total_bytes
    FROM moved m, jsonb_to_recordset(%(outputs)s) AS x(name text, text text, total_bytes bigint)
    ON CONFLICT (run_id, name) DO UPDATE SET text = excluded.text, total_bytes = excluded.total_bytes
)"""
_DROP_CHECKPOINT = """,
dropped AS (DELETE FROM runs_checkpoint c USING moved m WHERE c.run_id = m.id)"""
_FINAL_CTES = _OUTCOME.format(body="%(body)s") + _WITHDRAW
_FINAL_SETS = "outcome_id = %(outcome)s"

_PAUSE = move_sql(
    RunEvent.PAUSE,
    sets="outcome_id = %(outcome)s",
    where="r.decisions = %(decisions)s",
    ctes=CHECKPOINT_CTE
    + READS_CTE
    + """,
asked AS (
    INSERT INTO runs_pausedexecution (id, run_id, call_index, kind, tool, args, message, requested_schema, url,
        approver, expires_at)
    SELECT x.id, m.id, x.call_index, x.kind, x.tool, x.args, x.message, x.requested_schema, x.url, x.approver,
        now() + x.expires_s * interval '1 s'
    FROM moved m, jsonb_to_recordset(%(questions)s) AS x(id uuid, call_index int, kind text, tool text, args jsonb,
        message text, requested_schema jsonb, url text, approver text, expires_s float8)
)"""
    + _OUTCOME.format(
        body="jsonb_set(%(body)s, '{execution,expires_at}', to_jsonb(coalesce(%(expires_at)s,"
        " to_char((now() + %(expires_s)s * interval '1 s') AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS\"Z\"'))))"
    ),
    select="SELECT m.id, m.state, m.epoch, m.event_seq, s.body FROM moved m, settled s",
)
_SUSPEND = move_sql(RunEvent.SUSPEND, sets="wake_at = %(wake_at)s")
_SUSPEND_KEEPING = move_sql(RunEvent.SUSPEND, sets="wake_at = %(wake_at)s", ctes=CHECKPOINT_CTE + READS_CTE)
_SUCCEED = move_sql(RunEvent.SUCCEED, sets=_FINAL_SETS, ctes=READS_CTE + _FINAL_CTES + _OUTPUTS + _DROP_CHECKPOINT)
_FAIL = move_sql(RunEvent.FAIL, sets=f"{_FINAL_SETS}, error_code = %(code)s", ctes=READS_CTE + _FINAL_CTES + _OUTPUTS)
_CANCEL = move_sql(RunEvent.CANCEL, sets=f"{_FINAL_SETS}, wake_at = NULL", ctes=_FINAL_CTES)
_CANCEL_CONFIRMED = move_sql(RunEvent.CANCEL_CONFIRMED, sets=_FINAL_SETS, ctes=READS_CTE + _FINAL_CTES)
_DOUBT = move_sql(
    RunEvent.DOUBT,
    # A reaper judges from what it read: the holder may have settled its last call between that and its death.
    where=f"(NOT %(reaping)s OR r.kind <> 'code' OR {OPEN_CALLS})",
    sets=f"{_FINAL_SETS}, error_code = %(code)s, wake_at = NULL",
    ctes=READS_CTE
    + _FINAL_CTES
    + """,
doubted AS (
    UPDATE runs_effect e SET state = 'unknown' FROM moved m WHERE e.run_id = m.id AND e.state = 'reserved'
)""",
)


@dataclass(frozen=True, slots=True)
class NewQuestion:
    id: UUID
    call_index: int
    kind: str
    tool: str
    args: Any
    message: str
    approver: str
    expires_s: float
    requested_schema: Any = None
    url: str | None = None

    def row(self) -> dict[str, Any]:
        return {name: str(v) if name == "id" else v for name in self.__slots__ for v in [getattr(self, name)]}


async def run_pause(
    conn: Connection,
    *,
    run_id: UUID,
    epoch: int,
    decisions: int,
    checkpoint: StoredCheckpoint,
    questions: Sequence[NewQuestion],
    outcome: UUID,
    body: dict[str, Any],
    expires_at: str | None,
    expires_s: float,
    events: Sequence[NewEvent],
    reads: Sequence[dict[str, Any]],
) -> Moved | _Lost:
    """running → paused with its checkpoint, its questions and its answer. Lost also where a decision came first.

    The stored body, with the database's own expiry, is in `extra["body"]`.
    """
    return await run_move(
        conn,
        RunEvent.PAUSE,
        _PAUSE,
        run_id=run_id,
        epoch=epoch,
        decisions=decisions,
        questions=Jsonb([question.row() for question in questions]),
        outcome=outcome,
        status="paused",
        body=Jsonb(body),
        expires_at=expires_at,
        expires_s=expires_s,
        events=events,
        reads=Jsonb(list(reads)),
        data={"executions": [f"exec_{q.id}" for q in questions]},
        **checkpoint.params(),
    )


async def run_suspend(
    conn: Connection,
    *,
    run_id: UUID,
    epoch: int,
    why: str,
    wake_at: Any = None,
    checkpoint: StoredCheckpoint | None = None,
    events: Sequence[NewEvent] = (),
    reads: Sequence[dict[str, Any]] = (),
    reaped: Reaped | None = None,
) -> Moved | _Lost:
    """running → suspended: any host may go on, from this checkpoint or the one already stored."""
    common = {
        "run_id": run_id,
        "epoch": epoch,
        "wake_at": wake_at,
        "events": events,
        "data": {"why": why},
        "reaped": reaped,
    }
    if checkpoint is None:
        return await run_move(conn, RunEvent.SUSPEND, _SUSPEND, **common)
    return await run_move(
        conn, RunEvent.SUSPEND, _SUSPEND_KEEPING, **common, reads=Jsonb(list(reads)), **checkpoint.params()
    )


async def run_finish(
    conn: Connection,
    *,
    run_id: UUID,
    epoch: int,
    outcome: UUID,
    body: dict[str, Any],
    code: str | None,
    events: Sequence[NewEvent],
    reads: Sequence[dict[str, Any]],
    outputs: Sequence[dict[str, Any]] = (),
    reaped: Reaped | None = None,
) -> Moved | _Lost:
    """running → succeeded, or failed with `code`. Open questions are withdrawn; every call must be settled."""
    event, sql = (RunEvent.SUCCEED, _SUCCEED) if code is None else (RunEvent.FAIL, _FAIL)
    return await run_move(
        conn,
        event,
        sql,
        run_id=run_id,
        epoch=epoch,
        outcome=outcome,
        status=body["status"],
        body=Jsonb(body),
        code=code,
        events=events,
        reads=Jsonb(list(reads)),
        reaped=reaped,
        outputs=Jsonb(list(outputs)),
        data={} if code is None else {"code": code},
    )


async def run_cancel(
    conn: Connection,
    *,
    run_id: UUID,
    outcome: UUID,
    body: dict[str, Any],
    data: dict[str, Any],
    reaped: Reaped | None = None,
) -> Moved | _Lost:
    """queued, claimed, paused, suspended → cancelled: nothing works on it."""
    return await run_move(
        conn,
        RunEvent.CANCEL,
        _CANCEL,
        run_id=run_id,
        outcome=outcome,
        status="cancelled",
        body=Jsonb(body),
        data=data,
        reaped=reaped,
    )


async def run_cancel_confirmed(
    conn: Connection,
    *,
    run_id: UUID,
    epoch: int,
    outcome: UUID,
    body: dict[str, Any],
    reads: Sequence[dict[str, Any]] = (),
    why: str,
    reaped: Reaped | None = None,
) -> Moved | _Lost:
    """running → cancelled, after its sandbox is known to be dead and its calls are settled."""
    return await run_move(
        conn,
        RunEvent.CANCEL_CONFIRMED,
        _CANCEL_CONFIRMED,
        run_id=run_id,
        epoch=epoch,
        outcome=outcome,
        status="cancelled",
        body=Jsonb(body),
        reads=Jsonb(list(reads)),
        reaped=reaped,
        data={"why": why},
    )


async def run_doubt(
    conn: Connection,
    *,
    run_id: UUID,
    epoch: int,
    code: str,
    outcome: UUID,
    body: dict[str, Any],
    why: str,
    reads: Sequence[dict[str, Any]] = (),
    reaped: Reaped | None = None,
) -> Moved | _Lost:
    """running, suspended → unconfirmed; calls still reserved become unknown. A person's work from here."""
    return await run_move(
        conn,
        RunEvent.DOUBT,
        _DOUBT,
        run_id=run_id,
        epoch=epoch,
        code=code,
        outcome=outcome,
        status="unconfirmed",
        body=Jsonb(body),
        reads=Jsonb(list(reads)),
        reaped=reaped,
        data={"code": code, "why": why},
    )
