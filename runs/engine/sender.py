"""Sending one call and keeping its answer: sent at most once while the hold is sure, settled before it counts.

What a call did is told by its outcome alone; an answer that was stored elsewhere first, or came too late, changes
nothing.
"""

import asyncio
import time
from dataclasses import replace
from typing import Any

import structlog

from runs.domain import limits
from runs.domain.crashpoints import reach
from runs.domain.effects import sent_again_after_loss
from runs.engine import answers
from runs.engine.calls import Call, redacted
from runs.engine.context import EngineContext, RunIdentity
from runs.engine.durably import durably
from runs.engine.hold import Hold
from runs.engine.journal import Journal
from runs.store.ledger import effect_settle
from runs.tools.base import CallContext, CallOutcome, Refused, Succeeded, Unknown, Unrepresentable
from runs.tools.values import NotJSON, to_json_beside

log = structlog.get_logger(__name__)

RESENDS = 3
"""How often a call that may be repeated is sent again in a row before the program is told of the time-out."""


class Sender:
    def __init__(
        self, context: EngineContext, identity: RunIdentity, journal: Journal, hold: Hold, *, settled: int
    ) -> None:
        self.settled = settled
        """Calls of the run that may have changed something and were answered."""
        self._context = context
        self._identity = identity
        self._journal = journal
        self._hold = hold
        self._places = asyncio.Semaphore(limits.CALLS_IN_FLIGHT)

    def repeatable(self, call: Call) -> bool:
        """Whether the call may be sent again when its outcome is not known."""
        spec = call.spec
        return spec is not None and sent_again_after_loss(
            spec.effect, self._context.catalog.sources[spec.source].honours_key
        )

    async def perform(self, call: Call) -> None:
        """Send the call, and keep its answer: in the ledger for an effect, in the journal for a read."""
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
            return await _keepable(outcome)
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
                "key": call.key, "call_index": call.index, "tool": call.record.name, "args": redacted(call),
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


async def _keepable(outcome: CallOutcome) -> CallOutcome:
    """The outcome, with a value that the ledger can keep: one that it cannot is not a failure of the call."""
    if not isinstance(outcome, Succeeded):
        return outcome
    try:
        value = await to_json_beside(
            outcome.value,
            at_once_bytes=limits.VALUE_AT_ONCE_BYTES,
            max_bytes=limits.OUTPUT_KEPT_BYTES,
            max_depth=limits.VALUE_DEPTH,
        )
    except NotJSON as error:
        return Unrepresentable(str(error), outcome.status)
    return replace(outcome, value=value)
