"""The embedded PostgreSQL of one var directory: made, started, recovered and stopped here.

Promises: the address is known before anything runs; two callers never make or start it twice; whatever a
crash left (a living orphan, stale pid and socket files) is cleared on `prepare`, with no committed row lost;
it listens on a private Unix socket only; it dies with the process that started it.
"""

import contextlib
import errno
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from signal import SIGINT
from urllib.parse import quote

import psycopg

from executor_site.database_url import django_database
from executor_site.postgres_cluster import (
    DATABASE,
    PORT,
    SUPERUSER,
    as_owner,
    cluster_clear,
    cluster_create,
    disk_full,
)
from executor_site.postgres_home import (
    RECORD,
    PostgresError,
    ensure_socket_dir,
    find_home,
    locked,
    socket_dir,
)
from executor_site.postgres_processes import end_all, postmaster

__all__ = ["EmbeddedPostgres", "PostgresError", "django_database"]

START_TIMEOUT_S = 60.0  # crash recovery replays at most max_wal_size (1 GB) of log; a normal start takes 0.1 s
LOG_BYTES_KEPT = 5 * 1024 * 1024  # one older generation of about the same size is kept beside it
LOG_TAIL_LINES = 5  # enough to hold the server's FATAL line and its hint
POLL_S = 0.01
CONNECT_TIMEOUT_S = 5  # a local socket answers at once; a server that hangs must not hang its supervisor

SETTINGS = {
    "listen_addresses": "",
    "unix_socket_permissions": "0700",
    "max_connections": "300",  # web pools, workers, LISTEN connections and the admin of one machine
    "shared_buffers": "128MB",
    "jit": "off",  # our statements are short: compiling them costs more than running them
    "huge_pages": "off",  # asked for in a container that forbids them, they kill the server
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_checkpoints": "off",
    "log_min_error_statement": "panic",  # statements hold users' data; the log must not
}
# synchronous_commit stays on: without it a killed server loses commits that only the power should be able to
# lose, and once nothing is synced it costs nothing.
NOT_DURABLE = {"fsync": "off", "full_page_writes": "off"}


class EmbeddedPostgres:
    """One server for one var directory. `durable=False` is for tests: fastest, and lost with the power."""

    def __init__(self, var_dir: Path, *, durable: bool = True) -> None:
        self.var_dir = var_dir.resolve()
        self.durable = durable
        self.socket_dir = socket_dir(self.var_dir)
        self.log_path = self.var_dir / "log" / "postgres.log"
        self._server: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """The same before, while and after the server runs."""
        host = quote(str(self.socket_dir), safe="")
        return f"postgresql:///{DATABASE}?host={host}&port={PORT}&user={SUPERUSER}"

    def prepare(self) -> None:
        """Leaves a data directory that `command()` can serve, and nothing else serving it.

        May be repeated, and called by two processes at once. A living server of this data directory counts as
        an orphan (the supervisor holds `up.lock`) and is shut down. Raises PostgresError.
        """
        with self._exclusive():
            self._prepare()

    def command(self) -> list[str]:
        """What runs the server in the foreground, as a child of this process; it writes to the log file."""
        home = find_home(self.var_dir)
        settings = SETTINGS | {"unix_socket_directories": str(self.socket_dir)}
        settings |= {} if self.durable else NOT_DURABLE
        options = [option for name, value in settings.items() for option in ("-c", f"{name}={value}")]
        server = [str(home.binaries / "postgres"), "-D", str(home.data), "-p", str(PORT), *options]
        return as_owner(home, server, pdeathsig=SIGINT, output=self.log_path)  # SIGINT: fast shutdown

    def wait_ready(self, timeout_s: float, *, alive: Callable[[], bool] = lambda: True) -> None:
        """Returns once a statement was answered. Gives up early when `alive` says the process is gone."""
        deadline = time.monotonic() + timeout_s
        while not self.is_ready():
            if not alive():
                raise PostgresError(f"the database stopped while starting: {self._log_tail()}")
            if time.monotonic() > deadline:
                raise PostgresError(f"the database did not answer within {timeout_s:g} s: {self._log_tail()}")
            time.sleep(POLL_S)

    def is_ready(self) -> bool:
        try:
            with psycopg.connect(self.url, connect_timeout=CONNECT_TIMEOUT_S, autocommit=True) as connection:
                connection.execute("SELECT 1")
        except psycopg.OperationalError:
            return False  # not there, still starting, or already shutting down
        return True

    def start(self) -> None:
        """Makes it run and answer. If a healthy one serves this data directory, does nothing and owns
        nothing.

        Call it from the main thread: the server ends with the thread that started it.
        """
        with self._exclusive():
            if self.is_ready():
                return
            self._prepare()
            self._reap()
            server = subprocess.Popen(self.command(), stdin=subprocess.DEVNULL, start_new_session=True)
            self._server = server
            try:
                self.wait_ready(START_TIMEOUT_S, alive=lambda: server.poll() is None)
            except BaseException:
                self.stop()
                raise

    def stop(self) -> None:
        """Ends the server this object started (fast, at once, then by force); any other is left alone."""
        server, self._server = self._server, None
        if server is None:
            return
        if server.poll() is None:
            data = find_home(self.var_dir).data
            if postmaster(data) == server.pid:
                end_all(data)
            else:  # it has not got as far as being a server
                server.kill()
        server.wait()

    def trim_log(self) -> None:
        """Keeps the log within its bound; safe while the server writes, because it appends."""
        try:
            if self.log_path.stat().st_size <= LOG_BYTES_KEPT:
                return
        except FileNotFoundError:
            return
        shutil.copyfile(self.log_path, self.log_path.with_suffix(".log.1"))
        os.truncate(self.log_path, 0)

    def destroy(self) -> None:
        """Stops it, whoever started it, and removes its data wherever it is. For tests and `make clean`."""
        self.stop()
        home = find_home(self.var_dir)
        if home.data.exists():
            end_all(home.data)
        for directory in (home.directory, self.socket_dir):
            if directory.exists():
                shutil.rmtree(directory)
        (self.var_dir / RECORD).unlink(missing_ok=True)

    def _reap(self) -> None:
        """One we started may have been killed since; `_prepare` has made sure that it is gone."""
        if self._server is not None:
            self._server.wait()

    def _prepare(self) -> None:
        home = find_home(self.var_dir)
        self.log_path.parent.mkdir(exist_ok=True)
        self.trim_log()
        ensure_socket_dir(self.socket_dir, home.owner)
        if home.data.exists():
            cluster_clear(home, self.socket_dir)
        else:
            cluster_create(home, durable=self.durable)

    @contextlib.contextmanager
    def _exclusive(self) -> Iterator[None]:
        """One caller at a time; what the operating system refuses becomes one line that says what to do."""
        try:
            self.var_dir.mkdir(parents=True, exist_ok=True)
            with locked(self.var_dir / "postgres.lock"):
                yield
        except OSError as error:
            if error.errno == errno.ENOSPC:
                raise PostgresError(disk_full(self.var_dir)) from error
            raise PostgresError(
                f"cannot prepare the database: {error.filename or self.var_dir}: {error.strerror}."
                " Make it writable, or set VAR_DIR or DATABASE_URL to another place."
            ) from error

    def _log_tail(self) -> str:
        try:
            lines = self.log_path.read_text(errors="replace").splitlines()
        except FileNotFoundError:
            return "no log"
        return f"{' | '.join(lines[-LOG_TAIL_LINES:])} (see {self.log_path})"
