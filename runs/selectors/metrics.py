"""The site's figures for /metrics: counts, ages and durations, read in one short transaction."""

from dataclasses import dataclass
from typing import Any

from runs.store.transition import Connection

QUANTILES = ("0.5", "0.9", "0.99")
_TIMEOUT = "SET LOCAL statement_timeout = '5s'"
"""A scrape that takes longer than its interval of 15 s usually is would pile up."""
_BY_STATE = "SELECT state, count(*) AS n FROM runs_run GROUP BY state"
# `purged_at IS NULL` lets the index run_unpurged answer: what finished within an hour is never purged.
_RECENT = "FROM runs_run WHERE purged_at IS NULL AND finished_at >= now() - interval '1 hour'"
_FINISHED = f"SELECT state, coalesce(error_code, '') AS code, count(*) AS n {_RECENT} GROUP BY 1, 2"
_ONE = f"""
SELECT
    (SELECT percentile_cont(ARRAY[{", ".join(QUANTILES)}]::float8[]) WITHIN GROUP
        (ORDER BY extract(epoch FROM finished_at - created_at)::float8) {_RECENT}) AS durations,
    (SELECT coalesce(extract(epoch FROM now() - min(created_at)), 0)::float8
        FROM runs_run WHERE state = 'queued') AS queued_oldest_age_seconds,
    p.n AS approvals_pending, p.age AS approvals_oldest_age_seconds,
    (SELECT count(*) FROM runs_effect WHERE state <> 'settled' AND state = 'unknown') AS effects_unknown,
    (SELECT count(*) FROM runs_run
        WHERE cancel_requested_at IS NOT NULL AND finished_at IS NULL) AS runs_stopping,
    (SELECT count(*) FROM runs_attempt WHERE ended_by = 'lost') AS reaps
FROM (SELECT count(*) AS n, coalesce(extract(epoch FROM now() - min(created_at)), 0)::float8 AS age
    FROM runs_pausedexecution WHERE decision IS NULL) p"""


@dataclass(frozen=True, slots=True)
class Figures:
    by_state: dict[str, int]
    finished: dict[tuple[str, str], int]
    """In the last hour, by state and error code."""
    durations: dict[str, float]
    """Seconds by quantile; empty where nothing finished in the last hour."""
    queued_oldest_age_seconds: float
    approvals_pending: int
    approvals_oldest_age_seconds: float
    effects_unknown: int
    runs_stopping: int
    reaps: int


async def figures_read(conn: Connection) -> Figures:
    """Raises psycopg.Error, also where a query takes too long."""
    async with conn.transaction():
        await conn.execute(_TIMEOUT)
        by_state = await (await conn.execute(_BY_STATE)).fetchall()
        finished = await (await conn.execute(_FINISHED)).fetchall()
        one: dict[str, Any] | None = await (await conn.execute(_ONE)).fetchone()
    assert one is not None
    durations = one.pop("durations")
    return Figures(
        by_state={row["state"]: row["n"] for row in by_state},
        finished={(row["state"], row["code"]): row["n"] for row in finished},
        durations={} if durations is None else dict(zip(QUANTILES, durations, strict=True)),
        **one,
    )
