"""An operator's word on an unconfirmed run: what happened is answered, what did not is sent once more, by name."""

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest

from tests.support.client import Reply
from tests.support.site import Site, module_site


@pytest.fixture(scope="module")
def shared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    yield from module_site(request, tmp_path_factory, "web", "cluster")


@pytest.fixture
def site(shared: Site) -> Site:
    return shared


@pytest.fixture
def ref() -> str:
    return uuid4().hex


def unconfirmed(site: Site, ref: str) -> dict[str, Any]:
    """A run whose charge was received by a service that hung up instead of answering."""
    site.sink.fault(ref, "close")
    answer = site.client("sam").execute(
        f"import free\nfirst = free.create_charge(amount=5, ref={ref!r})\nreturn [first, 'went on']"
    )
    assert answer["status"] == "unconfirmed", answer
    site.sink.mend(ref)
    return answer


def resolve(site: Site, run_id: str, token: str = "sam", **body: Any) -> Reply:
    return site.client(token).ask("POST", f"/runs/{run_id}/resolve", json={"reason": "asked the bank", **body})


def long_ago(site: Site, run_id: str) -> None:
    site.write("UPDATE runs_effect SET reserved_at = reserved_at - interval '10 minutes' WHERE run_id = %s", run_id)


@pytest.mark.acceptance_id("T4", "O3")
def test_an_effect_that_happened_is_answered_by_the_operator_and_never_sent_again(site: Site, ref: str) -> None:
    run = unconfirmed(site, ref)
    (effect,) = run["effects"]
    said = {"key": effect["key"], "happened": True, "result": {"charged": "by phone"}}
    reply = resolve(site, run["run_id"], decision="go_on", effects=[said])
    assert (reply.status, reply.body["status"]) == (200, "running"), reply.body
    assert site.wait_state(run["run_id"], "succeeded") == "succeeded"
    detail = site.client("sam").ask("GET", f"/runs/{run['run_id']}").body
    assert detail["outcome"]["result"] == [{"charged": "by phone"}, "went on"]
    assert site.sink.count(ref) == 1
    said_by = [event["data"].get("by") for event in detail["timeline"] if event["kind"] in ("effect_resolved", "go_on")]
    assert said_by == ["sam", "sam"]


@pytest.mark.acceptance_id("O3")
def test_an_effect_that_did_not_happen_is_sent_once_more_under_the_same_key(site: Site, ref: str) -> None:
    run = unconfirmed(site, ref)
    (effect,) = run["effects"]
    said = {"key": effect["key"], "happened": False}
    early = resolve(site, run["run_id"], decision="go_on", effects=[said])
    assert (early.status, early.code) == (409, "state_conflict"), "its request may still be under way"
    long_ago(site, run["run_id"])
    assert resolve(site, run["run_id"], decision="go_on", effects=[said]).status == 200
    assert site.wait_state(run["run_id"], "succeeded") == "succeeded"
    lines = site.sink.of(ref)
    assert [line["key"] for line in lines] == [effect["key"]] * 2, "authorised by name, exactly once"
    assert resolve(site, run["run_id"], decision="go_on", effects=[said]).code == "state_conflict"


@pytest.mark.acceptance_id("O3")
def test_a_run_goes_on_only_when_everything_unknown_is_answered(site: Site, ref: str) -> None:
    run = unconfirmed(site, ref)
    reply = resolve(site, run["run_id"], decision="go_on")
    assert (reply.status, reply.code) == (409, "state_conflict")
    assert site.state(run["run_id"]) == "unconfirmed"
    assert resolve(site, run["run_id"], decision="failed").body["error"]["code"] == "resolved_failed"
    assert site.state(run["run_id"]) == "failed"
    assert site.sink.count(ref) == 1


@pytest.mark.acceptance_id("O3")
def test_only_an_operator_resolves_and_only_with_a_reason(site: Site, ref: str) -> None:
    run = unconfirmed(site, ref)
    assert resolve(site, run["run_id"], "ann", decision="failed").status == 403
    assert resolve(site, run["run_id"], decision="failed", reason="  ").code == "invalid_request"
    assert resolve(site, run["run_id"], decision="failed", effects=[{"key": "x", "happened": True}]).status == 409
    assert resolve(site, run["run_id"], decision="succeeded", result={"ok": 1}).body["result"] == {"ok": 1}
    again = site.client("sam").execute("return 1")
    assert resolve(site, again["run_id"], decision="failed").code == "state_conflict"


@pytest.mark.acceptance_id("O3")
def test_run_again_is_another_run_with_keys_of_its_own(site: Site, ref: str) -> None:
    run = unconfirmed(site, ref)
    new = resolve(site, run["run_id"], decision="run_again").body
    assert new["run_id"] != run["run_id"]
    assert site.wait_state(new["run_id"], "succeeded") == "succeeded"
    assert site.state(run["run_id"]) == "unconfirmed", "another run answers nothing about the first"
    assert len({line["key"] for line in site.sink.of(ref)}) == 2
