"""Who may do what: tokens (hashed, scoped, revocable) and policies on tools."""

import uuid

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from runs.domain.effects import Approver, PolicyAction


class Scope(models.TextChoices):
    RUN = "run", "run programs and read one's own runs"
    APPROVE = "approve", "decide pauses"
    OPERATE = "operate", "see all runs and act on them as an operator"
    ADMIN = "admin", "manage sources, connections, policies"


class Token(models.Model):
    """A bearer token of a user. Only its SHA-256 is stored; the token itself is shown once."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="api_tokens")
    name = models.CharField(max_length=100)
    digest = models.BinaryField(max_length=32, unique=True)
    scopes = ArrayField(models.CharField(max_length=10, choices=Scope.choices))
    created_at = models.DateTimeField(db_default=Now())
    expires_at = models.DateTimeField(null=True)
    revoked_at = models.DateTimeField(null=True)
    last_used_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.CheckConstraint(
                name="token_scopes_known", condition=Q(scopes__contained_by=[s.value for s in Scope])
            )
        ]

    def __str__(self) -> str:
        return f"{self.name} ({', '.join(self.scopes)})"


class Policy(models.Model):
    """What happens when a tool whose address matches `pattern` is called. Lowest position first, then the strictest."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    pattern = models.CharField(max_length=255)
    action = models.CharField(max_length=20, choices=[(a.value, a.value) for a in PolicyAction])
    approver = models.CharField(max_length=10, choices=[(a.value, a.value) for a in Approver], default=Approver.OWNER)
    position = models.IntegerField(default=100)
    created_at = models.DateTimeField(db_default=Now())
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, related_name="+")

    class Meta:
        ordering = ["position", "pattern"]
        verbose_name_plural = "policies"

    def __str__(self) -> str:
        return f"{self.pattern} → {self.action}"
