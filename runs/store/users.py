"""Writing users, for commands: people are otherwise made in the admin. Sync Django ORM; each commits on return."""

from typing import TYPE_CHECKING

from django.contrib.auth import get_user_model
from django.db import transaction

if TYPE_CHECKING:
    from django.contrib.auth.models import User


def user_find(username: str) -> "User | None":
    return get_user_model().objects.filter(username=username).first()


def superuser_first() -> "User | None":
    """The oldest active superuser."""
    return get_user_model().objects.filter(is_superuser=True, is_active=True).order_by("pk").first()


def user_create(username: str) -> "User":
    """A plain user who cannot log in until somebody sets a password. An existing one is returned as it is."""
    with transaction.atomic():
        user, is_new = get_user_model().objects.get_or_create(username=username)
        if is_new:
            user.set_unusable_password()
            user.save(update_fields=["password"])
        return user


def superuser_create(username: str, password: str) -> "User":
    """Raises IntegrityError for a name that is taken."""
    with transaction.atomic():
        return get_user_model().objects.create_superuser(username=username, password=password)
