"""Every tool call goes through here: reserved before it leaves, settled before the program goes on.

Calls belong to the broker, not to the sandbox: killing the sandbox neither stops nor forgets them, and a run is
final only when they are settled or known to be unknown.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import structlog

from runs.domain import limits
from runs.domain.crashpoints import reach
from runs.domain.effects import EffectClass, EffectState, sent_again_after_loss
from runs.domain.guards import EffectView, outcome_unknown
from runs.drivers.base import Raised, Returned
from runs.engine import answers, builtins
from runs.engine.calls import Call, Question, classify, decided
from runs.engine.context import EngineContext, RunIdentity
from runs.engine.durably import durably
from runs.engine.hold import Hold, now
from runs.engine.journal import Journal
from runs.store.ledger import Reservation, StoredCheckpoint, effect_settle, effects_reserve
from runs.tools.base import CallContext, CallOutcome, Refused, Succeeded, Unknown, Unrepresentable
from runs.tools.values import NotJSON, to_json

log = structlog.get_logger(__name__)

RESENDS = 3
"""How often a call that may be repeated is sent again in a row before the program is told of the time-out."""


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
        self._places = asyncio.Semaphore(limits.CALLS_IN_FLIGHT)
        self._ledger = {effect["call_index"]: effect for effect in effects}
        self._pauses = {pause["call_index"]: pause for pause in pauses}
        self.calls: dict[int, Call] = {record.index: Call(record) for record in journal.state.calls.values()}
        self.settled = sum(1 for effect in self._ledger.values() if effect["state"] == "settled" and _left(effect))
        """Calls that may have changed something and were answered."""

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
                call.task = asyncio.create_task(self._perform(call), name=f"call {call.index}")

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
            args=self._redacted(call),
        )

    def _redacted(self, call: Call) -> dict[str, Any]:
        """What is kept of the arguments: those marked as secret are not."""
        spec = call.spec
        sensitive = spec.sensitive if spec is not None else frozenset()
        return {name: "[redacted]" if name in sensitive else value for name, value in call.arguments.items()}

    async def _perform(self, call: Call) -> None:
        async with self._places:
            begun = time.monotonic()
            outcome = await self._send(call)
            duration_ms = (time.monotonic() - begun) * 1000
            if call.is_read:
                self._read(call, outcome, begun, duration_ms)
            elif isinstance(outcome, Unknown):
                call.lost = outcome.message
            else:
                reach("after_send")
                await self._settle(call, outcome, duration_ms)

    async def _send(self, call: Call) -> CallOutcome:
        spec = call.spec
        if spec is None:
            raise TypeError("only a tool call is sent")
        source = self._context.catalog.sources[spec.source]
        repeatable = call.is_read is False and sent_again_after_loss(spec.effect, source.honours_key)
        context = CallContext(str(self._identity.run_id), call.key, limits.CALL_TIMEOUT_S)
        outcome: CallOutcome = Refused(
            "upstream_unreachable", "this process may have lost the run; not sent", sent=False
        )
        for _ in range(1 + (RESENDS if repeatable else 0)):
            if not call.is_read and not await self._hold.sure():
                return outcome
            outcome = await self._invoke(spec, call, context)
            if not isinstance(outcome, Unknown):
                return outcome
        if repeatable and isinstance(outcome, Unknown):
            # It may have happened, and repeating it would change nothing: the program may know of the time-out.
            return Refused("upstream_timeout", outcome.message)
        return outcome

    async def _invoke(self, spec: Any, call: Call, context: CallContext) -> CallOutcome:
        source = self._context.catalog.sources[spec.source]
        try:
            outcome = await self._context.invoker.invoke(source, spec, call.arguments, self._identity.owner_id, context)
            return _keepable(outcome)
        except Exception as error:  # a defect of ours: what was sent cannot be told from its class
            log.exception("invoker_failed", tool=spec.address, run_id=str(self._identity.run_id))
            if call.is_read:
                return Refused("tool_failed", "the call failed unexpectedly; see the server's log")
            return Unknown("tool_failed", f"the call failed unexpectedly ({type(error).__name__})")

    def _read(self, call: Call, outcome: CallOutcome, begun: float, duration_ms: float) -> None:
        if isinstance(outcome, Unknown):
            outcome = Refused("upstream_timeout", outcome.message)
        row = answers.stored(outcome)
        status = getattr(outcome, "status", None)
        call.answer = answers.from_stored(row, status)
        if row["kind"] == "succeeded":
            row = {"kind": "succeeded"}  # a read is repeated after a crash, so its value need not be kept
        self._journal.read(
            {
                "key": call.key, "call_index": call.index, "tool": call.record.name, "args": self._redacted(call),
                "duration_ms": duration_ms, "begun": begun, "answer": row, "ok": answers.succeeded(outcome),
                "status": status,
            }
        )  # fmt: skip

    async def _settle(self, call: Call, outcome: CallOutcome, duration_ms: float) -> None:
        row, status = answers.stored(outcome), getattr(outcome, "status", None)
        params: dict[str, Any] = {
            "run_id": self._identity.run_id,
            "epoch": self._identity.epoch,
            "key": call.key,
            "call_index": call.index,
            "tool": call.record.name,
            "answer": row,
            "ok": answers.succeeded(outcome),
            "status": status,
            "duration_ms": duration_ms,
        }
        stored = await durably(self._context, lambda conn, _again: effect_settle(conn, **params))
        if not stored:
            log.warning("settled_elsewhere", key=call.key, run_id=str(self._identity.run_id))
        reach("after_settle")
        if row.get("sent", True):
            self.settled += 1
        call.answer = answers.from_stored(row, status)
        self._context.notify(self._identity.run_id)

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
            if not self._repeatable(call):
                unknown.append(call)
        return unknown

    def unsettled(self) -> list[Call]:
        """Calls that an earlier attempt reserved and nobody will repeat any more."""
        open_calls = {index for index, effect in self._ledger.items() if effect["state"] in ("reserved", "unknown")}
        found = [call for call in self.calls.values() if call.index in open_calls and call.answer is None]
        for call in found:
            call.lost = call.lost or "it was reserved before, and the run was stopped before it was repeated"
        return found

    def _repeatable(self, call: Call) -> bool:
        spec = call.spec
        return spec is not None and sent_again_after_loss(
            spec.effect, self._context.catalog.sources[spec.source].honours_key
        )

    def questions(self, calls: Iterable[Call]) -> list[tuple[Call, Question]]:
        return sorted(
            ((call, call.question) for call in calls if call.question is not None), key=lambda pair: pair[0].index
        )


def _keepable(outcome: CallOutcome) -> CallOutcome:
    """The outcome, with a value that the ledger can keep: one that it cannot is not a failure of the call."""
    if not isinstance(outcome, Succeeded):
        return outcome
    try:
        value = to_json(outcome.value, max_bytes=limits.OUTPUT_KEPT_BYTES, max_depth=limits.VALUE_DEPTH)
    except NotJSON as error:
        return Unrepresentable(str(error), outcome.status)
    return replace(outcome, value=value)


def _view(effect: dict[str, Any]) -> EffectView:
    return EffectView(EffectState(effect["state"]), EffectClass(effect["effect"]), effect["honours_key"])


def _left(effect: dict[str, Any]) -> bool:
    return bool((effect["answer"] or {}).get("sent", True))


def _zulu(timestamp: str) -> str:
    """A time from the database's JSON, which is in its session's zone, as the contract writes it."""
    return datetime.fromisoformat(timestamp).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
