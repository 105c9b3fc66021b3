"""`make drill`: `manage.py up` with its own PostgreSQL, and `kill -9` of every process of it at once (P2, E10, S1)."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.bench.targets import free_port
from tests.faults.drill import FINAL
from tests.support.client import Client, Transcript
from tests.support.site import ROOT, eventually, process_table

PATIENCE_S = 90.0
ROUNDS = int(os.environ.get("DRILL_REPEAT", "5"))


class Product:
    def __init__(self, directory: Path) -> None:
        self.var = directory / "var"
        self.var.mkdir()
        self.port = free_port()
        self._log = directory / "up.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> float:
        """Start everything; the seconds until it was ready."""
        env = {name: value for name, value in os.environ.items() if name not in ("DATABASE_URL", "HOST")}
        env |= {"VAR_DIR": str(self.var), "PORT": str(self.port), "SITE_MODE": "local"}
        begun = time.monotonic()
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, str(ROOT / "manage.py"), "up"], env=env, stdout=log, stderr=log, start_new_session=True
            )
        eventually(self._ready, PATIENCE_S, f"up is ready:\n{self._log.read_text()[-3000:]}")
        return time.monotonic() - begun

    def _ready(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, self._log.read_text()[-3000:]
        try:
            return httpx.get(f"http://127.0.0.1:{self.port}/readyz", timeout=2).status_code == 200
        except httpx.HTTPError:
            return False

    def processes(self) -> list[int]:
        """`up` and all below it, whatever session they are in."""
        assert self._process is not None
        table, found = process_table(), [self._process.pid]
        for pid in found:
            found += [seen.pid for seen in table if seen.parent == pid]
        return found

    def kill_everything(self) -> None:
        assert self._process is not None
        pids = self.processes()
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass  # it died with its parent
        self._process.wait()
        eventually(lambda: not {seen.pid for seen in process_table()} & set(pids), what="everything is dead")

    def known(self) -> dict[str, str]:
        return dict(json.loads((self.var / "credentials.json").read_text()))

    def ledger(self, ref: str) -> int:
        text = httpx.get(f"{self.known()['demo_url']}/ledger", timeout=10).text
        return sum(ref in line for line in text.splitlines())


@pytest.fixture
def product(tmp_path: Path) -> Iterator[Product]:
    tmp_path.chmod(0o755)
    found = Product(tmp_path)
    yield found
    if found._process is not None and found._process.poll() is None:
        found._process.send_signal(signal.SIGTERM)
        found._process.wait(PATIENCE_S)


@pytest.mark.timeout(0)
@pytest.mark.acceptance_id("E10", "S1")
def test_what_was_acknowledged_is_there_after_every_process_was_killed(product: Product) -> None:
    product.start()
    times: list[float] = []
    for number in range(ROUNDS):
        client = Client(f"http://127.0.0.1:{product.port}", product.known()["operator_token"], Transcript())
        ref, settled = f"open-{number}", f"settled-{number}"
        call = "import demo\ndemo.create_charge(amount=5, ref='{}')"
        open_pause: dict[str, Any] = client.execute(call.format(ref))
        done = client.resume(client.execute(call.format(settled))["execution"]["id"])
        background = client.enqueue("import demo\ndemo.create_note(text='n')\nsleep(2)\n'slept'")["run_id"]
        product.kill_everything()
        times.append(product.start())
        assert client.run(done["run_id"])["outcome"] == done
        answer = client.resume(open_pause["execution"]["id"])
        assert answer["status"] == "completed", answer
        state = eventually(lambda client=client, run=background: _end_of(client, run), 40)
        # Whether the note was out when everything died is told honestly; it is never sent again.
        assert state in ("succeeded", "unconfirmed")
        assert (product.ledger(ref), product.ledger(settled)) == (1, 1)
        client.close()
    print(f"\nkill -9 of everything, {ROUNDS} times: ready again after {max(times):.1f} s at most")


def _end_of(client: Client, run: str) -> str:
    """The run's final state, or nothing."""
    state = str(client.run(run)["state"])
    return state if state in FINAL else ""
