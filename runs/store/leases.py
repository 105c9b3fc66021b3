"""Processes and their leases: who is there, whose runs nobody holds any more, and who waits to be started."""

from typing import Any
from uuid import UUID

from runs.domain import limits
from runs.domain.process import ProcessIdentity
from runs.store.transition import Connection

_REGISTER = """
INSERT INTO runs_process (id, role, host, boot_id, pid_namespace, pid, started_ticks)
VALUES (%(id)s, %(role)s, %(host)s, %(boot_id)s, %(pid_namespace)s, %(pid)s, %(started_ticks)s)
ON CONFLICT (id) DO UPDATE SET heartbeat_at = now(), ended_at = NULL"""

_BEAT = f"""
WITH beat AS (UPDATE runs_process SET heartbeat_at = now() WHERE id = %(id)s)
UPDATE runs_run SET lease_expires_at = now() + interval '{limits.LEASE_S} s'
WHERE process_id = %(id)s AND state IN ('claimed', 'running') AND id = ANY(%(runs)s)
RETURNING id, cancel_requested_at IS NOT NULL AS cancel_asked"""

_HELD = f"""
SELECT r.id, r.state, r.kind, r.epoch, r.cancel_requested_at IS NOT NULL AS cancel_asked,
    r.lease_expires_at <= now() AS lease_expired, r.process_id,
    p.host, p.boot_id, p.pid_namespace, p.pid, p.started_ticks,
    (SELECT count(*) FROM runs_attempt a WHERE a.run_id = r.id) AS attempts,
    (SELECT count(*) FROM runs_attempt a WHERE a.run_id = r.id AND a.ended_by = 'lost') AS crashes,
    (SELECT coalesce(jsonb_agg(jsonb_build_object('key', e.key, 'tool', e.tool, 'state', e.state,
        'effect', e.effect, 'honours_key', e.honours_key)), '[]')
        FROM runs_effect e WHERE e.run_id = r.id AND e.state IN ('reserved', 'unknown')) AS open_effects,
    (SELECT count(*) FROM runs_effect e WHERE e.run_id = r.id AND e.state = 'settled' AND e.effect <> 'read'
        AND coalesce((e.answer->>'sent')::bool, true)) AS settled
FROM runs_run r JOIN runs_process p ON p.id = r.process_id
WHERE r.state IN ('claimed', 'running') AND (r.lease_expires_at <= now()
    OR (r.process_id <> %(own)s AND (p.ended_at IS NOT NULL OR p.host = %(host)s)))
ORDER BY r.lease_expires_at LIMIT {limits.SWEEP_BATCH}"""

_WAITING = f"""
SELECT id, state FROM runs_run
WHERE (state = 'queued' OR (state = 'suspended' AND (wake_at IS NULL OR wake_at <= now())))
    AND updated_at < now() - %(age_s)s * interval '1 s'
ORDER BY created_at LIMIT {limits.SWEEP_BATCH}"""


async def process_register(conn: Connection, *, process_id: UUID, role: str, identity: ProcessIdentity) -> None:
    await conn.execute(
        _REGISTER,
        {
            "id": process_id,
            "role": role,
            "host": identity.host,
            "boot_id": identity.boot_id,
            "pid_namespace": identity.pid_namespace,
            "pid": identity.pid,
            "started_ticks": identity.started_ticks,
        },
    )


async def process_end(conn: Connection, process_id: UUID) -> None:
    await conn.execute("UPDATE runs_process SET ended_at = now() WHERE id = %s", (process_id,))


async def leases_renew(conn: Connection, process_id: UUID, run_ids: list[UUID]) -> list[dict[str, Any]]:
    """Renew the leases of the runs this process really works on; says which of them were asked to stop."""
    return await (await conn.execute(_BEAT, {"id": process_id, "runs": run_ids})).fetchall()


async def lease_end(conn: Connection, *, run_id: UUID, epoch: int) -> None:
    """Give up the lease of a run that broke here: whoever sweeps next judges it. Its state is left as it is."""
    await conn.execute(
        "UPDATE runs_run SET lease_expires_at = now() WHERE id = %s AND epoch = %s AND state = 'running'",
        (run_id, epoch),
    )


async def runs_held_elsewhere(conn: Connection, *, own: UUID, host: str) -> list[dict[str, Any]]:
    """Held runs whose holder may be gone: lease expired, process ended, or a process of this host to look at."""
    return await (await conn.execute(_HELD, {"own": own, "host": host})).fetchall()


async def runs_waiting(conn: Connection, *, older_than_s: float) -> list[dict[str, Any]]:
    """Queued and resumable runs that nobody took for so long: their task was lost, or never sent."""
    return await (await conn.execute(_WAITING, {"age_s": older_than_s})).fetchall()
