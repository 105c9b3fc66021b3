"""pytest plugin: a real PostgreSQL for the session, started before Django reads its settings.

Loaded with `-p tests.support.database`. With DATABASE_URL set it starts nothing and that database is used.
The server and its directory are gone when pytest ends, also when it is interrupted; if pytest is killed, the
server dies with it.
"""

import os
import shutil
import tempfile
from collections.abc import Generator
from pathlib import Path

import pytest

from executor_site.postgres import EmbeddedPostgres


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> Generator[None, object, object]:
    """As a wrapper it comes before pytest-django's own hook, which is the one that loads the settings."""
    directory: Path | None = None
    if not (os.environ.get("DATABASE_URL") and os.environ.get("VAR_DIR")):
        # /tmp, not $TMPDIR: a deep one would not matter to us, but a private one sends the data elsewhere.
        directory = Path(tempfile.mkdtemp(prefix="executor-test-", dir="/tmp"))
        directory.chmod(0o755)  # the server's user has to pass through it when we are root
        early_config.add_cleanup(lambda: shutil.rmtree(directory))
    if directory is not None and not os.environ.get("DATABASE_URL"):
        server = EmbeddedPostgres(directory / "database", durable=False)
        early_config.add_cleanup(lambda: _forget("DATABASE_URL"))
        early_config.add_cleanup(server.destroy)
        server.start()
        os.environ["DATABASE_URL"] = server.url
    if directory is not None and not os.environ.get("VAR_DIR"):
        early_config.add_cleanup(lambda: _forget("VAR_DIR"))
        os.environ["VAR_DIR"] = str(directory / "var")
    os.environ.setdefault("SITE_MODE", "local")
    return (yield)


def _forget(name: str) -> None:
    """A second pytest run in this process must not find the first one's, which is gone."""
    os.environ.pop(name, None)
