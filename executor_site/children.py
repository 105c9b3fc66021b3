"""One supervised child process: what it is, how it starts, when it may start again, and that nothing of it is
left.

Each child leads its own session, so a Ctrl-C at the terminal reaches only the supervisor, and what it left
behind can be killed as one group. A child is reaped only after its group was killed: until then its number
cannot be used again.
"""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

FIRST_PAUSE_S = 0.2
LONGEST_PAUSE_S = 5.0  # a broken child must neither spin nor be late when what it waits for is back
HEALTHY_AFTER_S = 30.0  # up this long, a child has shown that it works: its next death is a new one
STOP_PATIENTLY: tuple[tuple[signal.Signals, float | None], ...] = ((signal.SIGTERM, None),)


@dataclass(frozen=True, slots=True)
class ChildSpec:
    """What to run. `command` is asked for at each start, in the supervisor's process; see `child_argv`."""

    name: str
    command: Callable[[], list[str]]
    before: Callable[[], None] | None = None
    """Done before each start, such as clearing what the last one left; may raise."""
    ready: Callable[[], bool] | None = None
    """Asked until it says yes. None: ready when started."""
    pass_fds: tuple[int, ...] = ()
    env: Mapping[str, str] | None = None
    cwd: Path | None = None
    stop: tuple[tuple[signal.Signals, float | None], ...] = STOP_PATIENTLY
    """Signals in order and the seconds each is given; None: until the drain's deadline. SIGKILL follows."""
    stop_last: bool = False
    """Stopped only when all others are gone, because they need it to end well."""


@dataclass(slots=True)
class Child:
    """The life of one spec: dead and due at a time, or running."""

    spec: ChildSpec
    process: subprocess.Popen[bytes] | None = None
    pidfd: int = -1
    started_at: float = 0.0
    is_ready: bool = False
    due: float | None = None
    deaths: int = 0
    restart: bool = True
    exit_code: int | None = None
    """How it ended last; None: it never did."""

    @property
    def pid(self) -> int | None:
        return None if self.process is None else self.process.pid

    def start(self) -> None:
        """Spawns it. Must be called in the main thread: the child dies with the thread that spawned it."""
        self.due = None
        if self.spec.before is not None:
            self.spec.before()
        self.process = subprocess.Popen(
            self.spec.command(),
            stdin=subprocess.DEVNULL,
            pass_fds=self.spec.pass_fds,
            env=self.spec.env,
            cwd=self.spec.cwd,
            start_new_session=True,
        )
        self.pidfd = os.pidfd_open(self.process.pid)
        self.started_at = time.monotonic()
        self.is_ready = self.spec.ready is None

    def check_ready(self) -> bool:
        """Asks once. True only the first time the answer is yes."""
        if self.is_ready or self.process is None or self.spec.ready is None or not self.spec.ready():
            return False
        self.is_ready = True
        return True

    def send(self, number: signal.Signals) -> None:
        """To the child itself, not its group: what is below it is its own to end in order."""
        if self.process is not None:
            signal.pidfd_send_signal(self.pidfd, number)

    def kill_group(self) -> None:
        """Everything in its process group, now. Safe after its death too, as long as it is not reaped."""
        if self.process is None:
            return
        # Popen returns after the exec, so the group exists; unreaped, its leader keeps the number taken.
        os.killpg(self.process.pid, signal.SIGKILL)

    def reap(self) -> int:
        """After its exit: kills what it left in its group. Returns how it ended (below 0: by a signal)."""
        process = self.process
        assert process is not None
        self.kill_group()
        self.exit_code = process.wait()
        os.close(self.pidfd)
        self.process, self.pidfd, self.is_ready = None, -1, False
        return self.exit_code

    def schedule(self) -> float:
        """When it may start again: at once after a first death, then later and later. Returns the pause."""
        now = time.monotonic()
        if now - self.started_at > HEALTHY_AFTER_S:
            self.deaths = 0
        pause = 0.0 if self.deaths == 0 else min(FIRST_PAUSE_S * 2 ** (self.deaths - 1), LONGEST_PAUSE_S)
        self.deaths += 1
        self.due = now + pause
        return pause
