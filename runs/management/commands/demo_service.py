"""`manage.py demo_service`: serves the demo source on loopback until SIGTERM."""

import time

import uvicorn
from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from runs.demo.ledger import Ledger
from runs.demo.place import HOST, bound_socket, demo_port, ledger_path, recorded_port
from runs.demo.service import DemoService

_BIND_PATIENCE_S = 5.0
"""A predecessor that is just ending lets go of the port in this time."""
_BIND_POLL_S = 0.1
_STOP_S = 2
"""Slow reads that are cut off at the end lose nothing."""


class Command(BaseCommand):
    help = "Serve the demo source on 127.0.0.1 (DEMO_PORT, else PORT + 1) until it is told to stop."
    requires_system_checks = ()  # it has nothing of the site but its settings

    def handle(self, *args: object, **options: object) -> None:
        var_dir = settings.VAR_DIR
        try:
            # The first start chose and recorded the port: the source points there.
            port = recorded_port(var_dir)
            if port is None or settings.DEMO_PORT not in (None, 0, port):
                port = demo_port(var_dir, settings.DEMO_PORT, settings.PORT)
        except OSError as error:
            raise CommandError(str(error)) from error
        deadline = time.monotonic() + _BIND_PATIENCE_S
        while True:
            try:
                listener = bound_socket(port)
                break
            except OSError as error:
                if time.monotonic() > deadline:
                    raise CommandError(f"port {port} on {HOST} is taken: {error.strerror}") from error
                time.sleep(_BIND_POLL_S)
        ledger = Ledger(ledger_path(var_dir))
        self.stderr.write(f"demo service on http://{HOST}:{port}")
        config = uvicorn.Config(
            DemoService(ledger),
            lifespan="off",
            log_config=None,
            access_log=False,
            timeout_graceful_shutdown=_STOP_S,
            timeout_keep_alive=75,
        )
        try:
            uvicorn.Server(config).run(sockets=[listener])
        finally:
            ledger.close()
