"""The data directory of the embedded PostgreSQL: made whole or not at all, cleared of a crash's leavings."""

import errno
import os
import shutil
import subprocess
from pathlib import Path
from signal import SIGKILL, Signals

from executor_site.child import child_argv
from executor_site.postgres_home import Home, PostgresError
from executor_site.postgres_processes import POSTMASTER_PID, end_all, living

DATABASE = "executor_site"
SUPERUSER = "executor"
PORT = 5432  # names the socket file only; nothing listens on TCP
INITDB_TIMEOUT_S = 120.0  # 0.5 s on a laptop; a slow disk syncs about 1,000 files
FREE_BYTES_NEEDED = 200 * 1024 * 1024  # a new cluster takes 60 MB; a disk that is full on the first day helps nobody


def cluster_create(home: Home, *, durable: bool) -> None:
    """Makes the cluster beside its place and moves it there whole: a crash never leaves half of one."""
    if shutil.disk_usage(home.directory).free < FREE_BYTES_NEEDED:
        raise PostgresError(disk_full(home.directory))
    fresh = home.directory / "data.new"
    if fresh.exists():
        shutil.rmtree(fresh)
    fresh.mkdir(mode=0o700)
    if home.owner.switch:
        os.chown(fresh, home.owner.uid, home.owner.gid)
    initdb = [str(home.binaries / "initdb"), "-D", str(fresh), "-U", SUPERUSER, "-E", "UTF8", "--no-locale"]
    initdb += ["--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
    initdb += [
        "--auth-local=trust",
        "--auth-host=reject",
    ]  # the socket's directory is the lock, and it is private
    initdb += ["--no-instructions", "--set", "huge_pages=off"]
    _run(home, initdb if durable else [*initdb, "--no-sync"])
    single = [str(home.binaries / "postgres"), "--single", "-D", str(fresh), "-c", "huge_pages=off"]
    single += [] if durable else ["-c", "fsync=off"]
    _run(home, [*single, "postgres"], statement=f"CREATE DATABASE {DATABASE}\n")
    fresh.rename(home.data)
    if durable:
        _sync(home.directory)


def cluster_clear(home: Home, socket_directory: Path) -> None:
    """Ends whatever serves the cluster and removes the files that would keep the next from starting."""
    made_by = (home.data / "PG_VERSION").read_text().strip()
    ours = _version(home)
    if not ours.startswith(f"{made_by}."):
        raise PostgresError(
            f"the data in {home.data} was made by PostgreSQL {made_by}, this is {ours}:"
            " export it with the older release (pg_dump) and import it here"
        )
    if not end_all(home.data):
        raise PostgresError(f"processes {living(home.data)} still use {home.data} and cannot be ended; reboot")
    # Nothing lives: these files say nothing of use, and the numbers in them may by now be another process's.
    (home.data / POSTMASTER_PID).unlink(missing_ok=True)
    for name in (f".s.PGSQL.{PORT}", f".s.PGSQL.{PORT}.lock"):
        (socket_directory / name).unlink(missing_ok=True)


def as_owner(home: Home, argv: list[str], *, pdeathsig: Signals, output: Path | None = None) -> list[str]:
    """The command line that runs a server program as the server's user, without our environment."""
    return child_argv(
        argv,
        pdeathsig=pdeathsig,
        uid=home.owner.uid if home.owner.switch else None,
        gid=home.owner.gid if home.owner.switch else None,
        output=output,
        cwd=Path("/"),
        clear_env=True,
    )


def disk_full(directory: Path) -> str:
    megabyte = 1024 * 1024
    return (
        f"no room for the database: {shutil.disk_usage(directory).free // megabyte} MB free at {directory},"
        f" about {FREE_BYTES_NEEDED // megabyte} MB are needed."
        " Free some, or set VAR_DIR or DATABASE_URL to another place."
    )


def _version(home: Home) -> str:
    done = subprocess.run([home.binaries / "postgres", "--version"], capture_output=True, text=True, check=True)
    return done.stdout.split()[-1]


def _sync(directory: Path) -> None:
    """A rename is on the disk only once its directory is."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _run(home: Home, argv: list[str], *, statement: str = "") -> None:
    done = subprocess.run(
        as_owner(home, argv, pdeathsig=SIGKILL),
        input=statement,
        capture_output=True,
        text=True,
        timeout=INITDB_TIMEOUT_S,
        check=False,
    )
    if done.returncode == 0 and "ERROR:" not in done.stderr:  # single-user mode exits 0 after an error
        return
    if os.strerror(errno.ENOSPC) in done.stderr:
        raise PostgresError(disk_full(home.directory))
    said = "; ".join(line for line in done.stderr.splitlines() if line.strip())
    raise PostgresError(f"{Path(argv[0]).name} failed for {home.directory}: {said or done.returncode}")
