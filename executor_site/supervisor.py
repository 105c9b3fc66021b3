"""Keeps a set of children running, and ends them in order. One thread, one loop, no polling but for
readiness.

Promises: a dead child is started again with a bounded back-off; after a request to stop, all are gone within
the drain's deadline plus the grace of those that stop last; a second request ends the patience; nothing
outlives `with Supervisor()`.
"""

import selectors
import signal
import socket
import time
from collections.abc import Callable, Sequence
from types import FrameType, TracebackType
from typing import Any, Protocol, Self

from executor_site.children import Child, ChildSpec

READY_POLL_S = 0.05  # how late a child's readiness may be noticed
CHORE_EVERY_S = 60.0  # the log of a server that complains at full speed grows by some 10 MB in this time
REAP_PATIENCE_S = 5.0  # SIGKILL needs none, except from a process stuck in the kernel
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Report(Protocol):
    """Where child events go: an event's name and its fields."""

    def __call__(self, event: str, /, **fields: object) -> Any: ...


class Supervisor:
    """Use as a context manager in the main thread: it takes over the stop signals and gives them back."""

    def __init__(self, *, drain_seconds: float, report: Report, chore: Callable[[], None] = lambda: None) -> None:
        self.drain_seconds = drain_seconds
        self.stop_requests = 0
        self._report = report
        self._chore = chore
        self._chore_due = time.monotonic() + CHORE_EVERY_S
        self._children: list[Child] = []
        self._draining = False
        self._selector = selectors.DefaultSelector()
        self._wakeup, self._signalled = socket.socketpair()
        self._former: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        for end in (self._wakeup, self._signalled):
            end.setblocking(False)
        self._selector.register(self._wakeup, selectors.EVENT_READ)
        signal.set_wakeup_fd(self._signalled.fileno(), warn_on_full_buffer=False)
        for number in STOP_SIGNALS:
            if number == signal.SIGHUP and signal.getsignal(number) == signal.SIG_IGN:
                continue  # nohup: the terminal may go
            self._former[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.drain()
        for number, handler in self._former.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(-1)
        self._selector.close()
        self._wakeup.close()
        self._signalled.close()

    def add(self, spec: ChildSpec, *, restart: bool = True) -> Child:
        """Starts a child and keeps it running. What its first start raises is the caller's."""
        child = Child(spec, restart=restart)
        self._start(child)
        self._children.append(child)
        return child

    def wait_ready(self, child: Child, timeout_s: float) -> bool:
        """False when it was not ready in time, or a stop was requested."""
        return self._until(lambda: child.is_ready, timeout_s)

    def run_task(self, spec: ChildSpec) -> int | None:
        """Runs a child to its end, once, while the others are kept running. None: a stop was requested."""
        child = self.add(spec, restart=False)
        self._until(lambda: child.exit_code is not None, None)
        return child.exit_code  # of one that still runs there is none: the drain ends it

    def run(self) -> None:
        """Returns once a stop was requested; leaving the `with` block then drains."""
        self._until(lambda: False, None)

    def drain(self) -> None:
        """Ends every child: all at once with one deadline, then those that stop last, step by step."""
        self._draining = True
        for child in self._children:
            child.due = None
        if self._running():
            self._report("drain_started", seconds=self.drain_seconds)
        deadline = time.monotonic() + self.drain_seconds
        self._end([child for child in self._running() if not child.spec.stop_last], deadline)
        self._end([child for child in self._running() if child.spec.stop_last], deadline)

    def _end(self, children: Sequence[Child], deadline: float) -> None:
        steps = max((len(child.spec.stop) for child in children), default=0)
        for step in range(steps):
            # Taken before anything is said: a request that comes while it is said is a new one.
            hurried = self.stop_requests
            if self.stop_requests > 1 and step == 0:
                continue  # told twice: no more politeness
            limit = 0.0
            for child in self._running(children):
                if step < len(child.spec.stop):
                    number, patience = child.spec.stop[step]
                    limit = max(limit, deadline if patience is None else time.monotonic() + patience)
                    self._report("child_stopping", child=child.spec.name, pid=child.pid, signal=number.name)
                    child.send(number)
            while self._running(children) and time.monotonic() < limit and self.stop_requests <= max(1, hurried):
                self._turn(limit)
        for child in self._running(children):
            self._report("child_killed", child=child.spec.name, pid=child.pid)
            child.kill_group()
        limit = time.monotonic() + REAP_PATIENCE_S
        while self._running(children) and time.monotonic() < limit:
            self._turn(limit)

    def _running(self, among: Sequence[Child] | None = None) -> list[Child]:
        return [child for child in (self._children if among is None else among) if child.process is not None]

    def _until(self, condition: Callable[[], bool], timeout_s: float | None) -> bool:
        limit = None if timeout_s is None else time.monotonic() + timeout_s
        while not condition():
            if self.stop_requests or (limit is not None and time.monotonic() > limit):
                return False
            self._turn(limit)
        return True

    def _turn(self, limit: float | None) -> None:
        """One round: start what is due, ask who is ready, then wait for the next thing to happen."""
        if not self._draining:
            self._start_due()
        now = time.monotonic()
        if now >= self._chore_due:
            self._chore()
            self._chore_due = now + CHORE_EVERY_S
        times = [self._chore_due] + [child.due for child in self._children if child.due is not None]
        times += [] if limit is None else [limit]
        if not self._draining:
            times += self._ask_ready(now)
        for key, _ in self._selector.select(max(0.0, min(times) - time.monotonic())):
            if key.data is None:
                self._wakeup.recv(4096)
            else:
                self._exited(key.data)

    def _ask_ready(self, now: float) -> list[float]:
        """Until when the loop may sleep: not at all after news, else until the next asking."""
        wake: list[float] = []
        for child in self._running():
            if child.check_ready():
                seconds = round(time.monotonic() - child.started_at, 3)
                self._report("child_ready", child=child.spec.name, pid=child.pid, seconds=seconds)
                wake.append(now)
            elif not child.is_ready:
                wake.append(now + READY_POLL_S)
        return wake

    def _start_due(self) -> None:
        for child in self._children:
            if child.process is None and child.due is not None and child.due <= time.monotonic():
                try:
                    self._start(child)
                except (OSError, RuntimeError) as error:  # RuntimeError: what `before` says it cannot prepare
                    pause = child.schedule()
                    self._report("child_start_failed", child=child.spec.name, error=str(error), again_in_s=pause)

    def _start(self, child: Child) -> None:
        child.start()
        self._selector.register(child.pidfd, selectors.EVENT_READ, child)
        self._report("child_started", child=child.spec.name, pid=child.pid)

    def _exited(self, child: Child) -> None:
        self._selector.unregister(child.pidfd)
        pid, seconds = child.pid, round(time.monotonic() - child.started_at, 3)
        code = child.reap()
        fields: dict[str, object] = {"child": child.spec.name, "pid": pid, "code": code, "seconds": seconds}
        if child.restart and not self._draining:
            fields["again_in_s"] = child.schedule()
        self._report("child_exited", **fields)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self.stop_requests += 1
