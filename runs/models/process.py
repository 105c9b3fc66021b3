"""Processes that hold runs: who they are, so that a dead one of this host is known at once."""

import uuid

from django.db import models
from django.db.models.functions import Now


class Process(models.Model):
    """One operating-system process. Identity: host, boot, pid namespace, pid and its start time."""

    class Role(models.TextChoices):
        WEB = "web"
        WORKER = "worker"
        COMMAND = "command"

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    role = models.CharField(max_length=10, choices=Role.choices)
    host = models.CharField(max_length=255)
    boot_id = models.CharField(max_length=64)
    pid_namespace = models.BigIntegerField()
    pid = models.IntegerField()
    started_ticks = models.BigIntegerField()
    """Start time in clock ticks since boot (field 22 of /proc/<pid>/stat): tells a reused pid apart."""
    started_at = models.DateTimeField(db_default=Now())
    heartbeat_at = models.DateTimeField(db_default=Now())
    ended_at = models.DateTimeField(null=True)

    class Meta:
        verbose_name_plural = "processes"
        indexes = [models.Index(fields=["ended_at", "heartbeat_at"], name="process_alive")]

    def __str__(self) -> str:
        return f"{self.role} {self.host}:{self.pid}"
