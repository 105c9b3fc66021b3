"""The only writer of Run.state: one guarded UPDATE made from a row of the transition table, events beside it.

A lost guard (no row) is an outcome, `Lost`, not an exception. Every statement commits by itself (autocommit)
unless the caller opened a transaction. Durable time is the database's now().
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from psycopg import AsyncConnection
from psycopg.types.json import Jsonb

from runs.domain import limits
from runs.domain.states import BY_EVENT, HELD, TERMINAL, RunEvent, RunState

Connection = AsyncConnection[dict[str, Any]]
"""The store's connection: autocommit, rows as dicts."""

OPEN_CALLS = "EXISTS (SELECT FROM runs_effect e WHERE e.run_id = r.id AND e.state IN ('reserved', 'unknown'))"
UNKNOWN_EFFECTS = (
    "EXISTS (SELECT FROM runs_effect e WHERE e.run_id = r.id AND (e.state = 'unknown'"
    " OR (e.state = 'reserved' AND e.effect = 'effect' AND NOT e.honours_key)))"
)
"""The SQL twin of `guards.outcome_unknown`; a test walks both."""


class _Lost:
    """A guard did not hold: somebody else moved the run first. Nothing was written."""

    def __repr__(self) -> str:
        return "Lost"


Lost = _Lost()


@dataclass(frozen=True, slots=True)
class Moved:
    """The run after a committed move."""

    run_id: UUID
    state: RunState
    epoch: int
    event_seq: int
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Reaped:
    """A move made for a holder that is gone: its lease must still be expired when it is written, or its death proven.

    A judgement must not outlive a renewal: the holder may have come back between the two.
    """

    proven_dead: bool


@dataclass(frozen=True, slots=True)
class NewEvent:
    kind: str
    data: Mapping[str, Any] = field(default_factory=dict)


def events_param(events: Sequence[NewEvent]) -> Jsonb:
    return Jsonb([{"kind": event.kind, "data": dict(event.data)} for event in events])


EVENTS_CTE = """
happened AS (
    INSERT INTO runs_event (run_id, seq, kind, data)
    SELECT m.id, m.event_seq - %(event_count)s + x.ord, x.kind, x.data
    FROM {moved} m, ROWS FROM (jsonb_to_recordset(%(events)s) AS (kind text, data jsonb)) WITH ORDINALITY
        AS x(kind, data, ord)
)"""


def move_sql(
    event: RunEvent,
    *,
    sets: str = "",
    where: str = "",
    ctes: str = "",
    select: str = "SELECT id, state, epoch, event_seq FROM moved",
) -> str:
    """The statement for one row of the table. `ctes` may read `moved`; parameters are named."""
    row = BY_EVENT[event]
    guards = [
        *(["r.epoch = %(epoch)s"] if row.own_epoch else []),
        *(["r.cancel_requested_at IS NULL"] if row.no_cancel_asked else []),
        *(["r.kind = 'code'"] if row.replayable_only else []),
        *([f"NOT {UNKNOWN_EFFECTS}"] if row.no_unknown_effect else []),
        *([f"NOT {OPEN_CALLS}"] if row.calls_settled else []),
        *(["(NOT %(reaping)s OR %(proven_dead)s OR r.lease_expires_at <= now())"] if row.sources & HELD else []),
        *([where] if where else []),
    ]
    changes = [
        "state = %(target)s",
        "updated_at = now()",
        "event_seq = r.event_seq + %(event_count)s",
        *(["epoch = r.epoch + 1"] if row.new_epoch else []),
        *([sets] if sets else []),
    ]
    if row.targets <= HELD:
        if row.new_epoch:
            changes += [
                "process_id = %(process)s",
                f"lease_expires_at = now() + interval '{limits.LEASE_S} s'",
            ]
    else:
        changes += ["process_id = NULL", "lease_expires_at = NULL"]
    if row.targets <= TERMINAL:
        changes.append("finished_at = now()")
    sources = ", ".join(f"'{source}'" for source in sorted(s.value for s in row.sources if s is not None))
    attempt = ""
    if row.new_epoch:
        attempt = """,
attempt_begun AS (
    INSERT INTO runs_attempt (run_id, epoch, process_id) SELECT id, epoch, %(process)s FROM moved
)"""
    if row.sources & HELD and not row.targets <= HELD:
        attempt = f""",
attempt_ended AS (
    UPDATE runs_attempt a SET ended_at = now(), ended_by = coalesce(%(ended_by)s::text, '{event}')
    FROM moved m WHERE a.run_id = m.id AND a.ended_at IS NULL
)"""
    return f"""
WITH moved AS (
    UPDATE runs_run AS r SET {", ".join(changes)}
    WHERE r.id = %(run)s AND r.state IN ({sources}){"".join(f" AND {guard}" for guard in guards)}
    RETURNING r.*
),{EVENTS_CTE.format(moved="moved")}{attempt}{ctes}
{select}"""


async def run_move(
    conn: Connection,
    event: RunEvent,
    sql: str,
    *,
    run_id: UUID,
    target: RunState | None = None,
    epoch: int | None = None,
    events: Sequence[NewEvent] = (),
    reaped: Reaped | None = None,
    **params: Any,
) -> Moved | _Lost:
    """Execute a statement of `move_sql`. Committed on return when `Moved`; nothing happened when `Lost`."""
    row = BY_EVENT[event]
    if target is None:
        (target,) = row.targets
    if target not in row.targets:
        raise LookupError(f"{event} does not lead to {target}")
    happened = [*events, NewEvent(event.value, {"state": target.value, **params.pop("data", {})})]
    cursor = await conn.execute(
        sql,
        {
            **params,
            "run": run_id,
            "target": target.value,
            "epoch": epoch,
            "ended_by": None if reaped is None else "lost",
            "reaping": reaped is not None,
            "proven_dead": reaped is not None and reaped.proven_dead,
            "events": events_param(happened),
            "event_count": len(happened),
        },
    )
    found = await cursor.fetchone()
    if found is None:
        return Lost
    return Moved(found.pop("id"), RunState(found.pop("state")), found.pop("epoch"), found.pop("event_seq"), found)
