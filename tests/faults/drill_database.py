"""`make drill`: every connection to the database is terminated once a second, under load (S4)."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import uuid4

import pytest

from tests.support.checker import assert_sound
from tests.support.client import unless_cut
from tests.support.site import Site, eventually, running_site

FOR_S = 15.0
CLIENTS = 6


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with running_site(tmp_path, "web", "cluster") as site:
        yield site


@pytest.mark.timeout(180)
@pytest.mark.acceptance_id("S4")
def test_terminating_every_connection_once_a_second_loses_nothing(site: Site) -> None:
    until = time.monotonic() + FOR_S
    answers: list[str] = []

    def caller() -> None:
        while time.monotonic() < until:
            ref = uuid4().hex
            code = f"import free\nfree.create_charge(amount=1, ref={ref!r})['charged']"
            reply = unless_cut(lambda code=code: site.client().execute_reply(code, key=uuid4().hex, wait_s=20))
            assert reply is not None, "the web process went away"
            assert reply.status in (200, 503), reply.body
            answers.append(reply.body["status"] if reply.status == 200 else "unavailable")

    with ThreadPoolExecutor(CLIENTS) as pool:
        callers = [pool.submit(caller) for _ in range(CLIENTS)]
        terminated = 0
        while time.monotonic() < until:
            due = time.monotonic() + 1.0
            eventually(lambda due=due: time.monotonic() >= due)
            terminated += len(
                site.rows(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                    " WHERE datname = current_database() AND pid <> pg_backend_pid()"
                )
            )
        for one in callers:
            one.result()
    assert terminated
    recovered = eventually(lambda: site.client().execute_reply("1 + 1").status == 200, within_s=5)
    assert recovered
    assert "completed" in answers
    assert_sound(site, within_s=40, errors=False)
    print({status: answers.count(status) for status in set(answers)}, f"{terminated} connections terminated")
