"""The demo service as a process: what it answers, what it counts, and that its ledger and port outlive it."""

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

ROOT = Path(__file__).parents[2]
START_S = 30


@contextmanager
def running(var_dir: Path, **env: str) -> Iterator[tuple[str, "subprocess.Popen[bytes]"]]:
    """The service and its address, told on stderr once its port is bound."""
    process = subprocess.Popen(
        [sys.executable, "manage.py", "demo_service"],
        cwd=ROOT,
        env={**os.environ, "VAR_DIR": str(var_dir), "DEMO_PORT": "0", **env},
        stderr=subprocess.PIPE,
    )
    try:
        assert process.stderr is not None
        assert select.select([process.stderr], [], [], START_S)[0], "it did not say where it is"
        yield process.stderr.readline().decode().split()[-1], process
    finally:
        process.kill()
        process.communicate()


def test_it_reads_slowly_and_counts_every_effect_it_receives(tmp_path: Path) -> None:
    with running(tmp_path) as (url, _), httpx.Client(base_url=url, timeout=START_S) as client:
        assert client.get("/items/7").json() == client.get("/items/7").json()
        assert client.get("/items/7").json()["id"] == "7"
        assert client.get("/items/a%2Fb").json()["id"] == "a/b"
        assert client.get("/items/unknown").status_code == 404
        assert client.get("/slow", params={"ms": 20}).json() == {"waited_ms": 20}
        assert client.get("/openapi.json").json()["info"]["title"] == "Demo"
        headers = {"Idempotency-Key": "same", "X-Run-Id": "run-1"}
        for number in (1, 2):
            charged = client.post("/charges", json={"amount": 5, "ref": "A-1"}, headers=headers)
            assert (charged.status_code, charged.json()["id"]) == (201, f"ch_{number:06d}")
        assert client.post("/notes", json={"text": "two\nlines"}).json()["text"] == "two\nlines"
        ledger = client.get("/ledger")
        assert ledger.headers["content-type"].startswith("text/plain")
        lines = [json.loads(line) for line in ledger.text.splitlines()]
    assert [line["operation"] for line in lines] == ["create_charge", "create_charge", "create_note"]
    assert [line["idempotency_key"] for line in lines] == ["same", "same", None]
    assert (lines[0]["args"], lines[0]["run_id"]) == ({"amount": 5, "ref": "A-1"}, "run-1")


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/charges", {"amount": "5", "ref": "A"}, 422),
        ("/charges", {"amount": True, "ref": "A"}, 422),
        ("/charges", {"amount": 5}, 422),
        ("/notes", {"text": "x", "more": 1}, 422),
        ("/notes", [], 422),
        ("/nowhere", {}, 404),
    ],
)
async def test_what_is_no_effect_is_not_counted(tmp_path: Path, path: str, body: object, status: int) -> None:
    from runs.demo.ledger import Ledger
    from runs.demo.service import DemoService

    ledger = Ledger(tmp_path / "ledger")
    transport = httpx.ASGITransport(DemoService(ledger))  # type: ignore[arg-type]
    async with httpx.AsyncClient(transport=transport, base_url="http://demo") as client:
        assert (await client.post(path, json=body)).status_code == status
        assert (await client.post("/notes", content=b"{")).status_code == 400
        assert (await client.get("/slow?ms=x")).status_code == 422
        assert (await client.get("/ledger")).text == ""
    ledger.close()


def test_its_port_and_its_ledger_outlive_it(tmp_path: Path) -> None:
    with running(tmp_path) as (url, process):
        assert httpx.post(f"{url}/notes", json={"text": "kept"}).status_code == 201
        process.send_signal(signal.SIGKILL)
    with running(tmp_path) as (again, process):
        assert again == url
        assert httpx.post(f"{url}/notes", json={"text": "more"}).json()["id"] == "note_000002"
        assert len(httpx.get(f"{url}/ledger").text.splitlines()) == 2
        process.send_signal(signal.SIGTERM)
        assert process.wait(START_S) in (0, -signal.SIGTERM)


def test_half_a_line_does_not_swallow_the_next(tmp_path: Path) -> None:
    from runs.demo.ledger import Ledger

    path = tmp_path / "ledger"
    path.write_bytes(b'{"whole": 1}\n{"ha')
    ledger = Ledger(path)
    ledger.append("create_note", {"text": "x"}, key=None, run_id=None)
    ledger.close()
    assert json.loads(path.read_bytes().splitlines()[-1])["operation"] == "create_note"
