"""All that the page of one run shows, read with a fixed number of queries and bounded lists."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.utils import timezone
from django.utils.safestring import SafeString

from runs.admin.program_html import program_html
from runs.admin.resolve import ResolveForm
from runs.domain import limits
from runs.domain.codes import CODES
from runs.domain.effects import Approver, EffectState
from runs.domain.principal import Principal
from runs.domain.states import RunState
from runs.models import Effect, PausedExecution, Run
from runs.pages.decision import DecisionForms
from runs.pages.words import between, decision_badge, effect_badge, pretty, span, state_badge
from runs.selectors.timeline import KINDS, lines, run_events

CALLS = 200
PAUSES = 50
ATTEMPTS = 100


@dataclass(frozen=True, slots=True)
class Call:
    effect: Effect
    args: str
    answer: str
    duration: str

    @property
    def badge(self) -> SafeString:
        return effect_badge(self.effect.state, self.effect.ok)

    @classmethod
    def of(cls, effect: Effect) -> "Call":
        duration = span(effect.duration_ms / 1000) if effect.duration_ms is not None else "–"
        return cls(effect, pretty(effect.args), "" if effect.answer is None else pretty(effect.answer), duration)


@dataclass(frozen=True, slots=True)
class Question:
    pause: PausedExecution
    args: str
    schema: str
    content: str
    age: str
    forms: DecisionForms | None
    """None: decided, expired, or not for this person to decide."""
    why_not: str

    @property
    def badge(self) -> SafeString:
        return decision_badge(self.pause.decision)

    @classmethod
    def of(cls, pause: PausedExecution, principal: Principal, now: datetime) -> "Question":
        why_not = ""
        if pause.decision is None and pause.expires_at <= now:
            why_not = "Its time is over; the sweep will close it."
        elif pause.decision is None and pause.approver == Approver.STAFF and not principal.is_staff:
            why_not = "A policy lets only staff decide this call."
        is_open = pause.decision is None and not why_not
        row = {"id": pause.id, "kind": pause.kind, "requested_schema": pause.requested_schema}
        return cls(
            pause,
            pretty(pause.args),
            "" if pause.requested_schema is None else pretty(pause.requested_schema),
            "" if pause.content is None else pretty(pause.content),
            between(pause.created_at, now),
            DecisionForms.of(row) if is_open else None,
            why_not,
        )


def run_context(run: Run, principal: Principal, resolving: ResolveForm | None = None) -> dict[str, Any]:
    """Six queries beside the run itself (loaded with its owner, outcome, process and the people it names)."""
    now = timezone.now()
    events, earlier = run_events(run.id)
    effects = list(run.effects.order_by("call_index", "reserved_at")[: CALLS + 1])
    pauses = list(run.pauses.select_related("decided_by", "decided_token").order_by("created_at")[:PAUSES])
    attempts = list(run.attempts.select_related("process").order_by("-epoch")[:ATTEMPTS])
    outputs = list(run.outputs.values("name", "total_bytes"))
    followers = list(run.followers.values_list("id", flat=True)[:10])
    body: dict[str, Any] = (run.outcome.body if run.outcome is not None else None) or {}
    error = body.get("error") if body.get("status") in ("failed", "unconfirmed") else None
    failing_line = error.get("line") if error else None
    return {
        "run": run,
        "badge": state_badge(run.state, stopping=run.is_stopping),
        "is_final": run.is_terminal,
        "may_stop": not run.is_terminal and not run.is_stopping,
        "duration": between(run.created_at, run.finished_at or now),
        "timeline": lines(reversed(events)),
        "earlier": earlier,
        "kinds": ",".join(KINDS),
        "program": program_html(run.code, failing_line),
        "calls": [Call.of(effect) for effect in effects[:CALLS]],
        "more_calls": len(effects) > CALLS,
        "questions": [Question.of(pause, principal, now) for pause in pauses],
        "attempts": [(attempt, between(attempt.started_at, attempt.ended_at or now)) for attempt in attempts],
        "outputs": outputs,
        "followers": followers,
        "has_result": body.get("status") == "completed",
        "result": pretty(body.get("result")) if body.get("status") == "completed" else "",
        "emitted": pretty(body["emitted"]) if body.get("emitted") else "",
        "error": error,
        "code": CODES.get(run.error_code or ""),
        "body": body,
        "inputs": pretty(run.inputs) if run.inputs else "",
        "logs": _logs(body, events),
        "resolve_form": resolving or resolve_form(run, principal, effects),
    }


def resolve_form(run: Run, principal: Principal, effects: list[Effect], data: Any = None) -> ResolveForm | None:
    """For an unconfirmed run and a person who may operate."""
    if run.state != RunState.UNCONFIRMED or "operate" not in principal.scopes:
        return None
    return ResolveForm(run, [effect for effect in effects if effect.state == EffectState.UNKNOWN], data)


def _logs(body: dict[str, Any], events: list[Any]) -> str:
    """The answer's logs; before there is one, what the events have told so far."""
    found = body.get("logs")
    if found is None:
        found = [line for event in events if event.kind == "log" for line in event.data.get("lines", [])]
    text = "\n".join(map(str, found))
    return text if len(text) <= limits.LOG_BYTES else f"… cut\n{text[-limits.LOG_BYTES :]}"
