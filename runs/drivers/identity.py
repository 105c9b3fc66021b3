"""Whether a process is alive, told from its identity: DEAD only on proof (notes/sandboxes.md, "Death and identity")."""

import os
import select
import socket
from functools import cache
from pathlib import Path

from runs.domain.process import Liveness, ProcessIdentity


@cache
def host_name() -> str:
    """The machine id where there is one (a host name may repeat), else the host name."""
    machine_id = Path("/etc/machine-id")
    text = machine_id.read_text().strip() if machine_id.exists() else ""
    return f"{socket.gethostname()}/{text[:12]}" if text else socket.gethostname()


@cache
def boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def pid_namespace() -> int:
    return os.stat("/proc/self/ns/pid").st_ino


def started_ticks(pid: int) -> int | None:
    """Field 22 of /proc/<pid>/stat, or None where there is no such process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return int(text[text.rindex(")") + 2 :].split()[19])


def identity_of(pid: int) -> ProcessIdentity:
    """Raises ProcessLookupError where there is no such process."""
    ticks = started_ticks(pid)
    if ticks is None:
        raise ProcessLookupError(pid)
    return ProcessIdentity(host_name(), boot_id(), pid_namespace(), pid, ticks)


def liveness(identity: ProcessIdentity) -> Liveness:
    """Another boot of this host, no such pid, or another start time under that pid: dead. Elsewhere: unknown."""
    if identity.host != host_name():
        return Liveness.UNKNOWN
    if identity.boot_id != boot_id():
        return Liveness.DEAD
    if identity.pid_namespace != pid_namespace():
        return Liveness.UNKNOWN
    try:
        descriptor = os.pidfd_open(identity.pid)
    except ProcessLookupError:
        return Liveness.DEAD
    try:
        if started_ticks(identity.pid) != identity.started_ticks:
            return Liveness.DEAD
        # An exited process that nobody reaped has a readable pidfd; state Z alone would not prove it.
        return Liveness.DEAD if select.select([descriptor], [], [], 0)[0] else Liveness.ALIVE
    finally:
        os.close(descriptor)
