"""Writing that outlives a lost database connection: a restart of the server in the middle is waited out.

A commit whose acknowledgement was lost is recognised by the statements themselves: repeated, they find their own
work (`again`), or lose their guard and the stored state is read.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

import psycopg
import structlog
from psycopg_pool import PoolTimeout

from runs.domain import limits
from runs.engine.context import EngineContext
from runs.store.transition import Connection

log = structlog.get_logger(__name__)
T = TypeVar("T")

_RETRY_S = 0.2


async def durably(context: EngineContext, write: Callable[[Connection, bool], Awaitable[T]]) -> T:
    """Call `write(connection, again)`; anew on a new connection when it is lost, within limits.DATABASE_AWAY_S.

    `again` is True where an earlier try may have committed. Raises the database's error after that time.
    """
    deadline, again = time.monotonic() + limits.DATABASE_AWAY_S, False
    while True:
        try:
            return await write(context.conn, again)
        except (psycopg.OperationalError, psycopg.InterfaceError) as error:
            if context.renew is None or time.monotonic() > deadline:
                raise
            log.warning("connection_lost", error=type(error).__name__)
        again = True
        await _renewed(context, deadline)


async def _renewed(context: EngineContext, deadline: float) -> None:
    while True:
        try:
            if context.renew is not None:
                context.conn = await context.renew()
            return
        except (psycopg.Error, PoolTimeout):
            if time.monotonic() > deadline:
                raise
        await asyncio.sleep(_RETRY_S)
