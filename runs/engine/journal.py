"""What a run has to tell and has not yet stored: printed text, emitted values, reads and events.

They have no commits of their own; each durable step of the run takes them along. Bounded throughout.
"""

import json
from collections.abc import Callable
from typing import Any

from runs.domain import limits
from runs.engine.checkpoint import BrokerState
from runs.store.transition import NewEvent


class Journal:
    def __init__(self, state: BrokerState) -> None:
        self.state = state
        self.flooded = False
        """The program printed more than limits.LOG_TOTAL_BYTES."""
        self.on_flood: Callable[[], None] | None = None
        """Called once when that happens, from whichever thread prints."""
        self._partial = ""
        self._fresh_logs: list[str] = []
        self._events: list[NewEvent] = []
        self._reads: list[dict[str, Any]] = []
        self._printed_before = state.log_bytes
        self._kept_bytes = sum(len(line.encode()) for line in state.logs)

    def printed(self, text: str) -> None:
        """Take printed text; may be called from the driver's thread."""
        self.state.log_bytes += len(text.encode(errors="replace"))
        if self.state.log_bytes > limits.LOG_TOTAL_BYTES:
            if not self.flooded:
                self.flooded = True
                if self.on_flood is not None:
                    self.on_flood()
            return
        *lines, self._partial = (self._partial + text.replace("\0", "\ufffd")).split("\n")
        for line in lines:
            self._keep(line)
        if len(self._partial) > limits.LOG_BYTES:
            self._keep(self._partial)
            self._partial = ""

    def _keep(self, line: str) -> None:
        size = len(line.encode()) + 1
        if self._kept_bytes + size <= limits.LOG_KEPT_BYTES:
            self._kept_bytes += size
            self.state.logs.append(line)
            self._fresh_logs.append(line)

    def emit(self, value: Any) -> str | None:
        """Take an emitted value; the reason why not, where it is over the bounds."""
        size = len(json.dumps(value))
        if len(self.state.emitted) >= limits.EMITTED_COUNT or self.state.emitted_bytes + size > limits.EMITTED_BYTES:
            return f"emit takes at most {limits.EMITTED_COUNT} values and {limits.EMITTED_BYTES:,} bytes a run"
        self.state.emitted.append(value)
        self.state.emitted_bytes += size
        self._events.append(NewEvent("emitted", {"value": value}))
        return None

    def event(self, kind: str, **data: Any) -> None:
        self._events.append(NewEvent(kind, data))

    def read(self, row: dict[str, Any]) -> None:
        self._reads.append(row)

    def take_events(self) -> list[NewEvent]:
        """Hand the pending events to a statement; `put_back` returns them if it was lost."""
        if self._partial:
            self._keep(self._partial)
            self._partial = ""
        if self._fresh_logs:
            shown, size = [], 0
            for line in self._fresh_logs:
                size += len(line) + 1
                if size > limits.LOG_BYTES:
                    break
                shown.append(line)
            data: dict[str, Any] = {"lines": shown}
            if len(shown) < len(self._fresh_logs):
                data["cut"] = len(self._fresh_logs) - len(shown)
            self._events.append(NewEvent("log", data))
            self._fresh_logs = []
        taken, self._events = self._events, []
        return taken

    def put_back(self, events: list[NewEvent], reads: list[dict[str, Any]]) -> None:
        self._events = events + self._events
        self._reads = reads + self._reads

    def take_reads(self, now: float) -> list[dict[str, Any]]:
        """Reads not yet stored; their age tells the database when they happened."""
        taken, self._reads = self._reads, []
        return [{**row, "age_ms": (now - row.pop("begun")) * 1000} for row in taken]
