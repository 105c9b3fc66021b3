"""The identity of a process: enough to tell a dead predecessor of this host from a living or foreign one. Pure."""

from dataclasses import dataclass
from enum import StrEnum


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    host: str
    boot_id: str
    pid_namespace: int
    pid: int
    started_ticks: int
    """Start time in clock ticks since boot: a reused pid has another one."""


class Liveness(StrEnum):
    ALIVE = "alive"
    DEAD = "dead"
    """Only on positive proof."""
    UNKNOWN = "unknown"
