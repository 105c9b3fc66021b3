"""Retention: what a finished run no longer needs to keep goes; its id, state and the kinds of its outcomes stay."""

from runs.domain import limits
from runs.store.transition import Connection

_DUE = f"""
SELECT id FROM runs_run
WHERE purged_at IS NULL AND finished_at < now() - %s * interval '1 day' AND state <> 'unconfirmed'
ORDER BY finished_at LIMIT {limits.SWEEP_BATCH}"""

_STATEMENTS = (
    "SELECT set_config('executor.retention', 'on', true)",
    "DELETE FROM runs_event WHERE run_id = ANY(%(runs)s)",
    "DELETE FROM runs_output WHERE run_id = ANY(%(runs)s)",
    "DELETE FROM runs_checkpoint WHERE run_id = ANY(%(runs)s)",
    "UPDATE runs_settledoutcome SET body = NULL, purged_at = now() WHERE run_id = ANY(%(runs)s) AND body IS NOT NULL",
    "UPDATE runs_pausedexecution SET args = '{}', message = '', content = NULL WHERE run_id = ANY(%(runs)s)",
    "UPDATE runs_effect SET args = '{}', answer = jsonb_build_object('kind', answer->'kind')"
    " WHERE run_id = ANY(%(runs)s) AND answer IS NOT NULL",
    "UPDATE runs_run SET code = '', inputs = '{}', purged_at = now() WHERE id = ANY(%(runs)s)",
)


async def runs_purge(conn: Connection, *, older_than_days: float) -> int:
    """Purge one batch of runs finished that long ago, in one transaction. Unconfirmed runs wait for a person."""
    due = [row["id"] for row in await (await conn.execute(_DUE, (older_than_days,))).fetchall()]
    if due:
        async with conn.transaction():
            for statement in _STATEMENTS:
                await conn.execute(statement, {"runs": due})
    return len(due)
