"""Run: one program and where it stands. `state` is written by runs/store/transition.py alone."""

import uuid

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from runs.domain.codes import RUN_CODES
from runs.domain.states import CODED, HELD, NOT_STARTED, TERMINAL, RunKind, RunState
from runs.models.process import Process

_known_states = [state.value for state in RunState]
# Sorted: a migration must not depend on the order of a set.
_terminal, _held, _not_started, _coded = (
    sorted(state.value for state in states) for states in (TERMINAL, HELD, NOT_STARTED, CODED)
)


class Run(models.Model):
    class Origin(models.TextChoices):
        INLINE = "inline", "inline request"
        BACKGROUND = "background", "background"
        PANEL = "panel", "Run panel"

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    kind = models.CharField(max_length=10, default=RunKind.CODE)
    state = models.CharField(max_length=12)
    origin = models.CharField(max_length=12, choices=Origin.choices)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="runs")
    token = models.ForeignKey("Token", on_delete=models.SET_NULL, null=True, related_name="+")
    lineage = models.UUIDField()
    """Whose effect keys it uses: its own id. A run that a person ran again is another one, with keys of its own."""
    follows = models.ForeignKey("self", on_delete=models.PROTECT, null=True, related_name="followers")

    code = models.TextField(blank=True)
    inputs = models.JSONField(default=dict)
    timeout_s = models.FloatField()
    auto_approve_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, related_name="+")
    """Set by an operator's Run panel: this person stands for every approval of the run."""
    idempotency_key = models.CharField(max_length=200, null=True)
    request_digest = models.CharField(max_length=64, null=True)

    epoch = models.IntegerField(default=0)
    process = models.ForeignKey(Process, on_delete=models.PROTECT, null=True, related_name="+")
    lease_expires_at = models.DateTimeField(null=True)
    wake_at = models.DateTimeField(null=True)
    """A suspended run that sleeps is not resumed before this."""
    decisions = models.IntegerField(default=0)
    """How many of its pauses were decided: the engine cannot pause past a decision it has not seen."""
    event_seq = models.BigIntegerField(default=0)
    error_code = models.CharField(max_length=64, null=True)
    outcome = models.ForeignKey("SettledOutcome", on_delete=models.SET_NULL, null=True, related_name="+")

    created_at = models.DateTimeField(db_default=Now())
    command_started_at = models.DateTimeField(null=True)
    updated_at = models.DateTimeField(db_default=Now())
    finished_at = models.DateTimeField(null=True)
    cancel_requested_at = models.DateTimeField(null=True)
    cancel_requested_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, related_name="+"
    )
    purged_at = models.DateTimeField(null=True)
    """Retention removed code, inputs, result, events and checkpoint; the row stays."""

    class Meta:
        constraints = [
            models.CheckConstraint(name="run_state_known", condition=Q(state__in=_known_states)),
            models.CheckConstraint(name="run_kind_known", condition=Q(kind__in=[k.value for k in RunKind])),
            models.CheckConstraint(
                name="run_finished_iff_terminal",
                condition=Q(state__in=_terminal, finished_at__isnull=False)
                | (~Q(state__in=_terminal) & Q(finished_at__isnull=True)),
            ),
            models.CheckConstraint(
                name="run_not_started_before_gate",
                condition=~Q(state__in=_not_started) | Q(command_started_at__isnull=True),
            ),
            models.CheckConstraint(
                name="run_held_iff_leased",
                condition=Q(state__in=_held, process__isnull=False, lease_expires_at__isnull=False)
                | (~Q(state__in=_held) & Q(process__isnull=True, lease_expires_at__isnull=True)),
            ),
            models.CheckConstraint(
                name="run_coded_iff_failed_or_unconfirmed",
                condition=Q(state__in=_coded, error_code__isnull=False)
                | (~Q(state__in=_coded) & Q(error_code__isnull=True)),
            ),
            models.CheckConstraint(
                name="run_code_known",
                condition=Q(error_code__isnull=True) | Q(error_code__in=list(RUN_CODES)),
            ),
            models.CheckConstraint(
                name="run_wakes_only_suspended", condition=Q(wake_at__isnull=True) | Q(state=RunState.SUSPENDED)
            ),
            models.UniqueConstraint(
                name="run_once_per_idempotency_key",
                fields=["owner", "idempotency_key"],
                condition=Q(idempotency_key__isnull=False),
            ),
        ]
        indexes = [
            models.Index(fields=["-created_at", "-id"], name="run_newest"),
            models.Index(fields=["owner", "-created_at", "-id"], name="run_newest_of_owner"),
            models.Index(fields=["state", "-created_at"], name="run_by_state"),
            models.Index(fields=["lease_expires_at"], name="run_leased", condition=Q(state__in=_held)),
            models.Index(fields=["created_at"], name="run_waiting", condition=Q(state__in=["queued", "suspended"])),
            models.Index(fields=["finished_at"], name="run_unpurged", condition=Q(purged_at__isnull=True)),
        ]
        permissions = [("operate_run", "Can act on runs as an operator")]

    def __str__(self) -> str:
        return f"{self.id.hex[:8]} {self.state}"

    @property
    def is_terminal(self) -> bool:
        return self.state in TERMINAL

    @property
    def is_stopping(self) -> bool:
        """Asked to stop, and not yet known to have stopped."""
        return self.cancel_requested_at is not None and not self.is_terminal


class Attempt(models.Model):
    """One holding of a run by one process, from a claim or resume to its end: evidence of who did what."""

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="attempts")
    epoch = models.IntegerField()
    process = models.ForeignKey(Process, on_delete=models.PROTECT, related_name="attempts")
    started_at = models.DateTimeField(db_default=Now())
    ended_at = models.DateTimeField(null=True)
    ended_by = models.CharField(max_length=20, null=True)
    """The event that ended it: pause, suspend, succeed …"""

    class Meta:
        constraints = [
            models.UniqueConstraint(name="attempt_once_per_epoch", fields=["run", "epoch"]),
            models.UniqueConstraint(
                name="attempt_one_open_per_run", fields=["run"], condition=Q(ended_at__isnull=True)
            ),
        ]

    def __str__(self) -> str:
        return f"{self.run_id.hex[:8]} epoch {self.epoch}"
