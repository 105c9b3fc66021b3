"""The real site as a process of its own on the test database, and a headless Chromium that looks at it.

The site is stopped before the tables are emptied. A test
fails where the server logged a traceback, the browser a console error, or a page asked anything of another host.
"""

import contextlib
import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client

from runs.demo.ledger import Ledger
from runs.demo.place import document
from runs.demo.service import DemoService
from runs.models import Source
from runs.services.source_input import OpenAPIIn
from runs.services.sources import source_add
from tests.support.pg import _TABLES, LOCK_TIMEOUT

ROOT = Path(__file__).parents[2]
SCREENSHOTS = ROOT / "docs" / "screenshots"
CHROMIUM = os.environ.get("CHROMIUM", "/usr/bin/chromium")
_ARGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
BOUND_S = 20.0
"""How long anything here is waited for before the test fails."""
_FAULT = re.compile(r'"level": "(error|critical)"|SynchronousOnlyOperation|^Traceback|RuntimeWarning')
"""A line of the site's log that no page may cause."""
_WORK = "import django; django.setup(); from runs.jobs import run_go_on; print(run_go_on({!r}))"


@dataclass
class LiveSite:
    """`url` serves the site. Its log is kept and read at the end."""

    url: str
    environment: dict[str, str]
    log: Path

    @contextlib.contextmanager
    def client(self, user: User) -> Iterator[httpx.Client]:
        """A logged-in browser without the browser: cookies, no redirects followed."""
        with httpx.Client(base_url=self.url, timeout=BOUND_S, cookies={"sessionid": session_of(user)}) as client:
            client.get("/")  # brings the CSRF cookie
            yield client

    def post(self, client: httpx.Client, path: str, **form: str) -> httpx.Response:
        """A form sent as the page would send it, with the CSRF token of its cookie."""
        return client.post(path, data={**form, "csrfmiddlewaretoken": client.cookies["csrftoken"]})

    def work(self, run_id: object) -> str:
        """What a worker does with the run's task: drive it to its next stop."""
        done = subprocess.run(
            [sys.executable, "-c", _WORK.format(str(run_id))],
            cwd=ROOT,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=BOUND_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-2000:]
        return done.stdout.strip().splitlines()[-1]


@pytest.fixture
def transactional_db() -> None:
    """Only its name: pytest-django creates the test database if some collected test uses a fixture of this name.

    Its own fixture would empty the tables after each test, under the running site.
    """


@pytest.fixture(scope="module")
def live(django_db_setup: None, django_db_blocker: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveSite]:
    """One site for a module's tests, which share its database: each makes its own runs. Empty again afterwards."""
    name = str(connection.settings_dict["NAME"])
    assert name.startswith("test_"), "this is not a test database, and it would be emptied"
    with django_db_blocker.unblock():
        try:
            with _served(name, tmp_path_factory.mktemp("site")) as site:
                yield site
        finally:
            _empty()


def _empty() -> None:
    """The site is gone; what it, or Playwright's context, left open at the database is ended and waited for."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        cursor.execute(_TABLES)
        (statements,) = cursor.fetchone()
        cursor.execute(f"SET lock_timeout = '{LOCK_TIMEOUT}'; SET session_replication_role = replica; {statements}")
    connection.close()


@contextlib.contextmanager
def _served(name: str, tmp_path: Path) -> Iterator[LiveSite]:
    """uvicorn with the product's own application; connections wait in the socket's backlog until it is ready."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=100)
    listener.set_inheritable(True)
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    log = tmp_path / "site.log"
    environment = {
        **os.environ,
        "DATABASE_URL": re.sub(r"^(postgres(?:ql)?://[^/]*/)[^?]*", rf"\g<1>{name}", os.environ["DATABASE_URL"]),
        "VAR_DIR": str(tmp_path / "var"),
        "PUBLIC_URL": url,
    }
    environment.pop("DJANGO_ALLOW_ASYNC_UNSAFE", None)
    command = [sys.executable, "-m", "uvicorn", "executor_site.asgi:application", "--fd", str(listener.fileno())]
    with log.open("wb") as out:
        process = subprocess.Popen(
            [*command, "--timeout-graceful-shutdown", "1"],
            cwd=ROOT,
            env=environment,
            stdout=out,
            stderr=subprocess.STDOUT,
            pass_fds=[listener.fileno()],
        )
    listener.close()
    try:
        yield LiveSite(url, environment, log)
    finally:
        process.terminate()
        try:
            process.wait(BOUND_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    wrong = [line for line in log.read_text().splitlines() if _FAULT.search(line)]
    assert wrong == [], "\n".join(wrong)[-4000:]


@pytest.fixture
def demo(live: LiveSite, tmp_path: Path) -> Iterator[Ledger]:
    """The demo source, served on loopback and added as `demo`; its ledger counts the effects that arrived."""
    ledger = Ledger(tmp_path / "ledger.jsonl")
    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(DemoService(ledger), lifespan="off", log_config=None, access_log=False)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    try:
        base_url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        Source.objects.filter(name="demo").delete()
        source_add(None, OpenAPIIn(kind="openapi", name="demo", spec=document().decode(), base_url=base_url))
        yield ledger
    finally:
        server.should_exit = True
        thread.join(BOUND_S)
        listener.close()
        ledger.close()


@dataclass
class Browser:
    """One Chromium; every page that it opens is watched."""

    site: LiveSite
    chromium: Any
    faults: list[str] = field(default_factory=list)
    _contexts: list[Any] = field(default_factory=list)

    def page(self, user: User | None = None, *, javascript: bool = True, **options: Any) -> Any:
        """A page in a context of its own, logged in as `user`."""
        context = self.chromium.new_context(
            base_url=self.site.url,
            viewport={"width": 1280, "height": 800},
            java_script_enabled=javascript,
            **options,
        )
        self._contexts.append(context)
        context.set_default_timeout(BOUND_S * 1000)
        page = context.new_page()
        page.on("console", self._console)
        page.on("pageerror", lambda error: self.faults.append(f"exception: {error}"))
        page.on("request", self._request)
        if user is not None:
            context.add_cookies([{"name": "sessionid", "value": session_of(user), "url": self.site.url}])
        return page

    def close(self) -> None:
        for context in self._contexts:
            context.close()

    def _console(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.faults.append(f"console {message.type}: {message.text} at {message.location}")

    def _request(self, request: Any) -> None:
        if not request.url.startswith((self.site.url, "data:", "blob:")):
            self.faults.append(f"asked another host: {request.url}")


@pytest.fixture
def browser(live: LiveSite, monkeypatch: pytest.MonkeyPatch) -> Iterator[Browser]:
    playwright = pytest.importorskip("playwright.sync_api")
    if not Path(CHROMIUM).exists():
        pytest.skip(f"there is no {CHROMIUM}")
    # Playwright's loop runs in this thread, where the ORM of the test itself then sees one. The site has its own
    # environment and is not covered by this.
    monkeypatch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "1")
    with playwright.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=CHROMIUM, args=_ARGS)
        opened = Browser(live, chromium)
        try:
            yield opened
        finally:
            opened.close()
            chromium.close()
    assert opened.faults == []


@pytest.fixture
def screenshot() -> Callable[[Any, str], None]:
    """Keeps a picture for the documentation, only with UPDATE_SCREENSHOTS=1."""

    def take(page: Any, name: str) -> None:
        if os.environ.get("UPDATE_SCREENSHOTS") == "1":
            SCREENSHOTS.mkdir(parents=True, exist_ok=True)
            page.screenshot(path=SCREENSHOTS / f"{name}.png", animations="disabled")

    return take


def person(name: str, *, staff: bool = False, superuser: bool = False) -> User:
    """The person of this name, with exactly these rights."""
    rights = {"is_staff": staff or superuser, "is_superuser": superuser}
    return User.objects.update_or_create(username=name, defaults=rights)[0]


def session_of(user: User) -> str:
    """The cookie of a new session: logging in by hand costs a second of hashing."""
    client = Client()
    client.force_login(user)
    return client.cookies["sessionid"].value
