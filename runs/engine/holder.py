"""The sandbox of a run: held while its program works, given back while it waits, restored when it goes on."""

import asyncio
import contextlib
from collections.abc import Mapping
from typing import Any

from runs.domain import limits
from runs.drivers.base import Program, Sandbox, SnapshotImpossible, Step
from runs.engine.checkpoint import CheckpointTooLarge
from runs.engine.context import EngineContext, RunIdentity
from runs.engine.ends import Stop, Stopped
from runs.engine.journal import Journal
from runs.engine.program import prepare
from runs.store.ledger import StoredCheckpoint


class SandboxHolder:
    def __init__(
        self,
        context: EngineContext,
        identity: RunIdentity,
        journal: Journal,
        *,
        code: str,
        inputs: Mapping[str, Any],
        snapshot: bytes | None,
    ) -> None:
        self._code = code
        self._program: Program | None = None
        self._context = context
        self._identity = identity
        self._journal = journal
        self._inputs = inputs
        self._snapshot = snapshot
        """Where to go on from, while no sandbox is held."""
        self._sandbox: Sandbox | None = None
        self._stopping: asyncio.Future[Stop] = asyncio.get_running_loop().create_future()

    @property
    def program(self) -> Program:
        if self._program is None:
            raise RuntimeError("the program has not begun")
        return self._program

    async def _prepare(self) -> Program:
        if self._program is None:
            # Reading a long text takes seconds: a thread does it, and this loop goes on answering.
            long = len(self._code) > limits.CODE_READ_AT_ONCE_CHARS
            self._program = await asyncio.to_thread(prepare, self._code) if long else prepare(self._code)
        return self._program

    async def begin(self) -> Step:
        """Start the program, or restore it where its snapshot was taken. Raises what a driver's checkout raises."""
        program = await self._prepare()
        sandbox = await self._context.sandboxes.checkout(
            compute_s=self._identity.timeout_s,
            tools=self._context.catalog.modules,
            on_print=self._journal.printed,
        )
        self._sandbox = sandbox
        self.check_stop()
        if self._snapshot is None:
            return await sandbox.start(program, self._inputs)
        return await sandbox.restore(program, self._snapshot)

    async def ready(self) -> Sandbox:
        """The sandbox at the step being served, restored where it was given back."""
        if self._sandbox is None:
            await self.begin()
        if self._sandbox is None:
            raise RuntimeError("a sandbox was taken and is not there")
        return self._sandbox

    @property
    def has_begun(self) -> bool:
        """Whether there is state of the program to go on from."""
        return self._snapshot is not None

    @property
    def rests(self) -> bool:
        """No sandbox is held, and the snapshot is the program's state right now."""
        return self._sandbox is None and self._snapshot is not None

    async def checkpoint(self) -> StoredCheckpoint:
        """The state at this step, sealed. Raises CheckpointTooLarge."""
        if self._sandbox is not None:
            try:
                self._snapshot = await self._sandbox.snapshot()
            except SnapshotImpossible as error:
                raise CheckpointTooLarge(str(error)) from error
        if self._snapshot is None:
            raise RuntimeError("neither a sandbox nor a snapshot")
        return self._context.checkpoints.seal(self._identity.run_id, self._snapshot, self._journal.state)

    async def rest(self) -> None:
        """Give the sandbox back at a step, keeping its snapshot here."""
        if self._sandbox is not None:
            with contextlib.suppress(SnapshotImpossible):  # then it is held while it waits
                self._snapshot = await self._sandbox.snapshot()
                await self.give_back()

    async def give_back(self) -> None:
        sandbox, self._sandbox = self._sandbox, None
        if sandbox is not None:
            await sandbox.close()

    async def wait(self, tasks: "list[asyncio.Task[None]]", timeout: float | None = None) -> None:
        """Until one task is done, `timeout` seconds, or the run is to stop. A slow wait gives the sandbox back.

        Raises Stopped, and what a finished task raised.
        """
        waiting: set[asyncio.Future[Any]] = {*tasks, self._stopping}
        first = timeout
        if self._sandbox is not None:
            first = limits.SESSION_HOLD_S if timeout is None else min(limits.SESSION_HOLD_S, timeout)
        done, _ = await asyncio.wait(waiting, timeout=first, return_when=asyncio.FIRST_COMPLETED)
        if not done and first != timeout:
            await self.rest()
            rest = None if timeout is None else timeout - (first or 0.0)
            done, _ = await asyncio.wait(waiting, timeout=rest, return_when=asyncio.FIRST_COMPLETED)
        self.check_stop()
        for task in tasks:
            if task in done:
                task.result()

    async def stop(self, why: Stop) -> None:
        """Have the run stop, and interrupt its sandbox; returns when the sandbox's process is gone."""
        if not self._stopping.done():
            self._stopping.set_result(why)
        await self.interrupt()

    async def interrupt(self) -> None:
        if self._sandbox is not None:
            await self._sandbox.interrupt()

    def check_stop(self) -> None:
        """Raises Stopped."""
        if self._stopping.done():
            raise Stopped(self._stopping.result())
        if self._journal.flooded:
            raise Stopped(Stop.FLOOD)
