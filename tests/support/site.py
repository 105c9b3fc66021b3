"""The whole product as real processes, each site over a database of its own: started, killed and started again.

A site's web processes listen on sockets that the site keeps, as the supervisor does, so no client is refused while
one of them is dead. Everything a site started is gone when its block ends. Run as a module it fills an empty
database (`python -m tests.support.site`): migrations, users, tokens and sources, once for all sites of a session.
"""

import atexit
import contextlib
import functools
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

import psycopg
import pytest
from psycopg.rows import dict_row

from executor_site.child import child_argv
from executor_site.up import site_ready
from tests.support.client import Client, Transcript
from tests.support.sink import DOCUMENT, Sink, running_sink

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 30.0
"""A bound for a broken build, never a duration a passing test waits."""
POLL_S = 0.02

TOKENS: dict[str, tuple[str, bool, tuple[str, ...]]] = {
    "ann-runs": ("ann", False, ("run",)),
    "ann": ("ann", False, ("run", "approve")),
    "bob": ("bob", False, ("run", "approve")),
    "sam": ("sam", True, ("run", "approve", "operate", "admin")),
}
"""Token → its user, whether they are staff, its scopes."""
SOURCES: dict[str, tuple[str, str] | None] = {
    "shop": None,
    "free": ("allow", "owner"),
    "keyed": ("allow", "owner"),
    "staffed": ("require_approval", "staff"),
    "barred": ("block", "owner"),
}
"""The sink under several names: `shop` by the defaults (effects need approval), `keyed` honours keys."""

T = TypeVar("T")


def eventually(predicate: Callable[[], T], within_s: float = PATIENCE_S, what: str = "") -> T:
    """The first true value of `predicate`. The only place where tests wait by looking again."""
    deadline = time.monotonic() + within_s
    while not (found := predicate()):
        assert time.monotonic() < deadline, f"not within {within_s} s: {what or predicate}"
        time.sleep(POLL_S)
    return found


@dataclass(slots=True)
class Started:
    """One process of the site, and all that its session holds."""

    name: str
    process: "subprocess.Popen[bytes]"
    log: Path

    @property
    def pid(self) -> int:
        return self.process.pid


@dataclass(frozen=True, slots=True)
class Seen:
    """One line of the process table."""

    pid: int
    parent: int
    session: int
    command: str


def process_table() -> list[Seen]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                head, _, rest = (entry / "stat").read_text().rpartition(")")
                state, parent, _, session = rest.split()[:4]
                if state != "Z":
                    found.append(Seen(int(entry.name), int(parent), int(session), head.partition("(")[2]))
    return found


@dataclass
class Site:
    directory: Path
    database_url: str
    sink: Sink
    env: Mapping[str, str]
    transcript: Transcript = field(default_factory=Transcript)
    started: dict[str, Started] = field(default_factory=dict)
    sessions: set[int] = field(default_factory=set)
    """Every session this site ever had: a process in one of them is ours, whoever its parent is now."""
    reported: set[str] = field(default_factory=set)
    """Violations that some test has failed for already."""
    _sockets: dict[str, socket.socket] = field(default_factory=dict)
    _clients: dict[tuple[str, str | None], Client] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.connection: psycopg.Connection[dict[str, Any]] = psycopg.connect(
            self.database_url, autocommit=True, row_factory=dict_row
        )

    # -- processes -------------------------------------------------------------------------------------------

    def start(self, name: str = "web", *, crash_at: str = "", ready: bool = True, **env: str) -> None:
        """Start `web…` or `cluster…` and wait until it serves, unless `ready` is False."""
        log = self.directory / f"{name}.log"
        address = self.address(name) if name.startswith("web") else ("127.0.0.1", 0)
        full = {
            **os.environ,
            **self.env,
            **env,
            "DATABASE_URL": self.database_url,
            "VAR_DIR": str(self.directory / "var"),
            "SITE_MODE": "local",
            "HOST": address[0],
            "PORT": str(address[1]),
            "EXECUTOR_CRASH_AT": crash_at,
        }
        fds = (self._sockets[name].fileno(),) if name.startswith("web") else ()
        with log.open("ab") as output:
            begin = output.tell()
            process = subprocess.Popen(
                child_argv(_argv(name, fds), pdeathsig=signal.SIGKILL),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                pass_fds=fds,
                cwd=ROOT,
                env=full,
                start_new_session=True,
            )
        self.started[name] = started = Started(name, process, log)
        self.sessions.add(process.pid)
        if ready:
            eventually(lambda: self._is_ready(started, address, begin), what=f"{name} serves")

    def _is_ready(self, started: Started, address: tuple[str, int], begin: int) -> bool:
        assert started.process.poll() is None, f"{started.name} ended while starting:\n{self.tail(started.name)}"
        if started.name.startswith("web"):
            return site_ready(*address)
        return b" running." in started.log.read_bytes()[begin:]

    def kill9(self, name: str = "web") -> None:
        """SIGKILL, and wait until it is gone: a web process alone, a cluster with its workers."""
        process = self.started[name].process
        if process.poll() is None:
            if name.startswith("web"):
                process.kill()
            else:
                os.killpg(process.pid, signal.SIGKILL)
        self.wait_dead(name)

    def wait_dead(self, name: str, within_s: float = PATIENCE_S) -> int:
        """Wait until this process has ended; how it did."""
        code = self.started[name].process.wait(within_s)
        del self.started[name]
        return code

    def restart(self, name: str = "web", **options: Any) -> None:
        self.kill9(name)
        self.start(name, **options)

    def terminate(self, name: str = "web") -> None:
        """SIGTERM, and wait until it has drained."""
        self.started[name].process.terminate()
        self.wait_dead(name)

    def signal(self, name: str, number: signal.Signals) -> None:
        self.started[name].process.send_signal(number)

    def address(self, name: str = "web") -> tuple[str, int]:
        if name not in self._sockets:
            self._sockets[name] = listener = socket.create_server(("127.0.0.1", 0), backlog=512)
            listener.set_inheritable(True)
        host, port = self._sockets[name].getsockname()
        return str(host), int(port)

    def sandboxes(self) -> list[Seen]:
        """Every sandbox worker of this site that is alive, orphans too."""
        return [seen for seen in process_table() if seen.session in self.sessions and seen.command == "monty"]

    def orphans(self) -> list[Seen]:
        """Processes in our sessions whose parent is none of ours."""
        table = [seen for seen in process_table() if seen.session in self.sessions]
        ours = {seen.pid for seen in table} | {os.getpid()}
        return [seen for seen in table if seen.parent not in ours]

    # -- what it says and holds ------------------------------------------------------------------------------

    def client(self, token: str | None = "ann", web: str = "web") -> Client:
        """A client of one web process; they all share the site's transcript."""
        if (web, token) not in self._clients:
            host, port = self.address(web)
            self._clients[web, token] = Client(f"http://{host}:{port}", token, self.transcript)
        return self._clients[web, token]

    def rows(self, query: str, *params: Any) -> list[dict[str, Any]]:
        return self.connection.execute(query, params or None).fetchall()

    def write(self, query: str, *params: Any) -> None:
        self.connection.execute(query, params or None)

    def state(self, run_id: str) -> str:
        (row,) = self.rows("SELECT state FROM runs_run WHERE id = %s", run_id)
        return str(row["state"])

    def wait_state(self, run_id: str, *states: str, within_s: float = PATIENCE_S) -> str:
        return eventually(
            lambda: state if (state := self.state(run_id)) in states else "",
            within_s,
            f"run {run_id} is {' or '.join(states)}, not {self.state(run_id)}",
        )

    def sweep(self) -> None:
        """The workers' periodic duties, once, in a process of their own."""
        self.python("import runs.jobs; runs.jobs.sweep()")

    def python(self, statement: str) -> None:
        env = {**os.environ, **self.env, "DATABASE_URL": self.database_url, "VAR_DIR": str(self.directory / "var")}
        env["DJANGO_SETTINGS_MODULE"] = "executor_site.settings"
        done = subprocess.run(
            [sys.executable, "-c", f"import django; django.setup(); {statement}"],
            cwd=ROOT,
            env=env,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S * 2,
        )
        assert done.returncode == 0, done.stderr[-4000:]

    def tail(self, name: str, characters: int = 6000) -> str:
        log = self.directory / f"{name}.log"
        return log.read_text(errors="replace")[-characters:] if log.exists() else ""

    def logged_errors(self) -> list[str]:
        """What the processes reported as defects: records of level error, and tracebacks outside of any record."""
        found = []
        for log in sorted(self.directory.glob("*.log")):
            for line in log.read_text(errors="replace").splitlines():
                if "reincarnated worker" in line:
                    continue  # django-q about a worker that a test killed
                if '"level": "error"' in line or '"level": "critical"' in line or line.startswith("Traceback"):
                    found.append(f"{log.stem}: {line[:2000]}")
        return found

    def close(self) -> None:
        for client in self._clients.values():
            client.close()
        for name in list(self.started):
            self.kill9(name)
        for session in self.sessions:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(session, signal.SIGKILL)
        for listener in self._sockets.values():
            listener.close()
        self.connection.close()


def _argv(name: str, fds: tuple[int, ...]) -> list[str]:
    if name.startswith("web"):
        argv = [sys.executable, "-m", "uvicorn", "executor_site.asgi:application", "--fd", str(fds[0])]
        argv += ["--lifespan", "on", "--loop", "uvloop", "--http", "httptools", "--no-access-log"]
        return [*argv, "--timeout-graceful-shutdown", "10"]
    return [sys.executable, str(ROOT / "manage.py"), "qcluster"]


# -- databases -----------------------------------------------------------------------------------------------


def _named(url: str, database: str) -> str:
    # Not urlunsplit: it drops the slashes of an address without a host.
    place, mark, options = url.partition("?")
    scheme, _, rest = place.partition("://")
    return f"{scheme}://{rest.partition('/')[0]}/{database}{mark}{options}"


@functools.cache
def _template(server: str) -> str:
    """A migrated and filled database to copy from, made once a session."""
    name = f"site_template_{uuid4().hex[:12]}"
    with psycopg.connect(server, autocommit=True) as conn:
        conn.execute(f"CREATE DATABASE {name}")
    atexit.register(_drop, server, name)
    env = {**os.environ, "DATABASE_URL": _named(server, name), "DJANGO_SETTINGS_MODULE": "executor_site.settings"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.site"], cwd=ROOT, env=env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return name


@contextlib.contextmanager
def _database(server: str) -> Iterator[str]:
    template, name = _template(server), f"site_{uuid4().hex[:12]}"
    with psycopg.connect(server, autocommit=True) as conn:
        conn.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
    try:
        yield _named(server, name)
    finally:
        _drop(server, name)


def _drop(server: str, name: str) -> None:
    with contextlib.suppress(psycopg.OperationalError):  # a server of the session's own is gone already
        with psycopg.connect(server, autocommit=True) as conn:
            conn.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")


@contextlib.contextmanager
def running_site(directory: Path, *start: str, **env: str) -> Iterator[Site]:
    """A site with these processes (`web`, `cluster`); nothing of it is left after the block."""
    settings = {"DATABASE_POOL": "80", "SANDBOX_PROCESSES": "8", "WORKER_PROCESSES": "2", **env}
    with running_sink(directory) as sink, _database(os.environ["DATABASE_URL"]) as url:
        site = Site(directory, url, sink, settings)
        try:
            site.write("UPDATE runs_source SET base_url = %s", sink.url)
            for name in start:
                site.start(name)
            yield site
        except BaseException as error:
            error.add_note("\n".join(f"-- {name} --\n{site.tail(name)}" for name in ("web", "web2", "cluster")))
            raise
        finally:
            site.close()


def module_site(
    request: pytest.FixtureRequest, factory: pytest.TempPathFactory, *start: str, **env: str
) -> Iterator[Site]:
    """For a module's fixture: its site, whose logs are shown when one of the module's tests failed."""
    failed = request.session.testsfailed
    with running_site(factory.mktemp("site"), *start, **env) as site:
        yield site
        if request.session.testsfailed > failed:
            capture: Any = request.config.pluginmanager.getplugin("capturemanager")
            with capture.global_and_fixture_disabled():
                for name in (*start, "web2"):
                    print(f"\n-- the end of {name}'s log --\n{site.tail(name)}")


def _fill() -> None:
    """Migrations, then the users, tokens, sources and policies that every site begins with."""
    import django

    django.setup()
    from django.contrib.auth.models import User
    from django.core.management import call_command

    from runs import models
    from runs.store.access import token_digest
    from runs.tools.openapi import import_document

    call_command("migrate", verbosity=0)
    for token, (username, staff, scopes) in TOKENS.items():
        user, _ = User.objects.get_or_create(username=username, defaults={"is_staff": staff, "is_superuser": staff})
        models.Token.objects.create(user=user, name=token, digest=token_digest(token), scopes=list(scopes))
    import json

    for name, policy in SOURCES.items():
        found = import_document(json.dumps(DOCUMENT).encode(), source=name, base_url="http://127.0.0.1:1")
        source = models.Source.objects.create(
            name=name, kind="openapi", base_url=found.base_url, honours_key=name == "keyed"
        )
        for spec in found.tools:
            models.Tool.objects.create(
                source=source,
                name=spec.name,
                description=spec.description,
                input_schema=spec.input_schema,
                output_schema=spec.output_schema,
                effect="idempotent" if spec.name == "put_thing" else spec.effect.value,
                binding=spec.binding,
                sensitive=sorted(spec.sensitive),
            )
        if policy is not None:
            models.Policy.objects.create(pattern=f"{name}.*", action=policy[0], approver=policy[1])


if __name__ == "__main__":
    _fill()
