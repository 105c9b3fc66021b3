"""Driving one run: step the sandbox, serve its calls, until it stops. One task, one connection, one epoch.

It ends in exactly one way: a final outcome, a pause, handed on to any host, or lost to another holder.
"""

import asyncio
import datetime
import time
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, Never, assert_never

import structlog

from runs.domain import limits
from runs.drivers.base import (
    Answer,
    Broken,
    Called,
    Deferred,
    Finished,
    Raised,
    Returned,
    Sandbox,
    SandboxUnavailable,
    SnapshotRejected,
    Step,
    Waiting,
)
from runs.engine.broker import Broker, Superseded
from runs.engine.calls import Call, record_of
from runs.engine.checkpoint import CheckpointTooLarge
from runs.engine.context import EngineContext, RunIdentity
from runs.engine.durably import durably
from runs.engine.hold import Hold
from runs.engine.journal import Journal
from runs.engine.program import prepare
from runs.engine.settle import Body, Settler
from runs.store.events import run_status
from runs.store.ledger import StoredCheckpoint, checkpoint_store
from runs.store.pauses import decisions_read

log = structlog.get_logger(__name__)


class Stop(StrEnum):
    SCOPE = "scope"
    """The scope ends: hand the run on."""
    CANCEL = "cancel"
    LOST = "lost"
    """Another epoch holds the run: write nothing."""
    FLOOD = "flood"


class _Stopped(Exception):
    def __init__(self, why: Stop) -> None:
        self.why = why


class _Over(Exception):
    """The run has stopped and its outcome is stored (or it is handed on: no body)."""

    def __init__(self, body: Body | None) -> None:
        self.body = body


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
        self._program = prepare(code)
        self._inputs = inputs
        self._journal = journal
        self._broker = broker
        self._settler = Settler(context, identity, journal)
        self._snapshot = snapshot
        """Where to go on from, while no sandbox is held."""
        self._decisions = decisions
        self._sandbox: Sandbox | None = None
        self._stopping: asyncio.Future[Stop] = asyncio.get_running_loop().create_future()
        self._drain_s = limits.CALL_TIMEOUT_S + limits.SHUTDOWN_S
        self._task = asyncio.create_task(self._run(), name=f"run {identity.run_id}")

    async def stop(self, why: Stop, *, within_s: float | None = None) -> None:
        """Interrupt the sandbox and have the run stop; returns when the sandbox's process is gone.

        Calls in flight are still awaited and settled, for at most `within_s`; await `done` for the end.
        """
        if not self._stopping.done():
            self._stopping.set_result(why)
            if within_s is not None:
                self._drain_s = within_s
        if self._sandbox is not None:
            await self._sandbox.interrupt()

    async def wait(self) -> None:
        """Until the run has stopped here and nothing of it works any more. Raises what was never expected."""
        await asyncio.wait({self._task})

    async def _run(self) -> None:
        structlog.contextvars.bind_contextvars(run_id=str(self.identity.run_id))
        try:
            body = await self._to_the_end()
        except BaseException as error:
            # The row still says `running` under our lease: the reaper judges it from the ledger.
            log.exception("execution_broke", epoch=self.identity.epoch)
            self.done.set_exception(error)
            self.done.exception()  # callers may have gone; it was logged
            if not isinstance(error, Exception):
                raise
        else:
            self.done.set_result(body)
        finally:
            await self._give_back()

    async def _to_the_end(self) -> Body | None:
        try:
            step = await self._begin()
            while True:
                self._check_stop()
                step = await self._serve(step)
        except _Over as over:
            return over.body
        except _Stopped as stopped:
            return await self._stopped(stopped.why)

    async def _begin(self) -> Step:
        try:
            return await self._take_sandbox()
        except SandboxUnavailable as error:
            if self._snapshot is None and not self._broker.calls:
                raise _Over(
                    await self._settler.failed(
                        Broken("sandbox_start_failed", f"Nothing has run: {error}."), self._broker
                    )
                ) from error
            await self._settler.suspended("no sandbox was free")
            raise _Over(None) from error
        except SnapshotRejected as error:
            broken = Broken("checkpoint_invalid", "The stored checkpoint could not be restored.")
            raise _Over(await self._settler.failed(broken, self._broker)) from error

    async def _take_sandbox(self) -> Step:
        sandbox = await self._context.sandboxes.checkout(
            compute_s=self.identity.timeout_s,
            tools=self._context.catalog.modules,
            on_print=self._journal.printed,
        )
        self._sandbox = sandbox
        self._check_stop()
        if self._snapshot is None:
            return await sandbox.start(self._program, self._inputs)
        return await sandbox.restore(self._program, self._snapshot)

    async def _serve(self, step: Step) -> Step:
        match step:
            case Finished():
                await self._final()
                raise _Over(await self._settled(await self._settler.finished(step.value, self._broker)))
            case Broken():
                await self._final()
                raise _Over(await self._settled(await self._settler.failed(step, self._broker)))
            case Called():
                return await self._serve_call(step)
            case Waiting():
                calls = [self._broker.calls[index] for index in step.indexes]
                answers = await self._answers(calls)
                return await (await self._ready_sandbox()).answer_waiting(answers)
            case _:
                assert_never(step)

    async def _serve_call(self, step: Called) -> Step:
        sandbox = await self._ready_sandbox()
        call = self._broker.calls.get(step.index)
        if call is None:
            self._journal.state.call_count += 1
            if self._journal.state.call_count > limits.CALLS_PER_RUN:
                return Broken("too_many_calls", f"The program made more than {limits.CALLS_PER_RUN:,} calls.")
            record = record_of(step)
            if isinstance(record, Raised):
                return await sandbox.answer(record)
            call = self._broker.calls[step.index] = Call(record)
            self._journal.state.calls[step.index] = record
        if step.awaited or step.position in self._program.deferred or step.name == "asyncio.sleep":
            return await sandbox.answer(Deferred())
        answers = await self._answers([call])
        return await (await self._ready_sandbox()).answer(answers[step.index])

    async def _answers(self, calls: Sequence[Call]) -> dict[int, Answer]:
        """At least one answer for these calls; pauses the run where only people can give one."""
        for call in calls:
            self._broker.admit(call)
        if not any(call.answer for call in calls):
            try:
                await self._broker.start(calls, self._checkpoint)
            except Superseded:
                raise _Stopped(await self._why_superseded()) from None
            except CheckpointTooLarge as error:
                raise _Over(await self._too_large(error)) from error
        while True:
            if any(call.lost for call in calls):
                await self._doubt()
            self._end_sleeps(calls)
            ready = {call.index: call.answer for call in calls if call.answer is not None}
            if ready:
                for index in ready:
                    del self._broker.calls[index], self._journal.state.calls[index]
                return ready
            working = [call.task for call in calls if call.task is not None]
            sleeping = min((call.record.wake_at for call in calls if call.record.wake_at is not None), default=None)
            if working:
                await self._wait_for(working, None if sleeping is None else max(0.0, sleeping - time.time()))
            elif questions := self._broker.questions(calls):
                await self._pause(questions)
                for call in calls:
                    self._broker.admit(call)
                await self._broker.start(calls, self._checkpoint)
            elif sleeping is not None:
                await self._sleep(sleeping - time.time())
            else:
                raise RuntimeError("a program waits for calls that nothing can answer")

    def _end_sleeps(self, calls: Sequence[Call]) -> None:
        """Give every sleep its end, and answer those that are over."""
        now = time.time()
        for call in calls:
            if call.sleep_s is not None and call.answer is None:
                if call.record.wake_at is None:
                    call.record.wake_at = now + call.sleep_s
                if call.record.wake_at <= now:
                    call.answer = Returned(None)

    async def _wait_for(self, tasks: Sequence["asyncio.Task[None]"], timeout: float | None = None) -> None:
        """Until one of the calls is answered, or the run is to stop. A slow wait gives the sandbox back."""
        held = self._sandbox is not None
        waiting: set[asyncio.Future[Any]] = {*tasks, self._stopping}
        first = min(limits.SESSION_HOLD_S, timeout or limits.SESSION_HOLD_S)
        done, _ = await asyncio.wait(waiting, timeout=first if held else timeout, return_when=asyncio.FIRST_COMPLETED)
        if not done and held:
            self._snapshot = await self._take_snapshot()
            await self._give_back()
            rest = None if timeout is None else max(0.0, timeout - first)
            done, _ = await asyncio.wait(waiting, timeout=rest, return_when=asyncio.FIRST_COMPLETED)
        self._check_stop()
        for task in tasks:
            if task in done and task.exception() is not None:
                raise task.exception()  # type: ignore[misc]

    async def _ready_sandbox(self) -> Sandbox:
        """The sandbox at the step being served: restored, where it was given back during a wait."""
        if self._sandbox is None:
            try:
                await self._take_sandbox()
            except SandboxUnavailable as error:
                await self._final()
                await self._settler.suspended("no sandbox was free")
                raise _Over(None) from error
        if self._sandbox is None:
            raise RuntimeError("a sandbox was taken and is not there")
        return self._sandbox

    async def _take_snapshot(self) -> bytes:
        if self._sandbox is not None:
            return await self._sandbox.snapshot()
        if self._snapshot is None:
            raise RuntimeError("neither a sandbox nor a snapshot")
        return self._snapshot

    async def _checkpoint(self) -> StoredCheckpoint:
        snapshot = self._snapshot = await self._take_snapshot()
        return self._context.checkpoints.seal(self.identity.run_id, snapshot, self._journal.state)

    async def _give_back(self) -> None:
        sandbox, self._sandbox = self._sandbox, None
        if sandbox is not None:
            await sandbox.close()

    async def _pause(self, questions: Sequence[tuple[Call, Any]]) -> None:
        """Pause, and do not return; or return because a decision is there already."""
        fresh = sum(1 for _, question in questions if question.pause_id is None)
        if self._broker.pause_count + fresh > limits.PAUSES_PER_RUN:
            broken = Broken("too_many_calls", f"The program asked more than {limits.PAUSES_PER_RUN} questions.")
            await self._final()
            raise _Over(await self._settled(await self._settler.failed(broken, self._broker)))
        try:
            checkpoint = await self._checkpoint()
        except CheckpointTooLarge as error:
            raise _Over(await self._too_large(error)) from error
        body = await self._settler.paused(questions, checkpoint, decisions=self._decisions)
        if body is not None:
            raise _Over(body)
        why = await self._superseded()
        if why is not None:
            raise _Stopped(why)
        self._decisions, pauses = await durably(
            self._context, lambda conn, _again: decisions_read(conn, self.identity.run_id)
        )
        self._broker.take_pauses(pauses.values())

    async def _sleep(self, remaining_s: float) -> None:
        """Wait for a sleep's end; a longer one survives this process, and gives its sandbox back."""
        if remaining_s > limits.SLEEP_INLINE_S:
            params: dict[str, Any] = {
                "run_id": self.identity.run_id,
                "epoch": self.identity.epoch,
                "checkpoint": await self._checkpoint(),
                "events": self._journal.take_events(),
                "reads": self._journal.take_reads(time.monotonic()),
            }
            stored = await durably(self._context, lambda conn, _again: checkpoint_store(conn, **params))
            if not stored:
                raise _Stopped(await self._why_superseded())
            await self._give_back()
        if remaining_s > 0:
            await self._wait_for([], timeout=remaining_s)

    async def _final(self) -> None:
        """No outcome before every call is settled."""
        unknown = await self._broker.drain(self._drain_s)
        if unknown:
            raise _Over(await self._settled(await self._settler.doubted(unknown)))

    async def _doubt(self) -> Never:
        """A call is lost: stop the program, settle the others, and leave the run to a person."""
        if self._sandbox is not None:
            await self._sandbox.interrupt()
            self._sandbox = None
        lost = [call for call in self._broker.calls.values() if call.lost]
        unknown = await self._broker.drain(self._drain_s)
        named = {call.index: call for call in [*lost, *unknown]}
        raise _Over(await self._settled(await self._settler.doubted(list(named.values()))))

    async def _too_large(self, error: CheckpointTooLarge) -> Body | None:
        await self._final()
        broken = Broken("checkpoint_too_large", f"The program's state is too large to keep: {error}.")
        return await self._settled(await self._settler.failed(broken, self._broker))

    async def _settled(self, body: Body | None) -> Body | None:
        if body is None:
            log.info("run_lost", epoch=self.identity.epoch)
        return body

    def _check_stop(self) -> None:
        if self._stopping.done():
            raise _Stopped(self._stopping.result())
        if self._journal.flooded:
            raise _Stopped(Stop.FLOOD)

    async def _stopped(self, why: Stop) -> Body | None:
        """End as the stop says, after every call in flight is settled or known to be unknown."""
        if self._sandbox is not None:
            await self._sandbox.interrupt()
        unknown = await self._broker.drain(self._drain_s)
        if why in (Stop.CANCEL, Stop.FLOOD):
            unknown = unknown or self._broker.unsettled()
        match why:
            case Stop.LOST:
                return await self._settled(None)
            case _ if unknown:
                return await self._settled(await self._settler.doubted(unknown))
            case Stop.CANCEL:
                return await self._settled(await self._settler.cancelled("asked to stop"))
            case Stop.FLOOD:
                broken = Broken(
                    "output_limit_exceeded", f"The program printed more than {limits.LOG_TOTAL_BYTES:,} bytes."
                )
                return await self._settled(await self._settler.failed(broken, self._broker))
            case Stop.SCOPE:
                if not await self._settler.suspended("its scope ended", wake_at=self._wake_at()):
                    superseded = await self._superseded()
                    if superseded is Stop.CANCEL:
                        return await self._settled(await self._settler.cancelled("asked to stop"))
                return None
            case _:
                assert_never(why)

    def _wake_at(self) -> datetime.datetime | None:
        """When a run that only sleeps has to go on."""
        calls = list(self._broker.calls.values())
        ends = [call.record.wake_at for call in calls]
        if not ends or any(end is None for end in ends):
            return None
        return datetime.datetime.fromtimestamp(min(end for end in ends if end is not None), datetime.UTC)

    async def _why_superseded(self) -> Stop:
        """Why a guard was lost: asked to stop, or another holder."""
        return await self._superseded() or Stop.LOST

    async def _superseded(self) -> Stop | None:
        """None while this epoch holds the run and nobody asked it to stop."""
        status = await durably(self._context, lambda conn, _again: run_status(conn, self.identity.run_id))
        if status is None or status["epoch"] != self.identity.epoch or status["state"] != "running":
            return Stop.LOST
        return Stop.CANCEL if status["cancel_requested_at"] is not None else None
