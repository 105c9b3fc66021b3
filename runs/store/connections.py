"""Writing connections: ciphertext only. Sync Django ORM; each function commits on return."""

from collections.abc import Callable, Sequence
from uuid import UUID

from django.db import IntegrityError, transaction

from runs.models import Connection


def connection_create(
    *, source_id: UUID, owner_id: int | None, name: str, ciphertext: bytes, schemes: Sequence[str], by: int
) -> Connection | None:
    """`owner_id=None` is the shared one. None: the owner has one for this source, or there is a shared one, already."""
    try:
        with transaction.atomic():
            return Connection.objects.create(
                source_id=source_id,
                owner_id=owner_id,
                name=name,
                ciphertext=ciphertext,
                schemes=list(schemes),
                created_by_id=by,
            )
    except IntegrityError:
        if Connection.objects.filter(source_id=source_id, owner_id=owner_id).exists():
            return None
        raise


def connection_delete(connection_id: UUID) -> bool:
    """False: it is gone already."""
    with transaction.atomic():
        return Connection.objects.filter(pk=connection_id).delete()[0] > 0


def connections_reencrypt(rotate: Callable[[bytes], bytes | None]) -> tuple[int, list[str]]:
    """Replace every ciphertext by `rotate`'s; how many, and the ids of those it could not open (None), untouched.

    All in one transaction, with the rows locked: one that is replaced meanwhile is not overwritten.
    """
    done, locked = 0, []
    with transaction.atomic():
        for connection in Connection.objects.select_for_update(of=("self",)).order_by("pk").iterator(chunk_size=500):
            ciphertext = rotate(bytes(connection.ciphertext))
            if ciphertext is None:
                locked.append(str(connection.pk))
                continue
            connection.ciphertext = ciphertext
            connection.save(update_fields=["ciphertext"])
            done += 1
    return done, locked
