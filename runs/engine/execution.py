"""Driving one run: step the sandbox, serve its calls, until it stops. One task, one connection, one epoch.

It ends in exactly one way: a final outcome, a pause, handed on to any host, or lost to another holder.
"""

import asyncio
from collections.abc import Mapping
from typing import Any, assert_never

import psycopg
import structlog

from runs.domain import limits
from runs.drivers.base import (
    Broken,
    Called,
    Deferred,
    Finished,
    Raised,
    SandboxUnavailable,
    SnapshotRejected,
    Step,
    Waiting,
)
from runs.engine.answering import Answering
from runs.engine.broker import Broker
from runs.engine.calls import Call, record_of, unknown_name
from runs.engine.context import EngineContext, RunIdentity
from runs.engine.ends import Body, Over, Stop, Stopped
from runs.engine.hold import Hold
from runs.engine.holder import SandboxHolder
from runs.engine.journal import Journal
from runs.engine.settle import Settler
from runs.store.leases import lease_end

log = structlog.get_logger(__name__)


class Execution:
    """`done` resolves with the stored body, or None where the run goes on elsewhere."""

    def __init__(
        self,
        context: EngineContext,
        identity: RunIdentity,
        *,
        code: str,
        inputs: Mapping[str, Any],
        journal: Journal,
        broker: Broker,
        hold: Hold,
        snapshot: bytes | None = None,
        decisions: int = 0,
    ) -> None:
        self.identity = identity
        self.hold = hold
        self.done: asyncio.Future[Body | None] = asyncio.get_running_loop().create_future()
        self._context = context
        self._journal = journal
        self._broker = broker
        self._settler = Settler(context, identity, journal)
        self._holder = SandboxHolder(context, identity, journal, code=code, inputs=inputs, snapshot=snapshot)
        self._answering = Answering(
            context, identity, journal, broker, self._holder, self._settler, decisions=decisions
        )
        self._loop = asyncio.get_running_loop()
        self._ending: asyncio.Task[None] | None = None
        journal.on_flood = self._flooding
        self._task = asyncio.create_task(self._run(), name=f"run {identity.run_id}")

    async def stop(self, why: Stop, *, within_s: float | None = None) -> None:
        """Interrupt the sandbox and have the run stop; returns when the sandbox's process is gone.

        Calls in flight are still awaited and settled, for at most `within_s`; await `done` for the end.
        """
        if within_s is not None:
            self._answering.drain_s = within_s
        await self._holder.stop(why)

    def _flooding(self) -> None:
        """The program prints without end, and without calling its host: interrupt it now. From any thread."""
        self._loop.call_soon_threadsafe(self._end_flood)

    def _end_flood(self) -> None:
        self._ending = self._loop.create_task(self.stop(Stop.FLOOD))

    async def wait(self) -> None:
        """Until the run has stopped here and nothing of it works any more."""
        await asyncio.wait({self._task})

    async def _run(self) -> None:
        structlog.contextvars.bind_contextvars(run_id=str(self.identity.run_id))
        try:
            body = await self._to_the_end()
        except BaseException as error:
            # The row still says `running`: the reaper judges it from the ledger, at once and not after our lease.
            log.exception("execution_broke", epoch=self.identity.epoch)
            await self._let_go()
            self.done.set_exception(error)
            self.done.exception()  # callers may have gone; it was logged
            if not isinstance(error, Exception):
                raise
        else:
            if body is None:
                log.info("run_goes_on_elsewhere", epoch=self.identity.epoch)
            self.done.set_result(body)
        finally:
            await self._holder.give_back()

    async def _let_go(self) -> None:
        try:
            await lease_end(self._context.conn, run_id=self.identity.run_id, epoch=self.identity.epoch)
        except psycopg.Error as error:
            log.warning("lease_not_ended", error=type(error).__name__)  # then it expires by itself

    async def _to_the_end(self) -> Body | None:
        try:
            step = await self._begin()
            while True:
                self._holder.check_stop()
                step = await self._serve(step)
        except Over as over:
            return over.body
        except Stopped as stopped:
            return await self._answering.stopped(stopped.why)
        except SandboxUnavailable:
            # In the middle: what was done is in the ledger, and any host can go on from the checkpoint.
            await self._answering.all_settled()
            await self._settler.suspended("no sandbox was free")
            return None
        except SnapshotRejected:
            broken = Broken("checkpoint_invalid", "The stored checkpoint could not be restored.")
            return await self._settler.failed(broken, self._broker)

    async def _begin(self) -> Step:
        try:
            return await self._holder.begin()
        except SandboxUnavailable as error:
            if self._holder.has_begun:
                raise
            return Broken("sandbox_start_failed", f"Nothing has run: {error}.")

    async def _serve(self, step: Step) -> Step:
        match step:
            case Finished():
                await self._answering.all_settled()
                raise Over(await self._settler.finished(step.value, self._broker))
            case Broken():
                return await self._answering.fail(step)
            case Called():
                return await self._serve_call(step)
            case Waiting():
                answers = await self._answering.answers([self._broker.calls[index] for index in step.indexes])
                return await (await self._holder.ready()).answer_waiting(answers)
            case _:
                assert_never(step)

    async def _serve_call(self, step: Called) -> Step:
        call = self._broker.calls.get(step.index)
        if call is None:
            self._journal.state.call_count += 1
            if self._journal.state.call_count > limits.CALLS_PER_RUN:
                return Broken("too_many_calls", f"The program made more than {limits.CALLS_PER_RUN:,} calls.")
            record = unknown_name(step) or await record_of(step)
            if isinstance(record, Raised):
                return await (await self._holder.ready()).answer(record)
            call = self._broker.calls[step.index] = Call(record)
            self._journal.state.calls[step.index] = record
        if step.awaited or step.position in self._holder.program.deferred or step.name == "asyncio.sleep":
            return await (await self._holder.ready()).answer(Deferred())
        answers = await self._answering.answers([call])
        return await (await self._holder.ready()).answer(answers[step.index])
