"""What a run leaves behind while it waits and when it stops: checkpoint, paused executions, settled outcomes."""

import uuid

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from runs.domain.effects import Approver
from runs.models.run import Run


class Checkpoint(models.Model):
    """The state from which any host goes on: Monty's snapshot and the broker's, authenticated."""

    run = models.OneToOneField(Run, on_delete=models.CASCADE, primary_key=True, related_name="checkpoint")
    epoch = models.IntegerField()
    snapshot = models.BinaryField()
    state = models.JSONField()
    """The broker's half: pending calls, counters, logs so far (`runs/engine/checkpoint.py`)."""
    mac = models.BinaryField()
    format = models.IntegerField()
    """Version of our own encoding together with Monty's dump version; a host claims only what it can read."""
    stored_at = models.DateTimeField(db_default=Now())

    def __str__(self) -> str:
        return f"checkpoint of {self.run_id.hex[:8]}, epoch {self.epoch}"


class SettledOutcome(models.Model):
    """The answer of a run at one stop (paused or final): what a repeated request is told again."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="outcomes")
    seq = models.BigIntegerField()
    """The run's event_seq at that stop: grows with every stop."""
    status = models.CharField(max_length=12)
    body = models.JSONField(null=True)
    """The result union; null once retention removed it."""
    settled_at = models.DateTimeField(db_default=Now())
    purged_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(name="outcome_once_per_stop", fields=["run", "seq"]),
            models.CheckConstraint(
                name="outcome_body_until_purged",
                condition=Q(body__isnull=False, purged_at__isnull=True) | Q(body__isnull=True, purged_at__isnull=False),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.run_id.hex[:8]} #{self.seq} {self.status}"


class PausedExecution(models.Model):
    """One question to a person. Decided once, by an identified person; it survives any restart."""

    class Kind(models.TextChoices):
        APPROVAL = "approval"
        FORM = "form"
        URL = "url"

    class Decision(models.TextChoices):
        ACCEPT = "accept"
        DECLINE = "decline"
        CANCEL = "cancel"
        EXPIRED = "expired"
        WITHDRAWN = "withdrawn", "withdrawn (the run ended by itself)"

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="pauses")
    call_index = models.IntegerField()
    kind = models.CharField(max_length=10, choices=Kind.choices)
    tool = models.CharField(max_length=255)
    args = models.JSONField()
    message = models.TextField()
    requested_schema = models.JSONField(null=True)
    url = models.TextField(null=True)
    approver = models.CharField(max_length=10, choices=[(a.value, a.value) for a in Approver])
    created_at = models.DateTimeField(db_default=Now())
    expires_at = models.DateTimeField()

    decision = models.CharField(max_length=10, choices=Decision.choices, null=True)
    content = models.JSONField(null=True)
    reason = models.TextField(null=True)
    decided_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, related_name="+")
    decided_via = models.CharField(max_length=20, null=True)
    """The surface: api, page, admin, panel, sweep, engine."""
    decided_token = models.ForeignKey("Token", on_delete=models.SET_NULL, null=True, related_name="+")
    decided_at = models.DateTimeField(null=True)
    outcome = models.ForeignKey(SettledOutcome, on_delete=models.SET_NULL, null=True, related_name="pauses")
    """The run's next stop after this decision: what the same decision is answered again."""

    class Meta:
        constraints = [
            models.UniqueConstraint(
                name="pause_one_open_per_call", fields=["run", "call_index"], condition=Q(decision__isnull=True)
            ),
            models.CheckConstraint(
                name="pause_decided_whole",
                condition=Q(decision__isnull=True, decided_at__isnull=True, decided_via__isnull=True)
                | Q(decision__isnull=False, decided_at__isnull=False, decided_via__isnull=False),
            ),
            models.CheckConstraint(
                name="pause_decided_by_a_person_or_ended",
                condition=~Q(decision__in=["accept", "decline", "cancel"]) | Q(decided_by__isnull=False),
            ),
        ]
        indexes = [
            models.Index(fields=["expires_at"], name="pause_open", condition=Q(decision__isnull=True)),
            models.Index(fields=["run", "created_at"], name="pause_of_run"),
        ]

    def __str__(self) -> str:
        return f"exec_{self.id}"

    @property
    def execution_id(self) -> str:
        return f"exec_{self.id}"
