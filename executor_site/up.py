"""What `manage.py up` does, in order: lock, socket, database, preparation, children, banner."""

import contextlib
import errno
import fcntl
import http.client
import os
import signal
import socket
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import structlog

from executor_site.banner import banner
from executor_site.child import child_argv
from executor_site.children import ChildSpec
from executor_site.postgres import START_TIMEOUT_S, EmbeddedPostgres, PostgresError
from executor_site.supervisor import Supervisor

ROOT = Path(__file__).resolve().parent.parent
BACKLOG = 2048  # connections that wait while web restarts; the kernel's somaxconn may lower it
BIND_PATIENCE_S = 5.0  # an instance whose supervisor was killed lets go of its port in this time
BIND_POLL_S = 0.1
SITE_READY_TIMEOUT_S = 60.0  # imports and the first reconciliation take 2 s; a cold disk many times that
READY_CHECK_TIMEOUT_S = 0.5  # the supervisor's loop stands still meanwhile
LIFESPAN_RESERVE_S = 3  # of the drain: what a web process needs to end its engines after its last request
POSTGRES_STOP = (
    (signal.SIGINT, 10.0),
    (signal.SIGQUIT, 3.0),
)  # fast shutdown writes a checkpoint; immediate does not
EVERY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}

log = structlog.get_logger(__name__)


class UpError(RuntimeError):
    """`up` cannot go on; the message is one line for the person at the terminal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SupervisorConfig:
    var_dir: Path
    host: str
    port: int
    embedded: EmbeddedPostgres | None
    """None: DATABASE_URL names a server that is not ours to start."""
    web_processes: int
    drain_seconds: float
    demo: bool
    """Whether the demo service is wanted."""


def up(config: SupervisorConfig) -> int:
    """Serves until told to stop; 0 then, 1 (with one line on stderr) when it could not begin."""
    embedded = config.embedded
    chore = (lambda: None) if embedded is None else embedded.trim_log
    try:
        with only_one(config.var_dir), listening(config.host, config.port) as listener:
            with Supervisor(drain_seconds=config.drain_seconds, report=log.info, chore=chore) as supervisor:
                _serve(config, supervisor, listener)
    except (UpError, PostgresError) as error:
        sys.stderr.write(f"up: {error}\n")
        return 1
    return 0


def _serve(config: SupervisorConfig, supervisor: Supervisor, listener: socket.socket) -> None:
    address = listener.getsockname()[:2]
    env = {**os.environ, "HOST": config.host, "PORT": str(address[1]), "PYTHONUNBUFFERED": "1"}
    if config.embedded is not None:
        database = supervisor.add(postgres_spec(config.embedded))
        if not supervisor.wait_ready(database, START_TIMEOUT_S):
            return _unless_stopped(supervisor, f"the database did not start: see {config.embedded.log_path}")
    if supervisor.run_task(manage_spec("prepare", env)) != 0:
        return _unless_stopped(supervisor, "`manage.py prepare` failed: see its output above")
    sites = [
        supervisor.add(web_spec(number, listener, config.drain_seconds, env))
        for number in range(1, config.web_processes + 1)
    ]
    supervisor.add(manage_spec("cluster", env, name="cluster"))
    if config.demo:
        # Last, so that calls in flight are answered while the others drain.
        supervisor.add(replace(manage_spec("demo_service", env, name="demo"), stop_last=True))
    if not supervisor.wait_ready(sites[0], SITE_READY_TIMEOUT_S):
        return _unless_stopped(supervisor, "the site did not become ready: see the log above")
    log.info("ready", host=address[0], port=address[1])
    with contextlib.suppress(BrokenPipeError):  # nobody reads our output; that is no reason to stop serving
        sys.stdout.write(banner(config.var_dir, f"http://{_printable(address[0])}:{address[1]}"))
        sys.stdout.flush()
    return supervisor.run()


def _unless_stopped(supervisor: Supervisor, problem: str) -> None:
    if not supervisor.stop_requests:
        raise UpError(problem)


def postgres_spec(embedded: EmbeddedPostgres) -> ChildSpec:
    return ChildSpec(
        name="postgres",
        command=embedded.command,
        before=embedded.prepare,
        ready=embedded.is_ready,
        stop=POSTGRES_STOP,
        stop_last=True,
    )


def web_spec(number: int, listener: socket.socket, drain_seconds: float, env: Mapping[str, str]) -> ChildSpec:
    """A web process on the inherited socket: while it is dead, connections wait in the socket's queue."""
    grace = max(1, int(drain_seconds) - LIFESPAN_RESERVE_S)
    argv = [sys.executable, "-m", "uvicorn", "executor_site.asgi:application", "--app-dir", str(ROOT)]
    argv += ["--fd", str(listener.fileno()), "--lifespan", "on", "--loop", "uvloop", "--http", "httptools"]
    argv += ["--log-config", str(ROOT / "executor_site" / "uvicorn_log.json")]
    argv += ["--no-access-log", "--timeout-graceful-shutdown", str(grace)]
    address = listener.getsockname()[:2]
    return ChildSpec(
        name=f"web-{number}",
        # A supervisor that was killed takes the embedded database along, so there is nothing left to drain into: the
        # port must be free for the next start at once.
        command=lambda: child_argv(argv, pdeathsig=signal.SIGKILL),
        ready=lambda: site_ready(EVERY_ADDRESS.get(address[0], address[0]), address[1]),
        pass_fds=(listener.fileno(),),
        env=env,
        cwd=ROOT,
    )


def manage_spec(command: str, env: Mapping[str, str], *, name: str | None = None) -> ChildSpec:
    argv = [sys.executable, str(ROOT / "manage.py"), command]
    return ChildSpec(
        name=name or command,
        command=lambda: child_argv(argv, pdeathsig=signal.SIGKILL),
        env=env,
        cwd=ROOT,
    )


def site_ready(host: str, port: int) -> bool:
    """Whether /readyz answers 200, over the very socket that clients use."""
    connection = http.client.HTTPConnection(host, port, timeout=READY_CHECK_TIMEOUT_S)
    try:
        connection.request("GET", "/readyz", headers={"Host": "localhost"})
        return connection.getresponse().status == http.HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False  # not there yet: it is asked again
    finally:
        connection.close()


@contextlib.contextmanager
def only_one(var_dir: Path) -> Iterator[None]:
    """One `up` a var directory. The kernel ends the hold with the process, however it ends."""
    path = var_dir / "up.lock"
    try:
        var_dir.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise UpError(f"cannot write {path}: {error.strerror}; make it writable, or set VAR_DIR") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.ftruncate(descriptor, 0)
        os.write(descriptor, f"{os.getpid()}\n".encode())
        yield
    except BlockingIOError as error:
        holder = os.read(descriptor, 32).decode(errors="replace").strip() or "unknown"
        raise UpError(
            f"already running for {var_dir} (process {holder}); stop that one, or set VAR_DIR and PORT"
        ) from error
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def listening(host: str, port: int) -> Iterator[socket.socket]:
    """The socket clients connect to, held from before the first web process until after the last."""
    listener = _bind(host, port)
    with contextlib.closing(listener):
        listener.listen(BACKLOG)
        yield listener


def _bind(host: str, port: int) -> socket.socket:
    deadline = time.monotonic() + BIND_PATIENCE_S
    while True:
        try:
            family, kind, proto, _, address = socket.getaddrinfo(
                host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )[0]
            listener = socket.socket(family, kind, proto)
            try:
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                # Inherited by every connection. uvicorn takes an inherited socket for a Unix one and does not set
                # it; without it each answer waits 40 ms for the client's delayed acknowledgement (measured).
                listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                listener.bind(address)
                listener.listen(BACKLOG)  # the port is taken only now for certain
            except OSError:
                listener.close()
                raise
            return listener
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise UpError(f"cannot listen on {host}:{port}: {error.strerror}; set HOST or PORT") from error
            if time.monotonic() > deadline:
                raise UpError(
                    f"port {port} on {host} is taken by another program; stop it, or set another PORT"
                ) from error
            time.sleep(BIND_POLL_S)


def _printable(host: str) -> str:
    host = EVERY_ADDRESS.get(host, host)
    return f"[{host}]" if ":" in host else host
