"""Every tool call goes through here: reserved before it leaves, settled before the program goes on.

Calls belong to the broker, not to the sandbox: killing the sandbox neither stops nor forgets them, and a run is
final only when they are settled or known to be unknown.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import structlog

from runs.domain.crashpoints import reach
from runs.domain.effects import EffectClass, EffectState
from runs.domain.guards import EffectView, outcome_unknown
from runs.drivers.base import Raised, Returned
from runs.engine import answers, builtins
from runs.engine.calls import Call, Question, classify, decided, redacted
from runs.engine.context import EngineContext, RunIdentity
from runs.engine.durably import durably
from runs.engine.hold import Hold, now
from runs.engine.journal import Journal
from runs.engine.sender import Sender
from runs.store.ledger import Reservation, StoredCheckpoint, effects_reserve

log = structlog.get_logger(__name__)


class Superseded(Exception):
    """The reservation was refused: another epoch holds the run, or it was asked to stop. Nothing was sent."""


class Broker:
    def __init__(
        self,
        context: EngineContext,
        identity: RunIdentity,
        journal: Journal,
        *,
        hold: Hold,
        effects: Iterable[dict[str, Any]] = (),
        pauses: Iterable[dict[str, Any]] = (),
    ) -> None:
        self._context = context
        self._identity = identity
        self._journal = journal
        self._hold = hold
        self._ledger = {effect["call_index"]: effect for effect in effects}
        self._pauses = {pause["call_index"]: pause for pause in pauses}
        self.calls: dict[int, Call] = {record.index: Call(record) for record in journal.state.calls.values()}
        before = sum(1 for effect in self._ledger.values() if effect["state"] == "settled" and _left(effect))
        self._sender = Sender(context, identity, journal, hold, settled=before)

    @property
    def settled(self) -> int:
        """Calls that may have changed something and were answered."""
        return self._sender.settled

    def take_pauses(self, pauses: Iterable[dict[str, Any]]) -> None:
        """Decisions that were made while the program worked."""
        self._pauses.update({pause["call_index"]: pause for pause in pauses})

    @property
    def pause_count(self) -> int:
        return len(self._pauses)

    def admit(self, call: Call) -> None:
        """Decide where the call stands: from the ledger first, then from people's decisions, then from policy."""
        if call.answer is not None or call.task is not None or call.lost is not None:
            return
        effect = self._ledger.get(call.index)
        if effect is not None and effect["state"] == "settled":
            call.classified = True
            call.answer = answers.from_stored(effect["answer"], effect["status"])
            return
        may_repeat = effect is None or outcome_unknown(_view(effect)) is False
        if effect is not None and not may_repeat:
            call.lost = f"{effect['tool']} was reserved and never settled"
            return
        pause = self._pauses.get(call.index)
        approved = False
        if pause is not None and pause["decision"] is not None:
            approved = decided(call, pause)
            if not approved:
                return
            call.question = None
        elif pause is not None and call.question is not None and call.question.pause_id is not None:
            return
        name = call.record.name
        if name == "emit":
            self._emit(call)
            return
        classify(call, self._identity, self._context.catalog, approved=approved or effect is not None)
        if call.question is not None and pause is not None:
            call.question.pause_id = UUID(str(pause["id"]))
            call.question.expires_at = _zulu(pause["expires_at"])

    def _emit(self, call: Call) -> None:
        served = builtins.call("emit", call.record.args, call.record.kwargs, self._context.catalog)
        call.classified = True
        if isinstance(served, builtins.Emit):
            refusal = self._journal.emit(served.value)
            call.answer = Returned(None) if refusal is None else Raised("ValueError", refusal)
        elif isinstance(served, Raised):
            call.answer = served

    async def start(self, calls: Iterable[Call], checkpoint: Callable[[], Awaitable[StoredCheckpoint]]) -> None:
        """Reserve what must be reserved, in one commit with the checkpoint, then send. Raises Superseded."""
        starting = [call for call in calls if call.must_start]
        effects = [call for call in starting if not call.is_read]
        if effects:
            await self._reserve(effects, checkpoint)
        for call in starting:
            if call.lost is None:
                call.task = asyncio.create_task(self._sender.perform(call), name=f"call {call.index}")

    async def _reserve(self, calls: list[Call], checkpoint: Callable[[], Awaitable[StoredCheckpoint]]) -> None:
        reach("before_reserve")
        by = self._identity.auto_approved_by
        for call in calls:
            if by is not None and call.spec is not None:
                self._journal.event("auto_approved", tool=call.spec.address, call=call.index, by=by)
        stored = await checkpoint()
        reads = self._journal.take_reads(time.monotonic())
        params: dict[str, Any] = {
            "run_id": self._identity.run_id,
            "epoch": self._identity.epoch,
            "checkpoint": stored,
            "calls": [self._reservation(call) for call in calls],
            "events": self._journal.take_events(),
            "reads": reads,
        }
        asked_at = now()
        keys = await durably(self._context, lambda conn, again: effects_reserve(conn, **params, again=again))
        if keys is None:
            raise Superseded
        self._hold.confirm(asked_at)
        self._context.notify(self._identity.run_id)
        reach("after_reserve")
        for call in calls:
            if call.key not in keys:
                call.lost = f"the key of {call.record.name} was used before; it is not sent again"

    def _reservation(self, call: Call) -> Reservation:
        if call.spec is None:
            raise TypeError("only a tool call is reserved")
        return Reservation(
            key=call.key,
            call_index=call.index,
            tool=call.spec.address,
            effect=call.spec.effect.value,
            honours_key=self._context.catalog.sources[call.spec.source].honours_key,
            args=redacted(call),
        )

    @property
    def working(self) -> list["asyncio.Task[None]"]:
        return [call.task for call in self.calls.values() if call.task is not None and not call.task.done()]

    async def drain(self, within_s: float) -> list[Call]:
        """Wait until every call in flight is answered and settled; the effects that are not, after `within_s`.

        Reads in flight are given up at once: they changed nothing. A settle that failed counts as not known.
        """
        for call in self.calls.values():
            if call.is_read and call.task is not None:
                call.task.cancel()
        tasks = self.working
        if tasks:
            await asyncio.wait(tasks, timeout=within_s)
        unknown = []
        for call in self.calls.values():
            task = call.task
            if task is None:
                continue
            if not task.done():
                task.cancel()
                await asyncio.wait({task})
            if call.is_read or call.answer is not None:
                continue
            if call.lost is None:
                call.lost = "its answer was not stored in time"
            if not self._sender.repeatable(call):
                unknown.append(call)
        return unknown

    def unsettled(self) -> list[Call]:
        """Calls that an earlier attempt reserved and nobody will repeat any more."""
        open_calls = {index for index, effect in self._ledger.items() if effect["state"] in ("reserved", "unknown")}
        found = [call for call in self.calls.values() if call.index in open_calls and call.answer is None]
        for call in found:
            call.lost = call.lost or "it was reserved before, and the run was stopped before it was repeated"
        return found

    def questions(self, calls: Iterable[Call]) -> list[tuple[Call, Question]]:
        return sorted(
            ((call, call.question) for call in calls if call.question is not None), key=lambda pair: pair[0].index
        )


def _view(effect: dict[str, Any]) -> EffectView:
    return EffectView(EffectState(effect["state"]), EffectClass(effect["effect"]), effect["honours_key"])


def _left(effect: dict[str, Any]) -> bool:
    return bool((effect["answer"] or {}).get("sent", True))


def _zulu(timestamp: str) -> str:
    """A time from the database's JSON, which is in its session's zone, as the contract writes it."""
    return datetime.fromisoformat(timestamp).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
