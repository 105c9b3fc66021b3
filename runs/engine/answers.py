"""From the outcome of a call to the answer its program gets, and to the row that keeps it. Pure.

The row is the truth: after a crash the program is answered from it, in the same words.
"""

from typing import Any, assert_never

from runs.domain import limits
from runs.domain.codes import RUN_CODES
from runs.drivers.base import Answer, Raised, Returned
from runs.tools.base import CallOutcome, Refused, Succeeded, Unknown, Unrepresentable

_RAISES = {
    "upstream_timeout": "TimeoutError",
    "invalid_arguments": "TypeError",
    "tool_not_found": "AttributeError",
    "tool_blocked": "PermissionError",
    "approval_declined": "PermissionError",
    "approval_expired": "PermissionError",
}


def stored(outcome: CallOutcome) -> dict[str, Any]:
    """The outcome as the ledger keeps it."""
    match outcome:
        case Succeeded():
            return {"kind": "succeeded", "value": outcome.value}
        case Unrepresentable():
            return {"kind": "unrepresentable", "reason": outcome.reason}
        case Refused():
            return {
                "kind": "refused",
                "code": outcome.code,
                "message": outcome.message,
                "body": outcome.body,
                "sent": outcome.sent,
            }
        case Unknown():
            return {"kind": "unknown", "code": outcome.code, "message": outcome.message}
        case _:
            assert_never(outcome)


def succeeded(outcome: CallOutcome) -> bool:
    return isinstance(outcome, Succeeded | Unrepresentable)


def from_stored(row: dict[str, Any], status: int | None) -> Answer:
    """The program's answer, from the ledger's row."""
    kind = row["kind"]
    if kind == "succeeded":
        return Returned(row["value"])
    if kind == "unrepresentable":
        return Returned({"succeeded": True, "result": "not representable", "reason": row["reason"]})
    text = error_text(row["code"], row["message"], status, row.get("body"))
    return Raised(_RAISES.get(row["code"], "RuntimeError"), text)


def refused(code: str, message: str) -> Raised:
    """An answer that never became a call: nothing was sent."""
    return Raised(_RAISES.get(code, "RuntimeError"), error_text(code, message, None, None))


def error_text(code: str, message: str, status: int | None, body: str | None) -> str:
    text = f"{code}: {message}"
    if status is not None:
        text += f" (status {status})"
    if body:
        text += f": {body}"
    return text[: limits.ERROR_MESSAGE_CHARS]


def code_of(message: str) -> str | None:
    """The registry's code at the head of an error text that we wrote, as the program saw it."""
    head = message.partition(": ")[2].partition(":")[0]
    return head if head in _PROGRAM_CODES else None


_PROGRAM_CODES = frozenset(
    {
        "tool_not_found",
        "invalid_arguments",
        "tool_blocked",
        "approval_declined",
        "approval_expired",
        "connection_missing",
        "upstream_error",
        "upstream_timeout",
        "upstream_unreachable",
        "address_refused",
        "tool_failed",
    }
) & frozenset(RUN_CODES)
