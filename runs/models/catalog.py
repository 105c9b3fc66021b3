"""The catalog: sources, the tools they offer, and the connections that carry their credentials."""

import uuid

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from runs.domain.effects import EffectClass


class Source(models.Model):
    """A place tools come from. Its name is the module that agent code imports."""

    class Kind(models.TextChoices):
        OPENAPI = "openapi", "OpenAPI"
        PYTHON = "python", "Python functions"

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    name = models.CharField(max_length=63, unique=True)
    kind = models.CharField(max_length=10, choices=Kind.choices)
    title = models.CharField(max_length=200, blank=True)
    spec_url = models.TextField(blank=True)
    base_url = models.TextField(blank=True)
    module = models.CharField(max_length=255, blank=True)
    """For kind `python`: the dotted module, from the setting PYTHON_SOURCES."""
    honours_key = models.BooleanField(default=False)
    """The source promises that a request repeated with the same Idempotency-Key takes effect once."""
    security = models.JSONField(default=dict)
    skipped = models.JSONField(default=list)
    created_at = models.DateTimeField(db_default=Now())
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, related_name="+")
    refreshed_at = models.DateTimeField(db_default=Now())

    def __str__(self) -> str:
        return self.name


class Tool(models.Model):
    """One operation of a source."""

    source = models.ForeignKey(Source, on_delete=models.CASCADE, related_name="tools")
    name = models.CharField(max_length=190)
    description = models.TextField(blank=True)
    input_schema = models.JSONField()
    output_schema = models.JSONField(null=True)
    effect = models.CharField(max_length=12, choices=[(e.value, e.value) for e in EffectClass])
    binding = models.JSONField(default=dict)
    sensitive = models.JSONField(default=list)
    granted = models.BooleanField(default=True)
    """False for an operation that a refresh brought: hidden and refused until a person has reviewed it."""

    class Meta:
        ordering = ["source_id", "name"]
        constraints = [models.UniqueConstraint(name="tool_once_per_source", fields=["source", "name"])]

    def __str__(self) -> str:
        return self.name


class Connection(models.Model):
    """Credentials for a source: encrypted at rest, written and never read back by anybody."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    source = models.ForeignKey(Source, on_delete=models.CASCADE, related_name="connections")
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, null=True, related_name="+")
    """Null: shared by everybody. Otherwise this user's runs use it before the shared one."""
    name = models.CharField(max_length=100, default="default")
    ciphertext = models.BinaryField()
    schemes = models.JSONField(default=list)
    """The names of the security schemes it has values for; never the values."""
    created_at = models.DateTimeField(db_default=Now())
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, related_name="+")

    class Meta:
        constraints = [
            models.UniqueConstraint(
                name="connection_one_shared_per_source", fields=["source"], condition=Q(owner__isnull=True)
            ),
            models.UniqueConstraint(
                name="connection_one_per_owner",
                fields=["source", "owner"],
                condition=Q(owner__isnull=False),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.name} for {self.source}"


class CatalogVersion(models.Model):
    """One row: a number that a trigger raises with every change of sources, tools, policies or connections."""

    id = models.SmallIntegerField(primary_key=True, default=1)
    version = models.BigIntegerField(default=1)

    class Meta:
        constraints = [models.CheckConstraint(name="catalog_version_single", condition=Q(id=1))]

    def __str__(self) -> str:
        return str(self.version)
