"""A decision that came from a browser: read from the form, given to the service, and what to tell the person.

Shared by the approval page and the admin. Nothing typed is lost: whatever goes wrong, the form comes back with it.
"""

from dataclasses import dataclass
from typing import Any

from django import forms
from django.http import QueryDict

from runs.domain import limits
from runs.domain.codes import Refusal
from runs.domain.principal import Principal
from runs.pages.schema_form import ContentForm
from runs.services.resume import pause_resume
from runs.services.scope import ServiceScope

ACTIONS = ("accept", "decline", "cancel")


class ReasonForm(forms.Form):
    reason = forms.CharField(
        label="Reason",
        required=False,
        max_length=limits.REASON_CHARS,
        widget=forms.Textarea(attrs={"rows": 2}),
        help_text="The program and its caller read it when you decline; it stays in the history.",
    )


@dataclass(frozen=True, slots=True)
class Told:
    """What became of a decision, for the person who made it."""

    ok: bool
    status: int
    text: str


@dataclass(slots=True)
class DecisionForms:
    """The two halves of the form: the reason, and the content where the question asks for one."""

    reason: ReasonForm
    content: ContentForm | None

    @classmethod
    def of(cls, pause: dict[str, Any], data: QueryDict | None = None) -> "DecisionForms":
        auto_id = f"id_{pause['id']}_%s"  # several questions may be on one page
        content = ContentForm(pause["requested_schema"], data, auto_id=auto_id) if pause["kind"] == "form" else None
        return cls(ReasonForm(data, auto_id=auto_id), content)


async def decide(
    scope: ServiceScope,
    principal: Principal,
    pause: dict[str, Any],
    data: QueryDict,
    *,
    via: str,
    go_on_here: bool,
    wait_s: float = 0.0,
) -> tuple[Told, DecisionForms]:
    """Store the posted decision, once. Answers what to say, and the filled forms to show again if it was not taken."""
    forms_ = DecisionForms.of(pause, data)
    action = data.get("action", "")
    if action not in ACTIONS:
        return Told(False, 422, "Choose one of the buttons."), forms_
    valid = forms_.reason.is_valid()
    content = None
    if action == "accept" and forms_.content is not None:
        valid = forms_.content.is_valid() and valid
        content = forms_.content.content() if valid else None
    if not valid:
        return Told(False, 422, "Nothing was stored yet: correct the fields marked below."), forms_
    try:
        await pause_resume(
            scope,
            principal,
            execution_id=f"exec_{pause['id']}",
            action=action,
            content=content,
            reason=forms_.reason.cleaned_data["reason"] or None,
            wait_s=wait_s,
            via=via,
            go_on_here=go_on_here,
        )
    except Refusal as refusal:
        if refusal.code.name == "not_found":
            raise
        return Told(False, refusal.code.http, _explained(refusal, action)), forms_
    return Told(True, 200, _done(pause, action)), forms_


_DONE = {
    ("approval", "accept"): "Approved. The call of {tool} will be made once, and the program goes on.",
    ("form", "accept"): "Your answer is stored. The program goes on with it.",
    ("url", "accept"): "Confirmed. The program goes on.",
}


def _done(pause: dict[str, Any], action: str) -> str:
    if action == "accept":
        return _DONE[pause["kind"], action].format(tool=pause["tool"])
    if pause["kind"] == "approval":
        return f"Declined. {pause['tool']} is not called; the program is told so and goes on."
    return "Declined. The program is told so and goes on."


def _explained(refusal: Refusal, action: str) -> str:
    wish = {"accept": "to accept", "decline": "to decline", "cancel": "to cancel"}[action]
    match refusal.code.name:
        case "decided_differently":
            return f"{refusal.message} Your decision {wish} changed nothing."
        case "pause_expired":
            return (
                "This question expired before your decision; nothing was stored."
                " The program is told that nobody decided in time."
            )
        case "already_settled":
            return "This was settled long ago, and its data was removed by retention. Your decision changed nothing."
        case "content_invalid":
            details = refusal.detail if isinstance(refusal.detail, list) else []
            found = "; ".join(f"{item['path']}: {item['message']}" for item in details)
            return f"{refusal.message}{' ' if found else ''}{found}"
        case _:
            return f"{refusal.message} Nothing was stored."
