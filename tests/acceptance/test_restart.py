"""What survives `kill -9`, another process, a lost connection and a week (section E, 6, 10, 13, 20)."""

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests.support.checker import assert_sound
from tests.support.client import at_once, meanwhile, unless_cut
from tests.support.site import Site, eventually, module_site, running_site


@pytest.fixture(scope="module")
def shared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Two web processes and a cluster that nobody kills."""
    yield from module_site(request, tmp_path_factory, "web", "web2", "cluster")


@pytest.fixture
def site(shared: Site) -> Iterator[Site]:
    yield shared
    assert_sound(shared)


@pytest.fixture
def fragile(tmp_path: Path) -> Iterator[Site]:
    """A site of one's own, to be killed."""
    with running_site(tmp_path, "web", "cluster") as site:
        yield site
        assert_sound(site)


@pytest.fixture
def ref() -> str:
    return uuid4().hex


def gated(ref: str) -> str:
    return f"import shop\nshop.create_charge(amount=5, ref={ref!r})['charged']"


def paused(site: Site, ref: str) -> str:
    answer = site.client().execute(gated(ref))
    assert answer["status"] == "paused", answer
    return str(answer["execution"]["id"])


def move_back(site: Site, execution: str, interval: str) -> None:
    """All that the pause and its run know of time, that long ago."""
    (row,) = site.rows("SELECT run_id FROM runs_pausedexecution WHERE id = %s", execution.removeprefix("exec_"))
    for table, columns, owner in (
        ("runs_pausedexecution", ("created_at", "expires_at"), "run_id"),
        ("runs_run", ("created_at", "updated_at"), "id"),
        ("runs_settledoutcome", ("settled_at",), "run_id"),
        ("runs_checkpoint", ("stored_at",), "run_id"),
    ):
        moved = ", ".join(f"{column} = {column} - '{interval}'::interval" for column in columns)
        site.write(f"UPDATE {table} SET {moved} WHERE {owner} = %s", row["run_id"])


@pytest.mark.acceptance_id("E6", "E10")
def test_a_pause_is_resumed_in_another_process_and_answered_alike_by_both(site: Site, ref: str) -> None:
    execution = paused(site, ref)
    done = site.client(web="web2").resume(execution)
    assert (done["status"], done["result"]) == ("completed", 5)
    assert site.client(web="web").resume(execution) == done
    assert site.sink.count(ref) == 1


@pytest.mark.acceptance_id("E6", "E10")
def test_64_resumes_through_two_processes_get_one_outcome_and_one_effect(site: Site, ref: str) -> None:
    execution = paused(site, ref)
    site.sink.fault(ref, "hold")
    with meanwhile(
        lambda: at_once([lambda n=n: site.client(web=("web", "web2")[n % 2]).resume(execution) for n in range(64)])
    ) as answers:
        site.sink.wait_for(ref)
        site.sink.release(ref)
        first, *others = answers()
    assert first["status"] == "completed"
    assert all(other == first for other in others)
    assert site.sink.count(ref) == 1


@pytest.mark.acceptance_id("E10")
@pytest.mark.parametrize("interval", ["1 hour", "8 days"])
def test_a_pause_is_resumed_long_after(site: Site, ref: str, interval: str) -> None:
    execution = paused(site, ref)
    move_back(site, execution, interval)
    site.sweep()
    done = site.client(web="web2").resume(execution)
    assert (done["status"], done["result"]) == ("completed", 5)
    assert site.sink.count(ref) == 1


@pytest.mark.acceptance_id("E20")
def test_the_same_key_and_body_is_the_first_run_also_at_once_and_elsewhere(site: Site, ref: str) -> None:
    code, key = f"import free\nfree.create_charge(amount=3, ref={ref!r})['charged']", uuid4().hex
    answers = at_once([lambda n=n: site.client(web=("web", "web2")[n % 2]).execute(code, key=key) for n in range(16)])
    assert (answers[0]["status"], answers[0]["result"]) == ("completed", 3)
    assert all(answer == answers[0] for answer in answers)
    assert site.client(web="web2").execute(code, key=key) == answers[0]
    assert site.sink.count(ref) == 1
    for other in ({"code": code + " "}, {"code": code, "inputs": {"x": 1}}, {"code": code, "timeout_s": 3}):
        reply = site.client().ask("POST", "/executions", json=other, headers={"Idempotency-Key": key})
        assert (reply.status, reply.code) == (409, "idempotency_conflict")
    reply = site.client().ask("POST", "/runs", json={"code": code}, headers={"Idempotency-Key": key})
    assert (reply.status, reply.code) == (409, "idempotency_conflict")
    assert site.client("bob").execute("1", key=key)["result"] == 1, "a key is its owner's"
    assert site.sink.count(ref) == 1


@pytest.mark.acceptance_id("E13")
def test_a_caller_who_leaves_during_execute_loses_nothing(site: Site, ref: str) -> None:
    site.sink.fault(ref, "hold")
    code = f"import free\nfree.create_charge(amount=3, ref={ref!r})['charged']"
    with site.client().sent("/executions", {"code": code}):
        site.sink.wait_for(ref)
        run = site.sink.of(ref)[0]["run"]
    site.sink.release(ref)
    assert site.wait_state(run, "succeeded", "failed", "unconfirmed") == "succeeded"
    assert site.client().run(run)["outcome"]["result"] == 3
    assert site.sink.count(ref) == 1


@pytest.mark.acceptance_id("E13")
def test_a_caller_who_leaves_during_resume_loses_nothing(site: Site, ref: str) -> None:
    execution = paused(site, ref)
    site.sink.fault(ref, "hold")
    with site.client().sent(f"/executions/{execution}/resume", {"action": "accept"}):
        site.sink.wait_for(ref)
    with meanwhile(lambda: site.client(web="web2").resume(execution)) as second:
        site.sink.release(ref)
        done = second()
    assert (done["status"], done["result"]) == ("completed", 5)
    assert site.client().execution(execution)["outcome"] == done
    assert site.sink.count(ref) == 1


@pytest.mark.acceptance_id("E13")
def test_a_caller_who_does_not_wait_is_told_where_to_look(site: Site, ref: str) -> None:
    site.sink.fault(ref, "hold")
    answer = site.client().execute(f"import free\nfree.create_charge(amount=3, ref={ref!r})['charged']", wait_s=0.2)
    assert answer["status"] == "running"
    assert answer["events_url"].endswith(f"/api/v1/runs/{answer['run_id']}/events")
    site.sink.release(ref)
    assert site.wait_state(answer["run_id"], "succeeded", "failed", "unconfirmed") == "succeeded"
    assert site.sink.count(ref) == 1


# -- killed --------------------------------------------------------------------------------------------------


@pytest.mark.acceptance_id("E6", "E10", "E20")
def test_after_kill_of_everything_pauses_outcomes_and_keys_are_there(fragile: Site, ref: str) -> None:
    site, key = fragile, uuid4().hex
    open_pause, settled = paused(site, ref), paused(site, f"s-{ref}")
    outcome = site.client().resume(settled)
    code = f"import free\nfree.create_charge(amount=3, ref='k-{ref}')['charged']"
    first = site.client().execute(code, key=key)
    for name in ("web", "cluster"):
        site.kill9(name)
    for name in ("web", "cluster"):
        site.start(name)
    assert site.client().resume(settled) == outcome
    assert site.client().execute(code, key=key) == first
    answers = at_once([lambda: site.client().resume(open_pause) for _ in range(8)])
    assert (answers[0]["status"], answers[0]["result"]) == ("completed", 5)
    assert all(answer == answers[0] for answer in answers)
    assert [site.sink.count(one) for one in (ref, f"s-{ref}", f"k-{ref}")] == [1, 1, 1]


@pytest.mark.acceptance_id("E10", "E13")
def test_a_resume_whose_server_was_killed_is_answered_by_the_next(fragile: Site, ref: str) -> None:
    site = fragile
    execution = paused(site, ref)
    site.restart("web", crash_at="after_decide")
    assert unless_cut(lambda: site.client().resume(execution)) is None
    assert site.wait_dead("web") == -signal.SIGKILL
    site.start("web")
    done = site.client().resume(execution)
    assert (done["status"], done["result"]) == ("completed", 5)
    assert site.sink.count(ref) == 1


@pytest.mark.acceptance_id("E13")
def test_a_run_that_only_reads_goes_on_by_itself_after_its_server_was_killed(fragile: Site, ref: str) -> None:
    site = fragile
    site.sink.fault(ref, "hold")
    with site.client().sent("/executions", {"code": f"import free\nfree.get_item(id={ref!r})['name']"}):
        site.sink.wait_for(ref)
        run = site.sink.of(ref)[0]["run"]
        site.kill9("web")
    site.sink.release(ref)
    site.start("web")
    assert site.wait_state(run, "succeeded", "failed", "unconfirmed") == "succeeded"
    assert site.client().run(run)["outcome"]["result"] == f"item {ref}"


def test_killed_workers_of_a_background_run_are_replaced(fragile: Site, ref: str) -> None:
    site = fragile
    site.sink.fault(ref, "hold")
    run = site.client().enqueue(f"import free\nfree.get_item(id={ref!r})['name']")["run_id"]
    site.sink.wait_for(ref)
    site.kill9("cluster")
    site.sink.release(ref)
    site.start("cluster")
    assert site.wait_state(run, "succeeded", "failed", "unconfirmed") == "succeeded"


def test_no_client_is_refused_while_the_web_process_is_dead(fragile: Site) -> None:
    site = fragile
    site.kill9("web")
    with meanwhile(lambda: site.client().execute("1 + 1")) as answer:
        site.start("web")
        assert answer()["result"] == 2


def test_no_sandbox_outlives_a_killed_web_process(fragile: Site) -> None:
    site = fragile
    with site.client().sent("/executions", {"code": "while True:\n    pass", "timeout_s": 60}):
        eventually(site.sandboxes)
        site.kill9("web")
    eventually(lambda: not site.sandboxes(), within_s=5, what="every sandbox is gone")
    site.start("web")
    (run,) = site.rows("SELECT id::text FROM runs_run")
    site.client().cancel(run["id"])
    site.wait_state(run["id"], "cancelled")


def test_a_drained_web_process_hands_its_runs_on(fragile: Site, ref: str) -> None:
    site = fragile
    site.sink.fault(ref, "hold")
    with meanwhile(lambda: site.client().execute(f"import free\nfree.get_item(id={ref!r})['name']")) as answer:
        site.sink.wait_for(ref)
        site.signal("web", signal.SIGTERM)
        told: Any = answer()
        assert told["status"] == "running"
        site.sink.release(ref)
        site.wait_dead("web")
    site.start("web")
    assert site.wait_state(told["run_id"], "succeeded", "failed", "unconfirmed") == "succeeded"


def test_a_terminated_cluster_hands_its_runs_on_and_loses_no_answer(fragile: Site, ref: str) -> None:
    site = fragile
    site.sink.fault(ref, "hold")
    run = site.client().enqueue(f"import free\nfree.create_charge(amount=3, ref={ref!r})['charged']")["run_id"]
    site.sink.wait_for(ref)
    site.signal("cluster", signal.SIGTERM)
    site.sink.release(ref)
    site.wait_dead("cluster")
    site.start("cluster")
    assert site.wait_state(run, "succeeded", "failed", "unconfirmed") == "succeeded"
    assert site.sink.count(ref) == 1
