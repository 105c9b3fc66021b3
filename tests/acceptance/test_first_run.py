"""`manage.py up` in an empty var directory serves the main job; started again, it still knows everything (S1)."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.bench.targets import free_port
from tests.support.site import ROOT, eventually

PATIENCE_S = 60.0


class Up:
    def __init__(self, var: Path) -> None:
        self.var = var
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        env = {k: v for k, v in os.environ.items() if k not in ("DATABASE_URL", "HOST")}
        env |= {"VAR_DIR": str(self.var), "PORT": str(self.port), "SITE_MODE": "local"}
        with (self.var.parent / "up.log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, str(ROOT / "manage.py"), "up"], env=env, stdout=log, stderr=log, start_new_session=True
            )
        eventually(self.ready, PATIENCE_S, self.log())

    def log(self) -> str:
        return (self.var.parent / "up.log").read_text()[-3000:]

    def ready(self) -> bool:
        try:
            return httpx.get(f"http://127.0.0.1:{self.port}/readyz", timeout=2).status_code == 200
        except httpx.HTTPError:
            return False

    @property
    def credentials(self) -> dict[str, str]:
        return dict(json.loads((self.var / "credentials.json").read_text()))

    def post(self, path: str, token: str, **body: Any) -> dict[str, Any]:
        answer = httpx.post(
            f"http://127.0.0.1:{self.port}/api/v1{path}",
            json=body, headers={"Authorization": f"Bearer {token}"}, timeout=60,
        )  # fmt: skip
        return dict(answer.json())

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(PATIENCE_S)


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Up]:
    var = tmp_path / "var"
    var.mkdir()
    site = Up(var)
    yield site
    if site.process is not None and site.process.poll() is None:
        os.killpg(site.process.pid, signal.SIGKILL)
        site.process.wait()


@pytest.mark.acceptance_id("S1")
def test_a_fresh_site_serves_the_main_job_and_a_second_start_goes_on_with_it(up: Up) -> None:
    up.start()
    known = up.credentials
    assert (up.var / "credentials.json").stat().st_mode & 0o777 == 0o600
    code = (
        "import demo\nread = demo.get_item(id='7')['id']\nreturn [read, demo.create_charge(amount=5, ref='a')['ref']]"
    )
    paused = up.post("/executions", known["token"], code=code)
    assert paused["status"] == "paused", paused
    assert paused["execution"]["tool"] == "demo.create_charge"
    assert up.stop() == 0, up.log()

    up.start()
    assert up.credentials == known
    resumed = up.post(f"/executions/{paused['execution']['id']}/resume", known["operator_token"], action="accept")
    assert resumed["status"] == "completed", resumed
    assert resumed["result"] == ["7", "a"]
    ledger = httpx.get(f"{known['demo_url']}/ledger", timeout=10).text.splitlines()
    assert sum("create_charge" in line for line in ledger) == 1
    assert up.stop(signal.SIGINT) == 0, up.log()


def test_a_second_site_on_the_same_var_directory_says_so_and_ends(up: Up) -> None:
    up.start()
    env = os.environ | {"VAR_DIR": str(up.var), "PORT": str(free_port())}
    env.pop("DATABASE_URL", None)
    second = subprocess.run(
        [sys.executable, str(ROOT / "manage.py"), "up"], env=env, capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert second.returncode == 1
    assert "up:" in second.stderr
    assert up.ready()
