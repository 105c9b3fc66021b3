"""The process's beginning and end under ASGI: open, reconcile, serve; drain, close."""

import asyncio
import contextlib
import signal
from collections.abc import Callable
from types import FrameType
from typing import Any

import structlog

from executor_site.housekeeping import Housekeeper
from executor_site.resources import Resources
from executor_site.scope import ASGIApp, ASGIScope, Receive, Scope, Send
from runs.services.recover import runs_reap

log = structlog.get_logger(__name__)


class Lifespan:
    """Holds the process's resources while it serves."""

    def __init__(self, make: Callable[[], Resources] = lambda: Resources(role="web")) -> None:
        self._make = make
        self._resources: Resources | None = None
        self._housekeeper: Housekeeper | None = None

    @property
    def resources(self) -> Resources:
        if self._resources is None:
            raise RuntimeError("the process has not been started through its lifespan")
        return self._resources

    def around(self, app: ASGIApp) -> ASGIApp:
        async def application(scope: ASGIScope, receive: Receive, send: Send) -> None:
            if scope["type"] == "lifespan":
                await self._lifespan(receive, send)
            elif scope["type"] == "http":
                await app(scope, receive, send)
            else:
                raise ValueError(f"{scope['type']} is not served here")

        return application

    async def start(self) -> None:
        """Open everything, and judge what predecessors left, before the first request."""
        resources = self._make()
        await resources.open()
        self._resources = resources
        async with resources.pool.connection() as conn:
            await runs_reap(Scope(resources), conn)
        self._housekeeper = Housekeeper(resources)
        self._housekeeper.start()
        self._watch_for_drain(resources)

    async def stop(self) -> None:
        if self._housekeeper is not None:
            await self._housekeeper.close()
        if self._resources is not None:
            await self._resources.close()
            self._resources = None

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                try:
                    await self.start()
                except Exception as error:
                    log.exception("start_failed")
                    await send({"type": "lifespan.startup.failed", "message": f"{type(error).__name__}: {error}"})
                    return
                await send({"type": "lifespan.startup.complete"})
            elif message["type"] == "lifespan.shutdown":
                await self.stop()
                await send({"type": "lifespan.shutdown.complete"})
                return

    def _watch_for_drain(self, resources: Resources) -> None:
        """The server tells the lifespan only after the last stream has ended, so the signal itself starts the drain."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            before: Any = signal.getsignal(number)

            def drain(received: int, frame: FrameType | None, before: Any = before) -> None:
                loop.call_soon_threadsafe(resources.draining.set)
                if callable(before):
                    before(received, frame)

            with contextlib.suppress(ValueError):  # not the main thread: a test's server
                signal.signal(number, drain)
