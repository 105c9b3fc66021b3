"""Getting answers for calls: from tools, from people, from the clock. Where only people can answer, the run pauses."""

import datetime
import time
from collections.abc import Sequence
from typing import Any, Never

from runs.domain import limits
from runs.drivers.base import Answer, Broken, Returned
from runs.engine.broker import Broker, Superseded
from runs.engine.calls import Call, Question
from runs.engine.checkpoint import CheckpointTooLarge
from runs.engine.context import EngineContext, RunIdentity
from runs.engine.durably import durably
from runs.engine.ends import Body, Over, Stop, Stopped
from runs.engine.holder import SandboxHolder
from runs.engine.journal import Journal
from runs.engine.settle import Settler
from runs.store.events import run_status
from runs.store.ledger import checkpoint_store
from runs.store.pauses import decisions_read


class Answering:
    """`answers` returns, or ends the run by raising Over or Stopped."""

    def __init__(
        self,
        context: EngineContext,
        identity: RunIdentity,
        journal: Journal,
        broker: Broker,
        holder: SandboxHolder,
        settler: Settler,
        *,
        decisions: int,
    ) -> None:
        self.drain_s = limits.CALL_TIMEOUT_S + limits.SHUTDOWN_S
        """How long calls in flight are awaited at the end."""
        self._context = context
        self._identity = identity
        self._journal = journal
        self._broker = broker
        self._holder = holder
        self._settler = settler
        self._decisions = decisions

    async def answers(self, calls: Sequence[Call]) -> dict[int, Answer]:
        """At least one answer for these calls, each taken off the run's open calls."""
        await self._set_going(calls)
        while True:
            if any(call.lost for call in calls):
                await self._doubt()
            _end_sleeps(calls)
            ready = {call.index: call.answer for call in calls if call.answer is not None}
            if ready:
                for index in ready:
                    del self._broker.calls[index], self._journal.state.calls[index]
                return ready
            working = [call.task for call in calls if call.task is not None]
            wake_at = min((call.record.wake_at for call in calls if call.record.wake_at is not None), default=None)
            remaining = None if wake_at is None else max(0.0, wake_at - time.time())
            if working:
                await self._holder.wait(working, remaining)
            elif questions := self._broker.questions(calls):
                await self._pause(questions)
                await self._set_going(calls)
            elif remaining is not None:
                await self._sleep(remaining)
            else:
                raise RuntimeError("a program waits for calls that nothing can answer")

    async def _set_going(self, calls: Sequence[Call]) -> None:
        """Admit the calls, and reserve and send those that may go."""
        for call in calls:
            self._broker.admit(call)
        try:
            await self._broker.start(calls, self._holder.checkpoint)
        except Superseded:
            raise Stopped(await self.superseded() or Stop.LOST) from None
        except CheckpointTooLarge as error:
            await self._too_large(error)

    async def _pause(self, questions: Sequence[tuple[Call, Question]]) -> None:
        """Pause, and do not return; or return because a decision is there already."""
        fresh = sum(1 for _, question in questions if question.pause_id is None)
        if self._broker.pause_count + fresh > limits.PAUSES_PER_RUN:
            message = f"The program asked more than {limits.PAUSES_PER_RUN} questions."
            await self.fail(Broken("too_many_calls", message))
        try:
            checkpoint = await self._holder.checkpoint()
        except CheckpointTooLarge as error:
            await self._too_large(error)
        body = await self._settler.paused(questions, checkpoint, decisions=self._decisions)
        if body is not None:
            raise Over(body)
        why = await self.superseded()
        if why is not None:
            raise Stopped(why)
        run_id = self._identity.run_id
        self._decisions, pauses = await durably(self._context, lambda conn, _again: decisions_read(conn, run_id))
        self._broker.take_pauses(pauses.values())

    async def _sleep(self, remaining_s: float) -> None:
        """Wait for a sleep's end; a longer one survives this process, and gives its sandbox back."""
        if remaining_s > limits.SLEEP_INLINE_S:
            params: dict[str, Any] = {
                "run_id": self._identity.run_id,
                "epoch": self._identity.epoch,
                "checkpoint": await self._holder.checkpoint(),
                "events": self._journal.take_events(),
                "reads": self._journal.take_reads(time.monotonic()),
            }
            if not await durably(self._context, lambda conn, _again: checkpoint_store(conn, **params)):
                raise Stopped(await self.superseded() or Stop.LOST)
            await self._holder.give_back()
        await self._holder.wait([], remaining_s)

    async def all_settled(self) -> None:
        """No outcome before every call is settled; raises Over where that cannot be known of one."""
        unknown = await self._broker.drain(self.drain_s)
        if unknown:
            raise Over(await self._settler.doubted(unknown))

    async def fail(self, broken: Broken) -> Never:
        """End the run as failed, every call settled."""
        await self.all_settled()
        raise Over(await self._settler.failed(broken, self._broker))

    async def _too_large(self, error: CheckpointTooLarge) -> Never:
        await self.fail(Broken("checkpoint_too_large", f"The program's state is too large to keep: {error}."))

    async def _doubt(self) -> Never:
        """A call is lost: stop the program, settle the others, and leave the run to a person."""
        await self._holder.interrupt()
        lost = [call for call in self._broker.calls.values() if call.lost]
        unknown = await self._broker.drain(self.drain_s)
        named = {call.index: call for call in [*lost, *unknown]}
        raise Over(await self._settler.doubted(list(named.values())))

    async def stopped(self, why: Stop) -> Body | None:
        """End as the stop says, after every call in flight is settled or known to be unknown."""
        rests = self._holder.rests
        await self._holder.interrupt()
        unknown = await self._broker.drain(self.drain_s)
        if why is Stop.LOST:
            return None
        if why in (Stop.CANCEL, Stop.FLOOD):
            unknown = unknown or self._broker.unsettled()
        if unknown:
            return await self._settler.doubted(unknown)
        if why is Stop.CANCEL:
            return await self._settler.cancelled("asked to stop")
        if why is Stop.FLOOD:
            message = f"The program printed more than {limits.LOG_TOTAL_BYTES:,} bytes."
            return await self._settler.failed(Broken("output_limit_exceeded", message), self._broker)
        return await self._hand_on(rests)

    async def _hand_on(self, rests: bool) -> Body | None:
        """Suspend; with the state of right now, where the program rests, so that nothing is done again."""
        checkpoint = None
        if rests:
            try:
                checkpoint = await self._holder.checkpoint()
            except CheckpointTooLarge:
                checkpoint = None  # the one already stored, or the beginning, is as good: only reads are repeated
        if await self._settler.suspended("its scope ended", wake_at=self._wake_at(), checkpoint=checkpoint):
            return None
        if await self.superseded() is Stop.CANCEL:
            return await self._settler.cancelled("asked to stop")
        return None

    def _wake_at(self) -> datetime.datetime | None:
        """When a run that only sleeps has to go on."""
        ends = [call.record.wake_at for call in self._broker.calls.values()]
        if not ends or any(end is None for end in ends):
            return None
        return datetime.datetime.fromtimestamp(min(end for end in ends if end is not None), datetime.UTC)

    async def superseded(self) -> Stop | None:
        """Why a guard was lost: asked to stop, or another holder. None while neither is so."""
        run_id, epoch = self._identity.run_id, self._identity.epoch
        status = await durably(self._context, lambda conn, _again: run_status(conn, run_id))
        if status is None or status["epoch"] != epoch or status["state"] != "running":
            return Stop.LOST
        return Stop.CANCEL if status["cancel_requested_at"] is not None else None


def _end_sleeps(calls: Sequence[Call]) -> None:
    """Give every sleep its end, and answer those that are over."""
    now = time.time()
    for call in calls:
        if call.sleep_s is not None and call.answer is None:
            if call.record.wake_at is None:
                call.record.wake_at = now + call.sleep_s
            if call.record.wake_at <= now:
                call.answer = Returned(None)
