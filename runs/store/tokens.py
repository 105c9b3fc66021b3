"""Writing tokens: only their digest is stored. Sync Django ORM; each function commits on return."""

from collections.abc import Sequence
from datetime import timedelta
from uuid import UUID

from django.db import transaction
from django.db.models import F, Value
from django.db.models.functions import Coalesce, Now

from runs.models import Token
from runs.store.access import token_digest


def token_store(*, token: str, user_id: int, name: str, scopes: Sequence[str], expires_days: int | None) -> Token:
    """Store a new token's digest. Its expiry counts from the database's now."""
    with transaction.atomic():
        row = Token.objects.create(
            user_id=user_id,
            name=name,
            digest=token_digest(token),
            scopes=list(scopes),
            expires_at=None if expires_days is None else Now() + Value(timedelta(days=expires_days)),
        )
        row.refresh_from_db()
        return row


def token_revoke(token_id: UUID) -> Token | None:
    """Revoke it from now on; the moment of the first time stays. None: there is no such token."""
    with transaction.atomic():
        Token.objects.filter(pk=token_id).update(revoked_at=Coalesce(F("revoked_at"), Now()))
        return Token.objects.select_related("user").filter(pk=token_id).first()


def tokens_revoke_named(user_id: int, name: str) -> int:
    """Revoke every valid token of a user with this name; how many there were."""
    with transaction.atomic():
        return Token.objects.filter(user_id=user_id, name=name, revoked_at__isnull=True).update(revoked_at=Now())
