"""What django-q2 runs: each job is one event loop, one set of resources and one scope of its own.

Jobs are synchronous at their edge (django-q2 cannot carry coroutines) and cross into the async core once.
"""

import asyncio
import multiprocessing
from collections.abc import Awaitable, Callable
from uuid import UUID

import structlog
from django.conf import settings

from executor_site.housekeeping import Housekeeper
from executor_site.resources import Resources
from executor_site.scope import Scope
from runs.services.dispatch import run_dispatch
from runs.services.sweep import sweep_all

stopping = multiprocessing.Event()
"""Set by the cluster's command on SIGTERM; its forked workers share it."""

_JOB_POOL = 4
"""Connections of one job: its scope's, one for credentials, two spare."""
_LOOK_S = 0.1
_DRAIN_SHARE = 0.7
"""Of the site's drain: what a job's calls in flight get to be answered, before the supervisor's deadline."""


def run_go_on(run_id: str) -> str:
    """Take the run, if it is there to be taken, and drive it to its next stop. Repeating it is harmless."""
    structlog.contextvars.clear_contextvars()
    structlog.contextvars.bind_contextvars(run_id=run_id)
    if stopping.is_set():
        return "stopping"  # the row still waits; the sweep finds it
    return asyncio.run(_in_scope(lambda scope: run_dispatch(scope, UUID(run_id))))


def sweep() -> str:
    """The periodic duties: reap, expire, retention, nudge."""
    return asyncio.run(_in_scope(sweep_all))


async def _in_scope(work: Callable[[Scope], Awaitable[str]]) -> str:
    resources = Resources(role="worker", pool_size=_JOB_POOL)
    await resources.open()
    beat = Housekeeper(resources, sweeps=False)
    beat.start()
    watch = asyncio.create_task(_watch(resources))
    try:
        scope = Scope(resources)
        try:
            return await work(scope)
        finally:
            draining = resources.draining.is_set()
            await scope.close(within_s=settings.DRAIN_SECONDS * _DRAIN_SHARE if draining else None)
    finally:
        watch.cancel()
        await beat.close()
        await resources.close()


async def _watch(resources: Resources) -> None:
    while not stopping.is_set():  # noqa: ASYNC110 - an event shared by processes cannot be awaited
        await asyncio.sleep(_LOOK_S)
    resources.draining.set()
