"""The supervisor with tiny stand-in children: real processes, real signals, a real socket."""

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from executor_site.up import UpError, listening, only_one

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 10.0  # a bound for a broken build, never a duration a passing test waits

# A supervisor over the children named on its command line; each event is one JSON line on stdout.
HARNESS = """
import json, signal, sys
from executor_site.child import child_argv
from executor_site.children import ChildSpec
from executor_site.supervisor import Supervisor

def report(event, /, **fields):
    print(json.dumps({"event": event, **fields}), flush=True)

drain, fd, *programs = sys.argv[1:]
fds = (int(fd),) if int(fd) >= 0 else ()
with Supervisor(drain_seconds=float(drain), report=report) as supervisor:
    for number, program in enumerate(programs):
        last, _, program = program.rpartition("LAST:")
        argv = [sys.executable, "-c", program]
        supervisor.add(ChildSpec(
            name=f"child-{number}",
            command=lambda argv=argv: child_argv(argv, pdeathsig=signal.SIGTERM),
            pass_fds=fds,
            stop_last=bool(last),
        ))
    supervisor.run()
report("done")
"""
# As `up` does it: one child must be ready, a task must end, and only then the next begins.
IN_ORDER = """
import json, signal, sys
from pathlib import Path
from executor_site.child import child_argv
from executor_site.children import ChildSpec
from executor_site.supervisor import Supervisor

def report(event, /, **fields):
    print(json.dumps({"event": event, **fields}), flush=True)

def spec(name, program, ready=None):
    argv = [sys.executable, "-c", program]
    return ChildSpec(name=name, command=lambda: child_argv(argv, pdeathsig=signal.SIGKILL), ready=ready)

mark = Path(sys.argv[1])
with Supervisor(drain_seconds=5.0, report=report) as supervisor:
    first = supervisor.add(spec(
        "first", f"from pathlib import Path; import signal; Path({str(mark)!r}).touch(); signal.pause()", mark.exists
    ))
    report("ready", ready=supervisor.wait_ready(first, 5.0))
    report("task", code=supervisor.run_task(spec("task", "raise SystemExit(7)")))
    never = supervisor.add(spec("never", "import signal; signal.pause()", lambda: False))
    report("never", ready=supervisor.wait_ready(never, 0.2))
report("done")
"""
WAITS = "import signal; signal.pause()"
STUBBORN = """
import os, signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:
    signal.pause()
print('{"event": "stubborn"}', flush=True)
signal.pause()
"""
LEAVES_A_CHILD = """
import os, signal
child = os.fork()
if child == 0:
    signal.pause()
print('{"event": "left", "grandchild": %d}' % child, flush=True)
signal.pause()
"""
BREAKS = "raise SystemExit(3)"
SERVES = """
import socket
listener = socket.socket(fileno=FD)
while True:
    connection, _ = listener.accept()
    connection.sendall(b"served")
    connection.close()
"""


class Supervised:
    """A running harness; reads its events with a bound."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self.process = process
        self.events: list[dict[str, object]] = []
        self._rest = b""

    def until(self, event: str, **fields: object) -> dict[str, object]:
        """The next event of this name and these fields, waiting for it."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            line = self._line(deadline)
            found = json.loads(line)
            self.events.append(found)
            if found["event"] == event and fields.items() <= found.items():
                return found

    def _line(self, deadline: float) -> bytes:
        assert self.process.stdout is not None
        while b"\n" not in self._rest:
            left = deadline - time.monotonic()
            assert left > 0, f"not seen in time; so far: {self.events}"
            if select.select([self.process.stdout], [], [], left)[0]:
                part = os.read(self.process.stdout.fileno(), 65536)
                assert part, f"the supervisor ended; so far: {self.events}"
                self._rest += part
        line, self._rest = self._rest.split(b"\n", 1)
        return line


Start = Callable[..., Supervised]


@pytest.fixture
def start() -> Iterator[Start]:
    processes: list[subprocess.Popen[bytes]] = []

    def run(*programs: str, drain: float = PATIENCE_S, fd: int = -1) -> Supervised:
        process = subprocess.Popen(
            [sys.executable, "-c", HARNESS, str(drain), str(fd), *programs],
            stdout=subprocess.PIPE,
            cwd=ROOT,
            pass_fds=(fd,) if fd >= 0 else (),
        )
        processes.append(process)
        return Supervised(process)

    yield run
    for process in processes:
        if process.poll() is None:
            process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def gone(pid: object) -> bool:
    """Waits, with a bound, for a process that is not our child to be no more."""
    assert isinstance(pid, int)
    with contextlib.suppress(ProcessLookupError):
        handle = os.pidfd_open(pid)
        try:
            return bool(select.select([handle], [], [], PATIENCE_S)[0])
        finally:
            os.close(handle)
    return True


def test_a_killed_child_is_started_again_at_once(start: Start) -> None:
    supervised = start(WAITS)
    first = supervised.until("child_started")["pid"]
    os.kill(first, signal.SIGKILL)  # type: ignore[arg-type]
    exited = supervised.until("child_exited", pid=first)
    assert (exited["code"], exited["again_in_s"]) == (-signal.SIGKILL, 0.0)
    assert supervised.until("child_started")["pid"] != first


def test_a_broken_child_is_tried_later_and_later(start: Start) -> None:
    supervised = start(BREAKS)
    pauses = [supervised.until("child_exited")["again_in_s"] for _ in range(4)]
    assert pauses == [0.0, 0.2, 0.4, 0.8]


def test_no_connection_is_refused_while_the_only_web_child_is_dead(start: Start) -> None:
    with listening("127.0.0.1", 0) as listener:
        serves = SERVES.replace("FD", str(listener.fileno()))
        supervised = start(serves, fd=listener.fileno())
        for _ in range(3):
            pid = supervised.until("child_started")["pid"]
            assert answer(listener) == b"served"
            os.kill(pid, signal.SIGKILL)  # type: ignore[arg-type]
            assert gone(pid)
            assert answer(listener) == b"served"  # connected while nobody served; answered by the next child


def answer(listener: socket.socket) -> bytes:
    with socket.create_connection(listener.getsockname(), timeout=PATIENCE_S) as connection:
        return connection.recv(16)


def test_a_request_to_stop_ends_all_children_and_exits_0(start: Start) -> None:
    supervised = start(WAITS, WAITS)
    for number in range(2):
        supervised.until("child_started", child=f"child-{number}")
    supervised.process.send_signal(signal.SIGTERM)
    supervised.until("done")
    assert supervised.process.wait(PATIENCE_S) == 0


def test_the_drain_deadline_kills_a_straggler_and_what_it_forked(start: Start) -> None:
    supervised = start(STUBBORN, drain=0.3)
    pid = supervised.until("child_started")["pid"]
    supervised.until("stubborn")
    supervised.process.send_signal(signal.SIGINT)
    supervised.until("child_killed", pid=pid)
    supervised.until("done")
    assert group_is_empty(pid)


def group_is_empty(pgid: object) -> bool:
    assert isinstance(pgid, int)
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:  # an orphan is reaped by init, a moment later
        try:
            os.killpg(pgid, 0)
        except ProcessLookupError:
            return True
    return False


def test_a_second_request_to_stop_ends_the_patience(start: Start) -> None:
    supervised = start(STUBBORN, drain=3600.0)
    supervised.until("stubborn")
    supervised.process.send_signal(signal.SIGINT)
    supervised.until("child_stopping")
    supervised.process.send_signal(signal.SIGINT)
    supervised.until("child_killed")
    supervised.until("done")


def test_the_one_that_stops_last_outlives_the_others(start: Start) -> None:
    supervised = start("#LAST:" + WAITS, WAITS)
    for number in range(2):
        supervised.until("child_started", child=f"child-{number}")
    supervised.process.send_signal(signal.SIGTERM)
    supervised.until("child_exited", child="child-1")
    supervised.until("child_stopping", child="child-0")
    supervised.until("done")


def test_what_a_dead_child_left_behind_is_killed_before_the_next_start(start: Start) -> None:
    supervised = start(LEAVES_A_CHILD)
    pid = supervised.until("child_started")["pid"]
    grandchild = supervised.until("left")["grandchild"]
    os.kill(pid, signal.SIGKILL)  # type: ignore[arg-type]
    supervised.until("child_started")
    assert gone(grandchild)


def test_readiness_and_a_task_s_end_are_noticed_when_they_happen(tmp_path: Path) -> None:
    argv = [sys.executable, "-c", IN_ORDER, str(tmp_path / "mark")]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, cwd=ROOT) as process:
        supervised = Supervised(process)
        assert supervised.until("ready")["ready"] is True
        assert supervised.until("task")["code"] == 7
        assert supervised.until("never")["ready"] is False
        supervised.until("done")


def test_no_child_survives_a_killed_supervisor(start: Start) -> None:
    supervised = start(WAITS, WAITS)
    pids = [supervised.until("child_started", child=f"child-{number}")["pid"] for number in range(2)]
    supervised.process.kill()
    assert all(gone(pid) for pid in pids)


def test_a_taken_port_is_said_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("executor_site.up.BIND_PATIENCE_S", 0.0)
    with listening("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(UpError, match=f"port {port} on 127.0.0.1 is taken"), listening("127.0.0.1", port):
            pass


def test_a_second_up_for_the_same_directory_names_the_first(tmp_path: Path) -> None:
    with only_one(tmp_path):
        with pytest.raises(UpError, match=f"already running.*process {os.getpid()}"), only_one(tmp_path):
            pass
    with only_one(tmp_path):  # the hold ends with its holder
        pass
