"""The runs app: programs, their pauses, effects and outcomes."""

from django.apps import AppConfig


class RunsConfig(AppConfig):
    name = "runs"
    verbose_name = "Runs"
