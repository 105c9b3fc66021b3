"""A run's events in a person's words: what happened, who did it, with what. Pure but for the one query."""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from runs.domain.codes import CODES
from runs.domain.states import RunEvent
from runs.models import Event

SHOWN = 500
"""Events on the page; the API's list has all of them."""
DETAIL_CHARS = 400

Data = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Line:
    seq: int
    at: datetime
    kind: str
    title: str
    detail: str
    who: str
    """A person's name; empty where the machine did it."""
    tone: str
    """good, bad, wait, doubt or plain: a colour beside the words, never instead of them."""


@dataclass(frozen=True, slots=True)
class _Words:
    title: str | Callable[[Data], str]
    tone: str = "plain"
    detail: Callable[[Data], str] = lambda data: str(data.get("why") or "")


_DECIDED = {
    "accept": "accepted",
    "decline": "declined",
    "cancel": "cancelled",
    "expired": "expired",
    "withdrawn": "withdrawn",
}


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _code(data: Data) -> str:
    code = CODES.get(str(data.get("code")))
    return "" if code is None else f"{code.headline} ({code.name})"


def _call(data: Data) -> str:
    return f"call {data.get('call')}, key {data.get('key')}" if data.get("key") else f"call {data.get('call')}"


def _answered(data: Data) -> str:
    parts = [_call(data)]
    if data.get("status") is not None:
        parts.append(f"status {data['status']}")
    if data.get("duration_ms") is not None:
        parts.append(f"{data['duration_ms']} ms")
    return ", ".join(parts)


def _decision(data: Data) -> str:
    via = f"through {data['via']}" if data.get("via") else ""
    return ": ".join(part for part in (via, str(data.get("reason") or "")) if part)


def _submitted(data: Data) -> str:
    parts = [f"as {data['origin']} run"] if data.get("origin") else []
    parts += [f"follows {data['follows']}"] if data.get("follows") else []
    return ", ".join([*parts, *([_reason(data)] if _reason(data) else [])])


def _reason(data: Data) -> str:
    return str(data.get("reason") or "")


def _printed(data: Data) -> str:
    return _count(len(data.get("lines") or []) + int(data.get("cut") or 0), "line")


WORDS: dict[str, _Words] = {
    RunEvent.SUBMIT: _Words("Submitted", detail=_submitted),
    RunEvent.CLAIM: _Words("Taken by a worker"),
    RunEvent.RELEASE: _Words("Put back in the queue; nothing had started"),
    RunEvent.GATE: _Words("Started"),
    RunEvent.PAUSE: _Words(
        "Paused: waits for a person",
        "wait",
        lambda data: _count(len(data.get("executions") or []), "new question") if data.get("executions") else "",
    ),
    RunEvent.SUSPEND: _Words("Suspended: can go on from its checkpoint"),
    RunEvent.DECIDE: _Words("Ready to go on after a decision"),
    RunEvent.RESUME: _Words("Went on from its checkpoint"),
    RunEvent.SUCCEED: _Words("Succeeded", "good"),
    RunEvent.FAIL: _Words("Failed", "bad", _code),
    RunEvent.REFUSE: _Words("Refused before anything started", "bad", _code),
    RunEvent.CANCEL: _Words("Cancelled"),
    RunEvent.CANCEL_CONFIRMED: _Words("Stopped, and confirmed to be stopped"),
    RunEvent.DOUBT: _Words("Unconfirmed: a person must find out", "doubt"),
    RunEvent.RESOLVE: _Words("Resolved by an operator", detail=_reason),
    RunEvent.GO_ON: _Words("Sent on by an operator", detail=_reason),
    "log": _Words("Printed", detail=_printed),
    "emitted": _Words("Emitted a value", detail=lambda data: json.dumps(data.get("value"), ensure_ascii=False)),
    "call_reserved": _Words(lambda data: f"Calls {data.get('tool')}", detail=_call),
    "call_settled": _Words(
        lambda data: f"{data.get('tool')} {'answered' if data.get('ok') else 'answered with an error'}",
        detail=_answered,
    ),
    "call_answered_late": _Words(lambda data: f"A late answer of {data.get('tool')}", detail=_answered),
    "effect_resolved": _Words(
        lambda data: f"{data.get('tool')} {'did happen' if data.get('happened') else 'did not happen'}",
        detail=lambda data: f"key {data.get('key')}",
    ),
    "run_again": _Words(
        "Run again as a new, linked run",
        detail=lambda data: ": ".join(part for part in (str(data.get("run") or ""), _reason(data)) if part),
    ),
    "auto_approved": _Words(lambda data: f"{data.get('tool')} approved in advance", "good", _call),
    "decision": _Words(
        lambda data: f"{data.get('tool')}: {_DECIDED.get(str(data.get('decision')), data.get('decision'))}",
        detail=_decision,
    ),
    "cancel_requested": _Words("Asked to stop", "wait"),
}
"""Every kind of event that the product writes; one it does not know is shown by its own name."""

KINDS = tuple(str(kind) for kind in WORDS)


def line_of(event: Event) -> Line:
    data = event.data if isinstance(event.data, dict) else {}
    words = WORDS.get(event.kind) or _Words(event.kind.replace("_", " ").capitalize())
    title = words.title if isinstance(words.title, str) else words.title(data)
    detail = words.detail(data)
    if len(detail) > DETAIL_CHARS:
        detail = f"{detail[:DETAIL_CHARS]}…"
    tone = words.tone
    if event.kind == "decision":
        tone = "good" if data.get("decision") == "accept" else "bad"
    elif event.kind == "call_settled" and not data.get("ok"):
        tone = "bad"
    return Line(event.seq, event.at, event.kind, title, detail, str(data.get("by") or ""), tone)


def lines(events: Iterable[Event]) -> list[Line]:
    return [line_of(event) for event in events]


def run_events(run_id: UUID) -> tuple[list[Event], int]:
    """The newest SHOWN events in order, and how many older ones are not among them. One query."""
    newest = list(Event.objects.filter(run_id=run_id).order_by("-seq")[:SHOWN])[::-1]
    return newest, newest[0].seq - 1 if newest else 0
