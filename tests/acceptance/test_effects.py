"""Effects over HTTP: what a key-blind upstream received, beside what the ledger says (section T)."""

import contextlib
import os
import signal
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest

from tests.support.checker import assert_sound
from tests.support.client import meanwhile
from tests.support.site import Site, eventually, module_site, running_site


@pytest.fixture(scope="module")
def shared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    yield from module_site(request, tmp_path_factory, "web", "cluster")


@pytest.fixture
def site(shared: Site) -> Iterator[Site]:
    yield shared
    assert_sound(shared)


@pytest.fixture
def ref() -> str:
    return uuid4().hex


def charge(ref: str, source: str = "free", amount: int = 1) -> str:
    return f"{source}.create_charge(amount={amount}, ref={ref!r})"


def wait_beats(site: Site, run: str, count: int = 2) -> None:
    """Until the run's holder has renewed its lease that often: a heartbeat carries what was asked meanwhile."""
    seen: set[object] = set()

    def enough() -> bool:
        seen.update(
            row["lease_expires_at"] for row in site.rows("SELECT lease_expires_at FROM runs_run WHERE id = %s", run)
        )
        return len(seen) > count

    eventually(enough, what="heartbeats")


def run_of(site: Site, ref: str) -> str:
    return str(site.sink.of(ref)[0]["run"])


@pytest.mark.acceptance_id("T1")
def test_an_unknown_tool_is_named_with_its_neighbours(site: Site, ref: str) -> None:
    near = site.client().execute(f"import free\nfree.create_charg(amount=1, ref={ref!r})")
    assert near["status"] == "failed"
    assert near["error"]["code"] == "tool_not_found"
    assert "free.create_charge" in near["error"]["message"]
    far = site.client().execute("import free\nfree.zzzzqqqq()")
    assert far["error"]["code"] == "tool_not_found"
    assert "search_tools" in far["error"]["message"] or "did you mean" in far["error"]["message"]
    assert site.sink.count(ref) == 0


@pytest.mark.acceptance_id("T1")
@pytest.mark.parametrize("probe", ["dir(free)", "free.__dict__", "vars(free)"])
def test_enumerating_a_source_is_answered_by_a_search_hint(site: Site, probe: str) -> None:
    answer = site.client().execute(f"import free\n{probe}")
    assert answer["status"] == "failed", answer
    message = answer["error"]["message"]
    assert "search_tools" in message or "did you mean" in message


@pytest.mark.acceptance_id("T2")
@pytest.mark.parametrize("status", [404, 500])
def test_an_upstream_error_is_a_value_with_status_and_bounded_body(site: Site, ref: str, status: int) -> None:
    site.sink.fault(ref, "status", status=status, body="no such customer " * 10_000)
    code = f"import free\ntry:\n    {charge(ref)}\nexcept RuntimeError as error:\n    said = str(error)\nsaid"
    answer = site.client().execute(code)
    assert answer["status"] == "completed", answer
    assert "upstream_error" in answer["result"]
    assert f"status {status}" in answer["result"]
    assert "no such customer" in answer["result"]
    assert len(answer["result"]) <= 2_000
    (effect,) = site.client().effects(answer["run_id"])
    assert (effect["state"], effect["ok"], effect["status"]) == ("settled", False, status)
    assert site.sink.count(ref) == 1


@pytest.mark.acceptance_id("T3")
def test_an_effect_is_reserved_before_it_leaves_and_settled_before_the_program_goes_on(site: Site, ref: str) -> None:
    after = f"after-{ref}"
    for held in (ref, after):
        site.sink.fault(held, "hold")
    code = f"import free\n{charge(ref)}\nfree.get_item(id={after!r})"
    with meanwhile(lambda: site.client().execute(code)) as finished:
        site.sink.wait_for(ref)
        (row,) = site.rows("SELECT * FROM runs_effect WHERE args->>'ref' = %s", ref)
        (line,) = site.sink.of(ref)
        assert (row["state"], row["key"], str(row["run_id"])) == ("reserved", line["key"], line["run"])
        assert site.sink.count(after) == 0
        site.sink.release(ref)
        site.sink.wait_for(after)
        (row,) = site.rows("SELECT state, answer FROM runs_effect WHERE args->>'ref' = %s", ref)
        assert row["state"] == "settled"
        assert row["answer"]["value"]["ref"] == ref
        site.sink.release(after)
        assert finished()["status"] == "completed"


@pytest.mark.acceptance_id("T6")
@pytest.mark.parametrize("fault", ["broken_json", "flood"])
def test_an_answer_that_cannot_be_represented_is_a_success_and_not_called_again(
    site: Site, ref: str, fault: str
) -> None:
    site.sink.fault(ref, fault)
    answer = site.client().execute(f"import free\n{charge(ref)}")
    assert answer["status"] == "completed", answer
    assert answer["result"]["succeeded"] is True
    (effect,) = site.client().effects(answer["run_id"])
    assert (effect["state"], effect["ok"]) == ("settled", True)
    assert site.sink.count(ref) == 1


@pytest.mark.acceptance_id("T4")
@pytest.mark.parametrize("fault", ["close", "short"])
def test_an_effect_without_a_whole_answer_is_unknown_and_never_sent_again(site: Site, ref: str, fault: str) -> None:
    site.sink.fault(ref, fault)
    code = f"import free\ntry:\n    {charge(ref)}\nexcept Exception:\n    pass\n'hidden'"
    answer = site.client().execute(code)
    assert answer["status"] == "unconfirmed", answer
    assert answer["retry_safe"] is False
    (named,) = answer["effects"]
    assert (named["tool"], named["state"]) == ("free.create_charge", "unknown")
    assert named["key"] == site.sink.of(ref)[0]["key"]
    assert site.state(answer["run_id"]) == "unconfirmed"
    assert site.sink.count(ref) == 1


@pytest.mark.acceptance_id("T4")
@pytest.mark.parametrize(
    "call", ["keyed.create_charge(amount=1, ref={ref!r})", "free.put_thing(id={ref!r}, value='v')"]
)
def test_a_repeatable_call_without_an_answer_is_sent_again_under_the_same_key(site: Site, ref: str, call: str) -> None:
    site.sink.fault(ref, "close")
    source = call.partition(".")[0]
    with meanwhile(lambda: site.client().execute(f"import {source}\n{call.format(ref=ref)}\n1")) as finished:
        site.sink.wait_for(ref, 2)
        site.sink.mend(ref)
        answer = finished()
    assert answer["status"] in ("completed", "failed"), answer
    assert len({line["key"] for line in site.sink.of(ref)}) == 1


@pytest.mark.acceptance_id("T7")
def test_cancelling_during_a_call_waits_for_its_answer(site: Site, ref: str) -> None:
    site.sink.fault(ref, "hold")
    with meanwhile(
        lambda: site.client().execute(f"import free\n{charge(ref)}\nfree.get_item(id='never-{ref}')")
    ) as done:
        site.sink.wait_for(ref)
        run = run_of(site, ref)
        asked = site.client().cancel(run)
        assert asked == {"run_id": run, "state": "running", "stopping": True}
        wait_beats(site, run)  # its holder has been told
        assert site.state(run) == "running"
        site.sink.release(ref)
        assert done() == {"status": "cancelled", "run_id": run}
    (effect,) = site.client().effects(run)
    assert (effect["state"], effect["ok"]) == ("settled", True)
    assert site.sink.count(f"never-{ref}") == 0


@pytest.mark.acceptance_id("T7")
def test_a_sandbox_killed_during_a_call_does_not_lose_the_call(site: Site, ref: str) -> None:
    site.sink.fault(ref, "hold")
    with meanwhile(lambda: site.client().execute(f"import free\n{charge(ref)}\n'went on'")) as done:
        site.sink.wait_for(ref)
        for worker in site.sandboxes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(worker.pid, signal.SIGKILL)
        site.sink.release(ref)
        answer = done()
    (effect,) = site.client().effects(answer["run_id"])
    assert (effect["state"], effect["ok"]) == ("settled", True)
    if answer["status"] == "failed":
        assert answer["error"]["code"] == "sandbox_crashed"
        assert answer["effects"] == {"settled": 1, "unknown": 0}
        assert answer["retry_safe"] is False
    else:
        assert answer["result"] == "went on"


@pytest.mark.acceptance_id("T9")
def test_of_several_effects_at_once_one_rejected_leaves_none_unaccounted(site: Site, ref: str) -> None:
    refs = [f"{ref}-{number}" for number in range(4)]
    site.sink.fault(refs[1], "status", status=422, body="no")
    for slow in (refs[2], refs[3]):
        site.sink.fault(slow, "hold")
    calls = ", ".join(charge(one) for one in refs)
    with meanwhile(lambda: site.client().execute(f"import asyncio, free\nawait asyncio.gather({calls})")) as done:
        for one in refs:
            site.sink.wait_for(one)
        run = run_of(site, refs[0])
        eventually(lambda: sum(e["state"] == "settled" for e in site.client().effects(run)) == 2)
        assert site.state(run) == "running"
        for slow in (refs[2], refs[3]):
            site.sink.release(slow)
        answer = done()
    assert answer["status"] == "failed", answer
    assert answer["error"]["code"] == "upstream_error"
    assert answer["effects"] == {"settled": 4, "unknown": 0}
    assert sorted((e["state"], e["ok"]) for e in site.client().effects(run)) == [
        ("settled", False),
        *[("settled", True)] * 3,
    ]


@pytest.mark.acceptance_id("T8")
def test_an_effect_of_a_superseded_attempt_is_not_sent(site: Site, ref: str) -> None:
    """The holder works on while its run is taken over, as after a lease that expired during a freeze."""
    before = f"before-{ref}"
    site.sink.fault(before, "hold")
    with meanwhile(
        lambda: site.client().execute(f"import free\nfree.get_item(id={before!r})\n{charge(ref)}", wait_s=5)
    ) as done:
        site.sink.wait_for(before)
        run = run_of(site, before)
        site.write("UPDATE runs_run SET epoch = 2 WHERE id = %s", run)
        site.write("UPDATE runs_attempt SET epoch = 2 WHERE run_id = %s", run)
        site.sink.release(before)
        assert done()["status"] == "running"
    assert site.sink.count(ref) == 0
    # Nobody works on the attempt that was forged; a reaper finds it once its lease is over.
    site.write("UPDATE runs_run SET lease_expires_at = now() WHERE id = %s", run)
    site.wait_state(run, "succeeded")
    assert site.sink.count(ref) == 1


@pytest.mark.acceptance_id("T10")
def test_a_blocked_tool_is_refused_when_called_and_hidden_from_search(site: Site, ref: str) -> None:
    answer = site.client().execute(f"import barred\n{charge(ref, 'barred')}")
    assert answer["status"] == "failed"
    assert answer["error"]["code"] == "tool_blocked"
    assert answer["effects"] == {"settled": 0, "unknown": 0}
    found = site.client().execute("search_tools('create charge', 50)")["result"]
    assert found
    assert not any(hit["address"].startswith("barred.") for hit in found)
    assert site.sink.count(ref) == 0


# -- crashes: a site of one's own ----------------------------------------------------------------------------


@pytest.fixture
def fragile(tmp_path: Any) -> Iterator[Site]:
    with running_site(tmp_path, "web", "cluster") as site:
        yield site


@pytest.mark.acceptance_id("T4")
def test_killed_while_effects_are_out_one_kind_ends_unconfirmed_and_the_others_go_on(fragile: Site, ref: str) -> None:
    site = fragile
    programs = {
        "effect": charge(f"e-{ref}"),
        "keyed": charge(f"k-{ref}", "keyed"),
        "put": f"free.put_thing(id='p-{ref}', value='v')",
    }
    with contextlib.ExitStack() as callers:
        for name, call in programs.items():
            held = f"{name[0]}-{ref}"
            site.sink.fault(held, "hold")
            body = {"code": f"import {call.partition('.')[0]}\n{call}\n'went on'"}
            callers.enter_context(site.client().sent("/executions", body))
            site.sink.wait_for(held)
        runs = {name: run_of(site, f"{name[0]}-{ref}") for name in programs}
        site.kill9("web")
    for name in programs:
        site.sink.release(f"{name[0]}-{ref}")
    site.start("web")
    for name in ("keyed", "put"):
        assert site.wait_state(runs[name], "succeeded", "failed", "unconfirmed") == "succeeded"
        lines = site.sink.of(f"{name[0]}-{ref}")
        assert len(lines) == 2
        assert len({line["key"] for line in lines}) == 1
        assert site.client().run(runs[name])["outcome"]["result"] == "went on"
    assert site.wait_state(runs["effect"], "unconfirmed", "succeeded") == "unconfirmed"
    outcome = site.client().run(runs["effect"])["outcome"]
    assert [(e["key"], e["state"]) for e in outcome["effects"]] == [(site.sink.of(f"e-{ref}")[0]["key"], "unknown")]
    assert outcome["retry_safe"] is False
    assert "retry" not in outcome["error"]["message"].lower()
    assert site.sink.count(f"e-{ref}") == 1
    assert_sound(site)


@pytest.mark.acceptance_id("T5")
def test_killed_after_an_answer_was_settled_the_stored_answer_is_used(fragile: Site, ref: str) -> None:
    site = fragile
    site.restart("web", crash_at="after_settle")
    with site.client().sent("/executions", {"code": f"import free\n{charge(ref, amount=7)}['charged']"}):
        assert site.wait_dead("web") == -signal.SIGKILL
    run = run_of(site, ref)
    site.start("web")
    assert site.wait_state(run, "succeeded", "failed", "unconfirmed") == "succeeded"
    assert site.client().run(run)["outcome"]["result"] == 7
    assert site.sink.count(ref) == 1
    assert_sound(site)
