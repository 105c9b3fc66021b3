"""`manage.py first_start`: makes what a fresh site needs; run by `manage.py up` after migrate, and repeatable."""

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from runs.services.first_start import Site, first_start


class Command(BaseCommand):
    help = "Make the first superuser, its tokens, the demo source and the periodic tasks, where they are missing."

    def handle(self, *args: object, **options: object) -> None:
        site = Site(
            var_dir=settings.VAR_DIR,
            base_url=settings.BASE_URL,
            port=settings.PORT,
            demo=settings.DEMO,
            demo_port=settings.DEMO_PORT,
        )
        try:
            # To stderr: what `up` prints on stdout is its banner.
            first_start(site, self.stderr.write)
        except OSError as error:
            raise CommandError(f"the first start could not be completed: {error}") from error
