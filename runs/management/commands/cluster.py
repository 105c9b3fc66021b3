"""`manage.py cluster`: django-q2's cluster, whose whole tree of processes dies with whoever started it.

On SIGTERM its jobs hand their runs on at once instead of working to their end (notes/django.md, "django-q2").
"""

import ctypes
import os
import signal
from types import FrameType

from django.core.management.base import BaseCommand
from django_q.cluster import Cluster

from runs.jobs import stopping

_PR_SET_PDEATHSIG = 1


class Command(BaseCommand):
    help = "Runs the background workers; their processes die with their parent, and hand on on SIGTERM."

    def handle(self, *args: object, **options: object) -> None:
        # A killed cluster otherwise leaves children behind that go on taking tasks.
        os.register_at_fork(after_in_child=_die_with_parent)
        cluster = Cluster()

        def stop(number: int, frame: FrameType | None) -> None:
            stopping.set()
            cluster.sig_handler(number, frame)

        signal.signal(signal.SIGTERM, stop)
        signal.signal(signal.SIGINT, stop)
        cluster.start()


def _die_with_parent() -> None:
    """In a forked child: be killed when its parent ends. Every process here forks from its main thread."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() == 1:
        os._exit(1)
