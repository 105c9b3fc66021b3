"""The result union that every surface answers with (spec/http-api.md, "Result union"). Pure.

A value renders itself with `body()`: the exact field names of the contract, absent where the contract says `?`.
"""

from dataclasses import dataclass, field
from typing import Any

INSTRUCTIONS = {
    "approval": "The program waits for a person to approve this call. It goes on by itself after the decision.",
    "form": "The program waits for a person's answer. It goes on by itself after the answer.",
    "url": "The program waits until a person has visited the address and confirmed it.",
}


@dataclass(frozen=True, slots=True)
class Completed:
    run_id: str
    result: Any
    logs: list[str]
    emitted: list[Any] = field(default_factory=list)
    truncated: dict[str, Any] = field(default_factory=dict)
    status = "completed"

    def body(self) -> dict[str, Any]:
        body = {"status": self.status, "run_id": self.run_id, "result": self.result, "logs": self.logs}
        if self.emitted:
            body["emitted"] = self.emitted
        if self.truncated:
            body["truncated"] = self.truncated
        return body


@dataclass(frozen=True, slots=True)
class Failed:
    run_id: str
    code: str
    message: str
    line: int | None
    settled: int
    """Calls that may have changed something and were answered."""
    unknown: int
    logs: list[str]
    status = "failed"

    def body(self) -> dict[str, Any]:
        return {
            "status": self.status,
            "run_id": self.run_id,
            "error": error_body(self.code, self.message, self.line),
            "retry_safe": self.settled == 0 and self.unknown == 0,
            "effects": {"settled": self.settled, "unknown": self.unknown},
            "logs": self.logs,
        }


@dataclass(frozen=True, slots=True)
class Question:
    """A pause as the contract shows it."""

    execution_id: str
    kind: str
    message: str
    tool: str
    args: Any
    expires_at: str
    approve_url: str
    requested_schema: Any = None
    url: str | None = None

    def body(self) -> dict[str, Any]:
        body: dict[str, Any] = {
            "id": self.execution_id,
            "kind": self.kind,
            "message": self.message,
            "tool": self.tool,
            "args": self.args,
            "expires_at": self.expires_at,
            "approve_url": self.approve_url,
        }
        if self.requested_schema is not None:
            body["requested_schema"] = self.requested_schema
        if self.url is not None:
            body["url"] = self.url
        return body


@dataclass(frozen=True, slots=True)
class Paused:
    run_id: str
    question: Question
    status = "paused"

    def body(self) -> dict[str, Any]:
        return {
            "status": self.status,
            "run_id": self.run_id,
            "execution": self.question.body(),
            "instructions": INSTRUCTIONS[self.question.kind],
        }


@dataclass(frozen=True, slots=True)
class Running:
    run_id: str
    events_url: str
    status = "running"

    def body(self) -> dict[str, Any]:
        return {"status": self.status, "run_id": self.run_id, "events_url": self.events_url}


@dataclass(frozen=True, slots=True)
class Cancelled:
    run_id: str
    status = "cancelled"

    def body(self) -> dict[str, Any]:
        return {"status": self.status, "run_id": self.run_id}


@dataclass(frozen=True, slots=True)
class Unconfirmed:
    run_id: str
    code: str
    message: str
    effects: list[dict[str, str]]
    """`{key, tool, state}` of every call that may have changed something."""
    operator_url: str
    status = "unconfirmed"

    def body(self) -> dict[str, Any]:
        return {
            "status": self.status,
            "run_id": self.run_id,
            "error": error_body(self.code, self.message, None),
            "retry_safe": False,
            "effects": self.effects,
            "operator_url": self.operator_url,
        }


Outcome = Completed | Failed | Paused | Running | Cancelled | Unconfirmed


def error_body(code: str, message: str, line: int | None) -> dict[str, Any]:
    body: dict[str, Any] = {"code": code, "message": message}
    if line is not None:
        body["line"] = line
    return body


def execution_id(pause_uuid: str) -> str:
    return f"exec_{pause_uuid}"
