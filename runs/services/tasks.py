"""Sending a run's id to the workers: django-q2's task, whose payload is nothing but the id."""

from uuid import UUID

from django.db import close_old_connections
from django_q.tasks import async_task


def send(run_id: UUID) -> None:
    """Queue one task for the run. May be repeated: the claim in the run's row decides. Blocks; commits on return."""
    close_old_connections()
    try:
        async_task("runs.jobs.run_go_on", str(run_id), task_name=f"run {run_id}")
    finally:
        close_old_connections()
