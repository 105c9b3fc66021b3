"""Rows as the contract shows them."""

from typing import Any

from runs.domain.codes import Refusal
from runs.models import Effect, Event, PausedExecution, Run
from runs.selectors.runs import shown


def pause_state(decision: str | None) -> str:
    return "pending" if decision is None else "expired" if decision == "expired" else "settled"


def pause_row(pause: dict[str, Any], outcome: Any, base_url: str) -> dict[str, Any]:
    """A pause as the store reads it."""
    name = f"exec_{pause['id']}"
    return {
        "id": name,
        "run_id": str(pause["run_id"]),
        "state": pause_state(pause["decision"]),
        "kind": pause["kind"],
        "message": pause["message"],
        "tool": pause["tool"],
        "args": pause["args"],
        "requested_schema": pause["requested_schema"],
        "url": pause["url"],
        "approver": pause["approver"],
        "created_at": shown(pause["created_at"]),
        "expires_at": shown(pause["expires_at"]),
        "approve_url": f"{base_url}/approve/{name}",
        "decision": pause["decision"],
        "reason": pause["reason"],
        "decided_by": pause["decided_by"],
        "decided_via": pause["decided_via"],
        "decided_at": shown(pause["decided_at"]),
        "outcome": outcome,
    }


def pause_model(pause: PausedExecution, base_url: str) -> dict[str, Any]:
    columns = (
        "id run_id kind message tool args requested_schema url approver created_at expires_at decision reason"
        " decided_via decided_at"
    )
    row = {name: getattr(pause, name) for name in columns.split()}
    row["decided_by"] = pause.decided_by.get_username() if pause.decided_by else None
    return pause_row(row, pause.outcome.body if pause.outcome else None, base_url)


def run_summary(run: Run) -> dict[str, Any]:
    return {
        "id": str(run.id),
        "kind": run.kind,
        "state": run.state,
        "origin": run.origin,
        "owner": run.owner.get_username(),
        "created_at": shown(run.created_at),
        "started_at": shown(run.command_started_at),
        "finished_at": shown(run.finished_at),
        "error_code": run.error_code,
        "stopping": run.is_stopping,
    }


def event_row(event: Event | dict[str, Any]) -> dict[str, Any]:
    if isinstance(event, Event):
        event = {"seq": event.seq, "kind": event.kind, "at": event.at, "data": event.data}
    return {"seq": event["seq"], "kind": event["kind"], "at": shown(event["at"]), "data": event["data"]}


def effect_row(effect: Effect) -> dict[str, Any]:
    return {
        "key": effect.key,
        "tool": effect.tool,
        "effect": effect.effect,
        "state": effect.state,
        "call": effect.call_index,
        "args": effect.args,
        "reserved_at": shown(effect.reserved_at),
        "settled_at": shown(effect.settled_at),
        "duration_ms": effect.duration_ms,
        "ok": effect.ok,
        "status": effect.status,
        "answer": effect.answer,
    }


def last_event_id(text: str | None) -> int:
    """The sequence number a client has seen; 0 for none. Raises Refusal for what no stream of ours sent."""
    if not text:
        return 0
    if not (text.isascii() and text.isdigit()) or len(text) > 18:
        raise Refusal("invalid_request", "Last-Event-ID is a number that this stream sent.")
    return int(text)
