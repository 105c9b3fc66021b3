"""The periodic duties: expire pauses, reap lost runs, nudge waiting ones, remove what retention no longer keeps."""

import structlog
from django.conf import settings

from runs.services.recover import runs_reap
from runs.services.scope import ServiceScope
from runs.store.leases import runs_waiting
from runs.store.pauses import pause_decide, pause_lock, pauses_expired
from runs.store.retention import runs_purge
from runs.store.transition import Connection

log = structlog.get_logger(__name__)

_WAITING_S = 5.0


async def sweep_all(scope: ServiceScope) -> str:
    conn = await scope.connection()
    reaped = await runs_reap(scope, conn)
    expired = await pauses_expire(scope, conn)
    purged = await runs_purge(conn, older_than_days=settings.RETENTION_DAYS)
    waiting = await runs_waiting(conn, older_than_s=_WAITING_S)
    for row in waiting:
        scope.hand_on(row["id"])
    return f"reaped {reaped}, expired {expired}, purged {purged}, nudged {len(waiting)}"


async def pauses_expire(scope: ServiceScope, conn: Connection) -> int:
    """Refuse every question past its time; its program goes on and sees the refusal. One commit a pause."""
    expired = 0
    for pause_id in await pauses_expired(conn):
        async with conn.transaction():
            pause = await pause_lock(conn, pause_id)
            if pause is None or pause["decision"] is not None or not pause["is_past"]:
                continue
            await pause_decide(
                conn,
                pause=pause,
                decision="expired",
                content=None,
                reason=None,
                by=None,
                by_name=None,
                via="sweep",
                token=None,
            )
        expired += 1
        scope.notify(pause["run_id"])
        scope.hand_on(pause["run_id"])
    return expired
