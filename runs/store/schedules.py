"""Writing the periodic tasks of django-q2: one row a duty, found again by its function."""

from django.db import connection, transaction
from django_q.models import Schedule

_LOCK = 7_301_960
"""Advisory lock around find-or-make: the table has no unique key that would keep two hosts from both making it."""


def schedule_ensure(*, function: str, minutes: int) -> bool:
    """True if it was made; an existing one is left as an operator may have changed it. Committed on return."""
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
        if Schedule.objects.filter(func=function).exists():
            return False
        Schedule.objects.create(
            name=function, func=function, schedule_type=Schedule.MINUTES, minutes=minutes, repeats=-1
        )
        return True
