"""What django-q2 runs: each job is one event loop, one set of resources and one scope of its own.

Jobs are synchronous at their edge (django-q2 cannot carry coroutines) and cross into the async core once.
"""

import asyncio
from collections.abc import Awaitable, Callable
from uuid import UUID

import structlog

from executor_site.housekeeping import Housekeeper
from executor_site.resources import Resources
from executor_site.scope import Scope
from runs.services.dispatch import run_dispatch
from runs.services.sweep import sweep_all

_JOB_POOL = 4
"""Connections of one job: its scope's, its heartbeat's, one for credentials, one spare."""


def run_go_on(run_id: str) -> str:
    """Take the run, if it is there to be taken, and drive it to its next stop. Repeating it is harmless."""
    structlog.contextvars.clear_contextvars()
    structlog.contextvars.bind_contextvars(run_id=run_id)
    return asyncio.run(_in_scope(lambda scope: run_dispatch(scope, UUID(run_id))))


def sweep() -> str:
    """The periodic duties: reap, expire, retention, nudge."""
    return asyncio.run(_in_scope(sweep_all))


async def _in_scope(work: Callable[[Scope], Awaitable[str]]) -> str:
    resources = Resources(role="worker", pool_size=_JOB_POOL)
    await resources.open()
    beat = Housekeeper(resources, sweeps=False)
    beat.start()
    try:
        scope = Scope(resources)
        try:
            return await work(scope)
        finally:
            await scope.close()
    finally:
        await beat.close()
        await resources.close()
