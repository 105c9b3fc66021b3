"""`manage.py up`: the whole site in one command. Only hands the settings to `executor_site.up`."""

import sys

from django.conf import settings
from django.core.management.base import BaseCommand

from executor_site.up import SupervisorConfig, up


class Command(BaseCommand):
    help = "Start the database, migrate, then run web, background workers and (locally) the demo until Ctrl-C."
    requires_system_checks = ()  # the children check; here there may be no database yet

    def handle(self, *args: object, **options: object) -> None:
        sys.exit(
            up(
                SupervisorConfig(
                    var_dir=settings.VAR_DIR,
                    host=settings.HOST,
                    port=settings.PORT,
                    embedded=None if settings.DATABASE_URL_GIVEN else settings.EMBEDDED,
                    web_processes=settings.WEB_PROCESSES,
                    drain_seconds=settings.DRAIN_SECONDS,
                    demo=settings.DEMO,
                )
            )
        )
