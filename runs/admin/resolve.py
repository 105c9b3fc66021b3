"""The operator's decision on an unconfirmed run, from the run's page: by name, with a reason, through the service."""

from collections.abc import Sequence
from typing import Any

from django import forms

from runs.domain import limits
from runs.domain.states import RunKind
from runs.models import Effect, Run
from runs.pages.schema_form import JSONText
from runs.services.resolve import EffectWord

DECISIONS = {
    "succeeded": "Close it as succeeded, with the result below",
    "failed": "Close it as failed",
    "go_on": "Let it go on: needs an answer for every unknown call",
    "run_again": "Run the program again, as a new linked run",
}


def _json(label: str, help_text: str = "") -> forms.Field:
    return JSONText(
        label=label,
        help_text=help_text,
        required=False,
        max_length=limits.CONTENT_BYTES,
        widget=forms.Textarea(attrs={"rows": 2, "spellcheck": "false", "class": "code"}),
    )


class ResolveForm(forms.Form):
    """Valid only says that it is complete; whether it may be done is the service's to say."""

    reason = forms.CharField(
        label="Reason",
        max_length=limits.REASON_CHARS,
        widget=forms.Textarea(attrs={"rows": 2}),
        help_text="What you found out, and how. It stays in the history under your name.",
    )

    def __init__(self, run: Run, unknown: Sequence[Effect], data: Any = None) -> None:
        super().__init__(data, auto_id="id_resolve_%s")
        self._run = run
        self._unknown = list(unknown)
        choices = [(name, text) for name, text in DECISIONS.items() if name != "go_on" or run.kind == RunKind.CODE]
        for index, effect in enumerate(self._unknown):
            self.fields[f"happened_{index}"] = forms.ChoiceField(
                label=f"Did {effect.tool} happen? (call {effect.call_index}, key {effect.key})",
                choices=[("", "Still unknown"), ("yes", "It happened"), ("no", "It did not happen")],
                required=False,
            )
            self.fields[f"result_{index}"] = _json(
                f"What {effect.tool} answered, as JSON", "If it happened and the program goes on: it reads this."
            )
        self.fields["decision"] = forms.ChoiceField(label="Decision", choices=[("", "Choose…"), *choices])
        self.fields["result"] = _json("Result of the run, as JSON", "Only for closing it as succeeded.")
        self.fields["confirm"] = forms.CharField(
            label="To run it again, type the first eight characters of its id",
            help_text="Whatever the program did before, it may do again: calls of a new run have new keys.",
            required=False,
            max_length=8,
        )
        self.order_fields(["decision", "reason"])

    def clean(self) -> dict[str, Any]:
        given = super().clean() or {}
        if given.get("decision") == "run_again" and given.get("confirm") != self._run.id.hex[:8]:
            self.add_error("confirm", f"Type {self._run.id.hex[:8]} if you mean to run it again.")
        return given

    def words(self) -> list[EffectWord]:
        """What was said of each unknown call; those left open are not among them."""
        return [
            EffectWord(effect.key, given == "yes", self.cleaned_data[f"result_{index}"])
            for index, effect in enumerate(self._unknown)
            if (given := self.cleaned_data[f"happened_{index}"])
        ]
