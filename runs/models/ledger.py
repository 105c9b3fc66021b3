"""The ledger: every tool call under its effect key, and the run's history as events that never change."""

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from runs.domain.effects import EffectClass, EffectState
from runs.models.run import Run


class Effect(models.Model):
    """One tool call. Reserved before it leaves, settled when its answer is stored; found in between: unknown."""

    key = models.CharField(max_length=100, primary_key=True)
    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="effects")
    epoch = models.IntegerField()
    call_index = models.IntegerField()
    tool = models.CharField(max_length=255)
    effect = models.CharField(max_length=12, choices=[(e.value, e.value) for e in EffectClass])
    honours_key = models.BooleanField(default=False)
    args = models.JSONField()
    state = models.CharField(max_length=10, choices=[(s.value, s.value) for s in EffectState])
    reserved_at = models.DateTimeField(db_default=Now())
    settled_at = models.DateTimeField(null=True)
    duration_ms = models.FloatField(null=True)
    answer = models.JSONField(null=True)
    """How it ended: `{"kind": "succeeded" | "unrepresentable" | "refused" | "unknown", …}` (engine/answers.py)."""
    ok = models.BooleanField(null=True)
    status = models.IntegerField(null=True)
    resolved_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, related_name="+")
    """The operator who answered an unknown effect."""

    class Meta:
        constraints = [
            models.CheckConstraint(
                name="effect_settled_iff_answered",
                condition=Q(state=EffectState.SETTLED, settled_at__isnull=False, answer__isnull=False)
                | (~Q(state=EffectState.SETTLED) & Q(settled_at__isnull=True)),
            ),
            models.CheckConstraint(name="effect_state_known", condition=Q(state__in=[s.value for s in EffectState])),
        ]
        indexes = [
            models.Index(fields=["run", "call_index"], name="effect_of_run"),
            models.Index(fields=["run"], name="effect_open", condition=~Q(state=EffectState.SETTLED)),
        ]

    def __str__(self) -> str:
        return f"{self.tool} {self.state}"


class Event(models.Model):
    """One thing that happened to a run. The database refuses any change to it."""

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="events")
    seq = models.BigIntegerField()
    """1, 2, 3 … without gaps within a run; the SSE event id."""
    kind = models.CharField(max_length=40)
    data = models.JSONField(default=dict)
    at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [models.UniqueConstraint(name="event_once_per_seq", fields=["run", "seq"])]

    def __str__(self) -> str:
        return f"{self.seq} {self.kind}"


class Output(models.Model):
    """What was cut from an answer, kept behind a handle: the whole result or the whole log, bounded."""

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="outputs")
    name = models.CharField(max_length=10, choices=[("result", "result"), ("logs", "logs")])
    text = models.TextField()
    total_bytes = models.BigIntegerField()
    stored_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [models.UniqueConstraint(name="output_once_per_name", fields=["run", "name"])]

    def __str__(self) -> str:
        return self.name
