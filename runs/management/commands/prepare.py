"""`manage.py prepare`: migrate, then first_start, in one process: what `manage.py up` runs before it serves."""

from django.core.management import call_command
from django.core.management.base import BaseCommand


class Command(BaseCommand):
    help = "Migrate the database and make what a fresh site needs, where it is missing. Repeatable."
    requires_system_checks = ()  # migrate runs those of the database itself

    def handle(self, *args: object, **options: object) -> None:
        call_command("migrate", interactive=False, verbosity=0)
        call_command("first_start")
