"""How a run stops: its answer is made here and stored in one commit with the move that ends its attempt."""

import json
import re
import time
from collections.abc import Sequence
from typing import Any
from uuid import UUID, uuid4

from runs.domain import limits
from runs.domain.crashpoints import reach
from runs.domain.outcomes import Cancelled, Completed, Failed, Paused, Unconfirmed, execution_id
from runs.domain.outcomes import Question as ShownQuestion
from runs.drivers.base import Broken
from runs.engine import answers, builtins
from runs.engine.broker import Broker
from runs.engine.calls import NO_IO, Call, Question, redacted
from runs.engine.context import EngineContext, RunIdentity
from runs.engine.durably import durably
from runs.engine.ends import Body
from runs.engine.journal import Journal
from runs.store import stops
from runs.store.ledger import StoredCheckpoint
from runs.store.transition import Moved
from runs.tools.catalog import Catalog
from runs.tools.values import NotJSON, to_json_beside

_NO_ATTRIBUTE = re.compile(r"^AttributeError: module '(\w+)' has no attribute '(\w+)'")
_NO_MODULE = re.compile(r"^ModuleNotFoundError: No module named '([\w.]+)'")


class Settler:
    """Writes the stops of one run. Each method returns the stored body, or None where a guard was lost."""

    def __init__(self, context: EngineContext, identity: RunIdentity, journal: Journal) -> None:
        self._context = context
        self._identity = identity
        self._journal = journal

    @property
    def _run(self) -> str:
        return str(self._identity.run_id)

    def _common(self) -> dict[str, Any]:
        return {
            "run_id": self._identity.run_id,
            "epoch": self._identity.epoch,
            "outcome": uuid4(),
            "reads": self._journal.take_reads(time.monotonic()),
        }

    async def finished(self, value: Any, broker: Broker) -> Body | None:
        """The program ended with `value`: completed, or failed where the value cannot be a result."""
        try:
            result = await to_json_beside(
                value,
                at_once_bytes=limits.VALUE_AT_ONCE_BYTES,
                max_bytes=limits.OUTPUT_KEPT_BYTES,
                max_depth=limits.VALUE_DEPTH,
            )
        except NotJSON as error:
            code = "result_too_large" if "larger than" in error.why else "result_not_json"
            return await self.failed(Broken(code, f"The result is not representable: {error}"), broker)
        text = json.dumps(result, ensure_ascii=False)
        size = len(text.encode())
        if size > limits.RESULT_BYTES:
            message = (
                f"The result is {size:,} bytes; at most {limits.RESULT_BYTES:,} are answered. "
                f"It is kept at {self._output_url('result')}"
            )
            kept = {"name": "result", "text": text, "total_bytes": size}
            return await self.failed(Broken("result_too_large", message), broker, outputs=[kept])
        logs, outputs, truncated = self._logs()
        body = Completed(self._run, result, logs, self._journal.state.emitted, truncated).body()
        return await self._finish(body, None, outputs)

    async def failed(
        self, broken: Broken, broker: Broker, *, unknown: int = 0, outputs: Sequence[dict[str, Any]] = ()
    ) -> Body | None:
        code, message = explain(broken, self._context.catalog)
        logs, log_outputs, truncated = self._logs()
        if truncated:
            logs = [*logs, f"[cut; all of it is kept at {self._output_url('logs')}]"]
        body = Failed(self._run, code, message, broken.line, broker.settled, unknown, logs).body()
        return await self._finish(body, code, [*outputs, *log_outputs])

    async def _finish(self, body: Body, code: str | None, outputs: Sequence[dict[str, Any]]) -> Body | None:
        reach("before_finish")
        params = {**self._common(), "events": self._journal.take_events(), "outputs": outputs}
        moved = await durably(
            self._context, lambda conn, _again: stops.run_finish(conn, **params, body=body, code=code)
        )
        return self._told(body) if isinstance(moved, Moved) else None

    def _told(self, body: Body) -> Body:
        self._context.notify(self._identity.run_id)
        reach("after_finish")
        return body

    async def paused(
        self, waiting: Sequence[tuple[Call, Question]], checkpoint: StoredCheckpoint, *, decisions: int
    ) -> Body | None:
        """All that is left waits for a person. None: a decision or a stop came first; nothing was written."""
        reach("before_pause")
        fresh = []
        for call, question in waiting:
            if question.pause_id is None:
                question.pause_id = uuid4()
                fresh.append(self._row(call, question))
        call, question = waiting[0]
        events, common = self._journal.take_events(), self._common()
        params = {
            **common,
            "decisions": decisions,
            "checkpoint": checkpoint,
            "questions": fresh,
            "body": Paused(self._run, self._shown(call, question)).body(),
            "expires_at": question.expires_at,
            "expires_s": self._context.pause_expires_s,
            "events": events,
        }
        moved = await durably(self._context, lambda conn, _again: stops.run_pause(conn, **params))
        if not isinstance(moved, Moved):
            self._journal.put_back(events, [])
            for row in fresh:
                next(q for _, q in waiting if q.pause_id == row.id).pause_id = None
            return None
        self._context.notify(self._identity.run_id)
        reach("after_pause")
        return dict(moved.extra["body"])

    def _row(self, call: Call, question: Question) -> stops.NewQuestion:
        if question.pause_id is None:
            raise TypeError("a question becomes a row with its id")
        return stops.NewQuestion(
            id=question.pause_id,
            call_index=call.index,
            kind=question.kind,
            tool=_tool(call),
            args=_args(call),
            message=question.message,
            approver=question.approver.value,
            expires_s=self._context.pause_expires_s,
            requested_schema=question.schema,
            url=question.url,
        )

    def _shown(self, call: Call, question: Question) -> ShownQuestion:
        name = execution_id(str(question.pause_id))
        return ShownQuestion(
            execution_id=name,
            kind=question.kind,
            message=question.message,
            tool=_tool(call),
            args=_args(call),
            expires_at=question.expires_at or "",
            approve_url=f"{self._context.base_url}/approve/{name}",
            requested_schema=question.schema,
            url=question.url,
        )

    async def suspended(self, why: str, *, wake_at: Any = None, checkpoint: StoredCheckpoint | None = None) -> bool:
        """Hand the run on, to go on from this checkpoint, the stored one, or its beginning."""
        params: dict[str, Any] = {"run_id": self._identity.run_id, "epoch": self._identity.epoch}
        if checkpoint is not None:
            params |= {
                "checkpoint": checkpoint,
                "events": self._journal.take_events(),
                "reads": self._journal.take_reads(time.monotonic()),
            }
        moved = await durably(
            self._context, lambda conn, _again: stops.run_suspend(conn, **params, why=why, wake_at=wake_at)
        )
        if isinstance(moved, Moved):
            reach("after_suspend")
            self._context.notify(self._identity.run_id)
            if wake_at is None:
                self._context.hand_on(self._identity.run_id)
        return isinstance(moved, Moved)

    async def cancelled(self, why: str) -> Body | None:
        body = Cancelled(self._run).body()
        params = self._common()
        moved = await durably(
            self._context, lambda conn, _again: stops.run_cancel_confirmed(conn, **params, body=body, why=why)
        )
        return self._told(body) if isinstance(moved, Moved) else None

    async def doubted(self, lost: Sequence[Call]) -> Body | None:
        """Some call may or may not have happened: a person's work from here."""
        first = lost[0]
        message = f"{first.record.name} may or may not have happened: {first.lost}"
        body = Unconfirmed(
            self._run,
            "effect_unknown",
            message[: limits.ERROR_MESSAGE_CHARS],
            [{"key": call.key, "tool": call.record.name, "state": "unknown"} for call in lost],
            operator_url(self._context.base_url, self._identity.run_id),
        ).body()
        params = {**self._common(), "code": "effect_unknown", "body": body, "why": message[: limits.REASON_CHARS]}
        moved = await durably(self._context, lambda conn, _again: stops.run_doubt(conn, **params))
        return self._told(body) if isinstance(moved, Moved) else None

    def _logs(self) -> tuple[list[str], list[dict[str, Any]], dict[str, Any]]:
        """What of the log is answered, what is kept of the rest, and the note that says so."""
        state = self._journal.state
        shown, size = [], 0
        for line in state.logs:
            size += len(line.encode()) + 1
            if size > limits.LOG_BYTES:
                break
            shown.append(line)
        if len(shown) == len(state.logs) and state.log_bytes <= limits.LOG_KEPT_BYTES:
            return shown, [], {}
        kept = {"name": "logs", "text": "\n".join(state.logs), "total_bytes": state.log_bytes}
        note = {"shown_lines": len(shown), "total_bytes": state.log_bytes, "href": self._output_url("logs")}
        return shown, [kept], {"logs": note}

    def _output_url(self, name: str) -> str:
        return f"/api/v1/runs/{self._run}/outputs/{name}"


def operator_url(base_url: str, run_id: UUID) -> str:
    return f"{base_url}/admin/runs/run/{run_id}/change/"


def explain(broken: Broken, catalog: Catalog) -> tuple[str, str]:
    """The registry's code and the message of an ended program: what it could not find is a tool, say so."""
    if broken.code != "program_error":
        return broken.code, broken.message
    if match := _NO_ATTRIBUTE.match(broken.message):
        source, name = match.groups()
        if source in catalog.sources:
            near = catalog.near(f"{source}.{name}")
            hint = f"did you mean {', '.join(near)}?" if near else "find tools with search_tools(query)."
            return "tool_not_found", f"There is no tool {source}.{name}; {hint}"
    if match := _NO_MODULE.match(broken.message):
        sources = ", ".join(sorted(catalog.sources)) or "none yet"
        return "tool_not_found", f"There is no module {match[1]!r} here. Sources: {sources}. {NO_IO.capitalize()}."
    return answers.code_of(broken.message) or "program_error", broken.message


def _tool(call: Call) -> str:
    return call.spec.address if call.spec is not None else call.record.name


def _args(call: Call) -> Any:
    if call.spec is None:
        return builtins.arguments(call.record.name, call.record.args, call.record.kwargs)
    return redacted(call)
