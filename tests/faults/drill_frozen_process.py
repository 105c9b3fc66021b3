"""`make drill`: processes that are stopped (SIGSTOP) beyond their lease and wake up as zombies (T8)."""

import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from uuid import uuid4

import pytest

from runs.domain import limits
from tests.support.checker import assert_sound
from tests.support.site import Site, eventually, running_site

TAKEN_OVER_S = 2 * limits.LEASE_S + 10


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """`web` is the first, so it is the one that sweeps for all; it is also the one that freezes."""
    with running_site(tmp_path, "web", "web2", "cluster") as site:
        yield site
        assert_sound(site, errors=False)


@pytest.mark.timeout(180)
@pytest.mark.acceptance_id("T8")
def test_a_process_frozen_before_an_effect_does_not_send_it_when_it_wakes(site: Site) -> None:
    ref = uuid4().hex
    site.sink.fault(f"before-{ref}", "hold")
    code = f"import free\nfree.get_item(id='before-{ref}')\nfree.create_charge(amount=1, ref={ref!r})['charged']"
    with site.client().sent("/executions", {"code": code}):
        site.sink.wait_for(f"before-{ref}")
        run = site.sink.of(f"before-{ref}")[0]["run"]
        site.signal("web", signal.SIGSTOP)
        site.sink.release(f"before-{ref}")
        site.wait_state(run, "succeeded", "failed", "unconfirmed", within_s=TAKEN_OVER_S)
        assert site.state(run) == "succeeded"
        assert site.sink.count(ref) == 1
        site.signal("web", signal.SIGCONT)
        eventually(lambda: site.client().healthy())
    assert site.client().execute("1 + 1")["result"] == 2
    assert site.sink.count(ref) == 1


@pytest.mark.timeout(180)
@pytest.mark.acceptance_id("T8", "T4")
def test_a_process_frozen_between_reserve_and_send_sends_nothing_when_it_wakes(site: Site) -> None:
    """All places for calls are held, so the last effects are reserved and about to be sent when it freezes."""
    ref, waiting = uuid4().hex, 3
    out = [f"{ref}-{number}" for number in range(limits.CALLS_IN_FLIGHT + waiting)]
    for one in out:
        site.sink.fault(one, "hold")
    calls = f"[free.create_charge(amount=1, ref='{ref}-' + str(n)) for n in range({len(out)})]"
    with ExitStack() as callers:
        callers.enter_context(
            site.client().sent("/executions", {"code": f"import asyncio, free\nawait asyncio.gather(*{calls})"})
        )
        eventually(lambda: sum(site.sink.count(one) for one in out) == limits.CALLS_IN_FLIGHT)
        (row,) = site.rows("SELECT run_id::text AS id, count(*) AS n FROM runs_effect GROUP BY 1")
        assert row["n"] == len(out)
        sent = {one for one in out if site.sink.count(one)}
        site.signal("web", signal.SIGSTOP)
        site.wait_state(row["id"], "unconfirmed", within_s=TAKEN_OVER_S)
        site.signal("web", signal.SIGCONT)
        for one in sent:
            site.sink.release(one)
        eventually(lambda: site.client().healthy())
        eventually(lambda: _answers_kept(site, row["id"]) == len(sent))
    assert {one for one in out if site.sink.count(one)} == sent
    assert all(site.sink.count(one) == 1 for one in sent)
    assert site.state(row["id"]) == "unconfirmed"


def _answers_kept(site: Site, run: str) -> int:
    """Answers that came late are evidence: settled in the ledger, or kept as events."""
    (row,) = site.rows(
        "SELECT (SELECT count(*) FROM runs_effect WHERE run_id = %s AND state = 'settled' AND ok)"
        " + (SELECT count(*) FROM runs_event WHERE run_id = %s AND kind = 'call_answered_late') AS n",
        run,
        run,
    )
    return int(row["n"])
