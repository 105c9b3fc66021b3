"""`manage.py rotate_credentials`: after a new key came first in CREDENTIAL_KEYS, before an old one is removed."""

from django.core.management.base import BaseCommand, CommandError

from runs.services.connections import credentials_rotate


class Command(BaseCommand):
    help = "Re-encrypt the credentials of every connection with the newest of CREDENTIAL_KEYS."

    def handle(self, *args: object, **options: object) -> None:
        done, locked = credentials_rotate()
        self.stdout.write(f"{done} connections are encrypted with the newest key")
        if locked:
            raise CommandError(f"No configured key opens these, they are as they were: {', '.join(locked)}")
