"""Writing policies on tools. Sync Django ORM; each function commits on return."""

from uuid import UUID

from django.db import connection, transaction

from runs.models import Policy

_LOCK = 7_301_961
"""Advisory lock around count-and-insert, so that the bound on policies holds for two writers at once."""


def policy_create(
    *, pattern: str, action: str, approver: str, position: int, by: int | None, at_most: int
) -> Policy | None:
    """None: there are `at_most` policies already."""
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
        if Policy.objects.count() >= at_most:
            return None
        policy = Policy.objects.create(
            pattern=pattern, action=action, approver=approver, position=position, created_by_id=by
        )
        policy.refresh_from_db()
        return policy


def policy_delete(policy_id: UUID) -> bool:
    """False: there is no such policy."""
    with transaction.atomic():
        return Policy.objects.filter(pk=policy_id).delete()[0] > 0
