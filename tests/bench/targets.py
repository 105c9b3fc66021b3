"""The two things measured side by side: this site, started as `manage.py up` does, and the peer where it is installed.

A target knows how to start and kill its process, how to run code over HTTP, and how it says paused.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

ROOT = Path(__file__).resolve().parents[2]
START_S = 60.0

OURS = {
    "trivial": "return 1 + 1",
    "items1": "import demo\nreturn demo.get_item(id='7')['id']",
    "items10": (
        "import demo\nout = []\nfor i in range(10):\n    out.append(demo.get_item(id=str(i))['id'])\nreturn len(out)"
    ),
    "items10par": (
        "import asyncio, demo\nfound = await asyncio.gather(*[demo.get_item(id=str(i)) for i in range(10)])\n"
        "return len(found)"
    ),
    "note": "import demo\nreturn demo.create_note(text='bench')['id']",
    "charge": "import demo\nreturn demo.create_charge(amount=5, ref='bench')",
}
PEER = {
    "trivial": "return 1+1",
    "items1": "const r = await tools.bench.org.main.items.getItem({id: '7'}); return r.data.id",
    "items10": (
        "const out = []; for (let i = 0; i < 10; i++) "
        "{ const r = await tools.bench.org.main.items.getItem({id: String(i)}); out.push(r.data.id) } return out.length"
    ),
    "items10par": (
        "const rs = await Promise.all([...Array(10).keys()].map(i => "
        "tools.bench.org.main.items.getItem({id: String(i)}))); return rs.length"
    ),
    "charge": "return await tools.bench.org.main.charges.createCharge({body: {amount: 5, ref: 'bench'}})",
}


@dataclass
class Target:
    name: str
    base: str
    headers: dict[str, str]
    resume_headers: dict[str, str]
    code: dict[str, str]
    start: Callable[[], subprocess.Popen[bytes]]
    ready: str
    prefix: str
    pause_id: Callable[[dict[str, Any]], str]
    process: subprocess.Popen[bytes] | None = None
    served_by: Callable[[], list[int]] = list
    """The processes whose CPU and memory count: all that serve, the database included."""

    def url(self, rest: str) -> str:
        return f"{self.base}{self.prefix}{rest}"

    def up(self) -> float:
        """Start and wait for the first answered execution; seconds until then."""
        begun = time.perf_counter()
        self.process = self.start()
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            try:
                answer = httpx.post(
                    self.url("/executions"), json={"code": self.code["trivial"]}, headers=self.headers, timeout=5
                )
                if answer.status_code == 200 and answer.json()["status"] == "completed":
                    return time.perf_counter() - begun
            except (httpx.HTTPError, json.JSONDecodeError):
                pass
            time.sleep(0.01)
        raise TimeoutError(f"{self.name} did not answer within {START_S} s")

    def kill(self) -> None:
        if self.process is not None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def children(pid: int) -> list[int]:
    """The process and all its descendants."""
    found = [pid]
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in task.read_text().split():
            found += children(int(child))
    return found


def ours(var: Path, port: int) -> Target:
    env = {key: value for key, value in os.environ.items() if key != "DATABASE_URL"}
    env |= {"VAR_DIR": str(var), "PORT": str(port), "SITE_MODE": "local"}

    def start() -> subprocess.Popen[bytes]:
        with (var.parent / "ours.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, str(ROOT / "manage.py"), "up"], env=env, stdout=log, stderr=log, start_new_session=True
            )

    target = Target(
        "ours", f"http://127.0.0.1:{port}", {}, {}, OURS, start, "/readyz", "/api/v1",
        lambda body: body["execution"]["id"],
    )  # fmt: skip
    target.served_by = lambda: children(target.process.pid) if target.process else []
    return target


def credentials(var: Path) -> dict[str, str]:
    return dict(json.loads((var / "credentials.json").read_text()))


def peer(binary: Path, home: Path, port: int) -> Target:
    env = os.environ | {"HOME": str(home), "EXECUTOR_DATA_DIR": str(home / "data")}

    def start() -> subprocess.Popen[bytes]:
        with (home / "peer.log").open("ab") as log:
            return subprocess.Popen(
                [str(binary), "web", "--port", str(port), "--hostname", "127.0.0.1"],
                env=env, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip

    target = Target(
        "peer", f"http://127.0.0.1:{port}", {}, {}, PEER, start, "/api/integrations", "/api",
        lambda body: body["structured"]["executionId"],
    )  # fmt: skip
    target.served_by = lambda: children(target.process.pid) if target.process else []
    return target


def connect_peer(target: Target, service: str) -> None:
    """Tell the peer of the same demo service."""
    spec = {"spec": {"kind": "url", "url": f"{service}/openapi.json"}, "slug": "bench", "baseUrl": service}
    connection = {"owner": "org", "name": "main", "integration": "bench", "template": "none", "values": {}}
    for path, body in (("/openapi/specs", spec), ("/connections", connection)):
        httpx.post(target.url(path), json=body, timeout=30).raise_for_status()
