"""Which server processes live in a data directory, and how they are ended. Knows only /proc and signals.

A process is known by the directory it works in (PostgreSQL changes into its data directory), never by a
number in a file alone: numbers are used again. Signals go through a pidfd, so no other process is hit by
mistake.
"""

import os
import select
import signal
import time
from pathlib import Path

POSTMASTER_PID = "postmaster.pid"
# (signal, seconds to wait): fast shutdown may write a checkpoint; immediate has to exit; a kill to be reaped.
ENDING: tuple[tuple[signal.Signals, float], ...] = (
    (signal.SIGINT, 15.0),
    (signal.SIGQUIT, 5.0),
    (signal.SIGKILL, 5.0),
)


def _works_in(pid: int, directory: os.stat_result) -> bool:
    try:
        command = Path(f"/proc/{pid}/comm").read_text().strip()
        cwd = os.stat(f"/proc/{pid}/cwd")
    except (FileNotFoundError, PermissionError, ProcessLookupError):
        return False  # gone, or another user's: neither serves our data
    return command == "postgres" and (cwd.st_dev, cwd.st_ino) == (directory.st_dev, directory.st_ino)


def living(data: Path) -> list[int]:
    """Every server process (postmaster and backends) that works in this data directory now."""
    directory = os.stat(data)
    pids = (int(name) for name in os.listdir("/proc") if name.isdecimal())
    return [pid for pid in pids if _works_in(pid, directory)]


def postmaster(data: Path) -> int | None:
    """The living postmaster the pid file of this data directory names; None for a stale or foreign number."""
    try:
        pid = int((data / POSTMASTER_PID).read_text().split("\n", 1)[0])
    except (FileNotFoundError, ValueError):
        return None
    return pid if _works_in(pid, os.stat(data)) else None


def end_all(data: Path) -> bool:
    """End whatever serves this data directory: politely, then firmly. False if something outlives SIGKILL.

    Backends are signalled only after their postmaster is gone: while it lives, ending them is its work.
    """
    master = postmaster(data)
    if master is not None and not _end(master, data, ENDING):
        return False
    ended = [_end(pid, data, ENDING[1:]) for pid in living(data)]
    return all(ended)


def _end(pid: int, data: Path, steps: tuple[tuple[signal.Signals, float], ...]) -> bool:
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        for number, patience in steps:
            if not _works_in(pid, os.stat(data)):  # the number changed hands before we held it, or it has exited
                return True
            signal.pidfd_send_signal(handle, number)
            if _exited(handle, patience):
                return True
        return False
    except ProcessLookupError:
        return True
    finally:
        os.close(handle)


def _exited(handle: int, patience: float) -> bool:
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    deadline = time.monotonic() + patience
    while (left := deadline - time.monotonic()) > 0:
        if poll.poll(left * 1000):
            return True
    return False
