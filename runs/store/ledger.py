"""The ledger of effects: reserve before the request leaves, settle before the program goes on. One commit each.

Reserving is also the fence: only the holder of the current epoch of a running run, nobody having asked it to
stop, gets a reservation, and the checkpoint from which the run can go on is stored in the same commit.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from psycopg.types.json import Jsonb

from runs.domain import limits
from runs.store.transition import EVENTS_CTE, Connection, NewEvent, events_param


@dataclass(frozen=True, slots=True)
class StoredCheckpoint:
    snapshot: bytes
    state: dict[str, Any]
    mac: bytes
    format: int

    def params(self) -> dict[str, Any]:
        return {
            "snapshot": self.snapshot,
            "checkpoint_state": Jsonb(self.state),
            "mac": self.mac,
            "format": self.format,
        }


CHECKPOINT_CTE = """,
kept AS (
    INSERT INTO runs_checkpoint (run_id, epoch, snapshot, state, mac, format, stored_at)
    SELECT id, epoch, %(snapshot)s, %(checkpoint_state)s, %(mac)s, %(format)s, now() FROM moved
    ON CONFLICT (run_id) DO UPDATE SET epoch = excluded.epoch, snapshot = excluded.snapshot,
        state = excluded.state, mac = excluded.mac, format = excluded.format, stored_at = excluded.stored_at
)"""

READS_CTE = """,
reads AS (
    INSERT INTO runs_effect (key, run_id, epoch, call_index, tool, effect, honours_key, args, state, reserved_at,
        settled_at, duration_ms, answer, ok, status)
    SELECT x.key, m.id, m.epoch, x.call_index, x.tool, 'read', false, x.args, 'settled',
        now() - x.age_ms * interval '1 ms', now() - (x.age_ms - x.duration_ms) * interval '1 ms', x.duration_ms,
        x.answer, x.ok, x.status
    FROM moved m, jsonb_to_recordset(%(reads)s) AS x(key text, call_index int, tool text, args jsonb,
        duration_ms float8, age_ms float8, answer jsonb, ok bool, status int)
    ON CONFLICT (key) DO NOTHING
)"""
"""Reads change nothing, so they have no commit of their own: they are written with the next one."""

_HELD = f"""
WITH moved AS (
    UPDATE runs_run r SET event_seq = r.event_seq + %(event_count)s, updated_at = now(),
        lease_expires_at = now() + interval '{limits.LEASE_S} s'
    WHERE r.id = %(run)s AND r.state = 'running' AND r.epoch = %(epoch)s AND r.cancel_requested_at IS NULL
    RETURNING r.id, r.epoch, r.event_seq
),{EVENTS_CTE.format(moved="moved")}{CHECKPOINT_CTE}{READS_CTE}"""

_CHECKPOINT = f"{_HELD}\nSELECT id FROM moved"

_RESERVE = f"""{_HELD},
reserved AS (
    INSERT INTO runs_effect AS e (key, run_id, epoch, call_index, tool, effect, honours_key, args, state)
    SELECT x.key, m.id, m.epoch, x.call_index, x.tool, x.effect, x.honours_key, x.args, 'reserved'
    FROM moved m, jsonb_to_recordset(%(calls)s)
        AS x(key text, call_index int, tool text, effect text, honours_key bool, args jsonb)
    ON CONFLICT (key) DO UPDATE SET state = 'reserved', epoch = excluded.epoch, reserved_at = now()
        WHERE e.run_id = excluded.run_id AND (e.state = 'released'
            OR (%(again)s AND e.state = 'reserved' AND e.epoch = excluded.epoch)
            OR (e.state = 'reserved' AND (e.effect <> 'effect' OR e.honours_key)))
    RETURNING key
)
SELECT (SELECT count(*) FROM moved) AS held, (SELECT coalesce(array_agg(key), '{{}}') FROM reserved) AS keys"""

_SETTLE = f"""
WITH settled AS (
    UPDATE runs_effect SET state = 'settled', settled_at = now(), answer = %(answer)s, ok = %(ok)s,
        status = %(status)s, duration_ms = %(duration_ms)s
    WHERE key = %(key)s AND epoch = %(epoch)s AND state IN ('reserved', 'unknown')
    RETURNING run_id
), moved AS (
    UPDATE runs_run r SET event_seq = r.event_seq + %(event_count)s, updated_at = now()
    FROM settled s WHERE r.id = s.run_id RETURNING r.id, r.event_seq
),{EVENTS_CTE.format(moved="moved")}
SELECT id FROM moved"""


@dataclass(frozen=True, slots=True)
class Reservation:
    key: str
    call_index: int
    tool: str
    effect: str
    honours_key: bool
    args: dict[str, Any]

    def row(self) -> dict[str, Any]:
        return {
            "key": self.key,
            "call_index": self.call_index,
            "tool": self.tool,
            "effect": self.effect,
            "honours_key": self.honours_key,
            "args": self.args,
        }


async def checkpoint_store(
    conn: Connection,
    *,
    run_id: UUID,
    epoch: int,
    checkpoint: StoredCheckpoint,
    events: Sequence[NewEvent],
    reads: Sequence[dict[str, Any]],
) -> bool:
    """Keep a checkpoint of a run that goes on. False: superseded or asked to stop; nothing was written."""
    cursor = await conn.execute(_CHECKPOINT, _held_params(run_id, epoch, checkpoint, events, reads))
    return await cursor.fetchone() is not None


async def effects_reserve(
    conn: Connection,
    *,
    run_id: UUID,
    epoch: int,
    checkpoint: StoredCheckpoint,
    calls: Sequence[Reservation],
    events: Sequence[NewEvent],
    reads: Sequence[dict[str, Any]],
    again: bool = False,
) -> frozenset[str] | None:
    """Reserve calls and store the checkpoint, in one commit, before anything is sent.

    `again`: the acknowledgement of this very reservation was lost and nothing was sent, so a row of this epoch is
    its own.

    Returns the keys that may be sent; a key that is missing was used before and must not be. None: this holder
    was superseded or the run was asked to stop, and nothing was written.
    """
    all_events = [*events, *(NewEvent("call_reserved", _event_data(call)) for call in calls)]
    params = _held_params(run_id, epoch, checkpoint, all_events, reads)
    params["calls"] = Jsonb([call.row() for call in calls])
    params["again"] = again
    row = await (await conn.execute(_RESERVE, params)).fetchone()
    if row is None or not row["held"]:
        return None
    return frozenset(row["keys"])


_SETTLED_AS = """
SELECT key FROM runs_effect WHERE key = %(key)s AND epoch = %(epoch)s AND state = 'settled' AND answer = %(answer)s"""

_LATE = f"""
WITH moved AS (
    UPDATE runs_run r SET event_seq = r.event_seq + %(event_count)s, updated_at = now()
    WHERE r.id = %(run)s RETURNING r.id, r.event_seq
),{EVENTS_CTE.format(moved="moved")}
SELECT id FROM moved"""


async def effect_settle(
    conn: Connection,
    *,
    run_id: UUID,
    epoch: int,
    key: str,
    call_index: int,
    tool: str,
    answer: dict[str, Any],
    ok: bool,
    status: int | None,
    duration_ms: float,
) -> bool:
    """Store the answer of a call that this epoch reserved, whatever became of the run meanwhile.

    False: a newer epoch has reserved it again, or somebody answered it. The answer is then kept as an event, as
    evidence, and changes nothing.
    """
    event = NewEvent(
        "call_settled",
        {
            "key": key,
            "call": call_index,
            "tool": tool,
            "ok": ok,
            "status": status,
            "kind": answer["kind"],
            "duration_ms": round(duration_ms, 1),
        },
    )
    cursor = await conn.execute(
        _SETTLE,
        {
            "key": key,
            "epoch": epoch,
            "answer": Jsonb(answer),
            "ok": ok,
            "status": status,
            "duration_ms": duration_ms,
            "events": events_param([event]),
            "event_count": 1,
        },
    )
    if await cursor.fetchone() is not None:
        return True
    own = {"key": key, "epoch": epoch, "answer": Jsonb(answer)}
    if await (await conn.execute(_SETTLED_AS, own)).fetchone() is not None:
        return True  # an earlier try committed, and only its acknowledgement was lost
    late = NewEvent("call_answered_late", {**event.data, "epoch": epoch, "answer": answer})
    await conn.execute(_LATE, {"run": run_id, "events": events_param([late]), "event_count": 1})
    return False


def _event_data(call: Reservation) -> dict[str, Any]:
    return {"key": call.key, "call": call.call_index, "tool": call.tool, "effect": call.effect}


def _held_params(
    run_id: UUID,
    epoch: int,
    checkpoint: StoredCheckpoint,
    events: Sequence[NewEvent],
    reads: Sequence[dict[str, Any]],
) -> dict[str, Any]:
    return {
        "run": run_id,
        "epoch": epoch,
        "events": events_param(events),
        "event_count": len(events),
        "reads": Jsonb(list(reads)),
        **checkpoint.params(),
    }
