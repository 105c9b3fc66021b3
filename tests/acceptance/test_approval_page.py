"""/approve/<exec_id> over HTTP against the running site: who may, what is stored, what the person is told."""

from datetime import timedelta
from typing import Any
from uuid import uuid4

import httpx
import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from runs.models import PausedExecution, Run
from tests.support import admin_rows as rows
from tests.support import browser
from tests.support.browser import LiveSite, person

live, transactional_db = browser.live, browser.transactional_db
pytestmark = pytest.mark.usefixtures("transactional_db")

SIZE = {
    "type": "object",
    "properties": {"size": {"enum": ["S", "M"]}, "count": {"type": "integer", "minimum": 1}},
    "required": ["size", "count"],
}


@pytest.fixture
def olga(live: LiveSite) -> User:
    return person("olga")


def address(pause: PausedExecution) -> str:
    return f"/approve/{pause.execution_id}"


def question(owner: User, **columns: Any) -> PausedExecution:
    return rows.pause(rows.run(owner, "paused"), **columns)


def fresh(pause: PausedExecution) -> PausedExecution:
    return PausedExecution.objects.select_related("decided_by").get(id=pause.id)


@pytest.mark.acceptance_id("O4")
def test_it_asks_for_a_login_and_comes_back(live: LiveSite, olga: User) -> None:
    olga.set_password(rows.PASSWORD)
    olga.save()
    pause = question(olga)
    with httpx.Client(base_url=live.url) as client:
        answer = client.get(address(pause))
        assert answer.status_code == 302
        assert answer.headers["location"] == f"/login/?next={address(pause)}"
        client.get(answer.headers["location"])
        form = {"username": "olga", "password": rows.PASSWORD, "next": address(pause)}
        assert live.post(client, "/login/", **form).headers["location"] == address(pause)


@pytest.mark.acceptance_id("O4", "E7", "S3")
def test_another_user_sees_the_same_404_as_for_an_unknown_id(live: LiveSite, olga: User) -> None:
    pause = question(olga)
    with live.client(person("hugo")) as client:
        foreign = client.get(address(pause))
        answers = [client.get(f"/approve/exec_{uuid4()}"), client.get("/approve/nonsense")]
        answers.append(live.post(client, address(pause), action="accept"))
        for answer in (foreign, *answers):
            assert answer.status_code == 404
        assert {without_token(answer.text) for answer in answers} == {without_token(foreign.text)}
    assert fresh(pause).decision is None


def without_token(text: str) -> str:
    import re

    return re.sub(r'value="\w{64}"', "", text)


@pytest.mark.acceptance_id("O4", "E11")
def test_the_owner_sees_what_is_asked_and_decides_once(live: LiveSite, olga: User) -> None:
    pause = question(olga, args={"amount": 5, "ref": "<b>A-1</b>"})
    with live.client(olga) as client:
        page = client.get(address(pause)).text
        for shown in ("demo.create_charge", "a program of olga", "&lt;b&gt;A-1&lt;/b&gt;", "Expires"):
            assert shown in page
        assert "<b>A-1" not in page
        answer = live.post(client, address(pause), action="decline", reason="too much")
        assert answer.status_code == 302
        after = client.get(address(pause)).text
        assert "Declined" in after
        assert "by olga, through page" in after
        assert "too much" in after
        stored = fresh(pause)
        assert (stored.decision, stored.decided_by, stored.decided_via) == ("decline", olga, "page")
        again = live.post(client, address(pause), action="decline")
        assert again.status_code == 302
        assert fresh(pause).decided_at == stored.decided_at


@pytest.mark.acceptance_id("E7")
def test_another_decision_is_409_says_who_decided_and_keeps_what_was_typed(live: LiveSite, olga: User) -> None:
    pause = question(olga, decision="decline", decided_by=olga, decided_via="api", decided_at=timezone.now())
    with live.client(olga) as client:
        client.get(address(pause))
        answer = live.post(client, address(pause), action="accept", reason="but I had a good reason")
    assert answer.status_code == 409
    assert "decided before: decline, by olga" in answer.text
    assert "changed nothing" in answer.text
    assert "but I had a good reason" in answer.text


@pytest.mark.acceptance_id("E12")
def test_an_expired_question_is_410_and_nothing_is_stored(live: LiveSite, olga: User) -> None:
    pause = question(olga, expires_at=timezone.now() - timedelta(seconds=1))
    with live.client(olga) as client:
        assert "cannot be decided" in client.get(address(pause)).text
        answer = live.post(client, address(pause), action="accept")
    assert answer.status_code == 410
    assert "nothing was stored" in answer.text


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ({"f_size": "1", "f_count": "none"}, "Enter a whole number"),
        ({"f_size": "", "f_count": "2"}, "This field is required"),
        ({"f_size": "1", "f_count": "0"}, "greater than or equal to 1"),
    ],
)
def test_content_that_does_not_fit_is_422_and_the_form_comes_back(
    live: LiveSite, olga: User, content: dict[str, str], told: str
) -> None:
    pause = question(olga, kind="form", tool="ask", message="Which?", requested_schema=SIZE)
    with live.client(olga) as client:
        client.get(address(pause))
        answer = live.post(client, address(pause), action="accept", reason="typed before", **content)
    assert answer.status_code == 422
    assert told in answer.text
    assert "typed before" in answer.text
    assert fresh(pause).decision is None


@pytest.mark.parametrize(
    ("text", "status", "told"),
    [
        ("[1, 2", 422, "This is not JSON"),
        ("[NaN]", 422, "NaN is not JSON"),
        ('["\\u0000"]', 422, "NUL"),
        ("[" * 40_000, 422, "This is not JSON that can be taken"),
        ('["a"]', 422, "does not fit the requested schema"),
        ("[1, 2]", 302, ""),
    ],
)
def test_a_schema_that_is_no_simple_form_takes_json(
    live: LiveSite, olga: User, text: str, status: int, told: str
) -> None:
    schema = {"type": "array", "items": {"type": "integer"}}
    pause = question(olga, kind="form", tool="ask", message="Which?", requested_schema=schema)
    with live.client(olga) as client:
        client.get(address(pause))
        answer = live.post(client, address(pause), action="accept", content_json=text)
    assert answer.status_code == status
    assert told in answer.text
    assert fresh(pause).content == ([1, 2] if status == 302 else None)


def test_a_simple_form_is_stored_as_the_json_that_the_schema_means(live: LiveSite, olga: User) -> None:
    pause = question(olga, kind="form", tool="ask", message="Which?", requested_schema=SIZE)
    with live.client(olga) as client:
        client.get(address(pause))
        assert live.post(client, address(pause), action="accept", f_size="1", f_count="3").status_code == 302
    assert fresh(pause).content == {"size": "M", "count": 3}


@pytest.mark.acceptance_id("E11")
def test_a_question_for_staff_is_not_for_its_owner(live: LiveSite, olga: User) -> None:
    pause = question(olga, approver="staff")
    with live.client(olga) as client:
        assert "only staff" in client.get(address(pause)).text
        answer = live.post(client, address(pause), action="accept")
        assert answer.status_code == 403
        assert "only staff" in answer.text
    assert fresh(pause).decision is None
    with live.client(person("ada", superuser=True)) as client:
        client.get(address(pause))
        assert live.post(client, address(pause), action="accept").status_code == 302
    assert fresh(pause).decided_by.username == "ada"


def test_a_page_to_visit_is_a_safe_link(live: LiveSite, olga: User) -> None:
    good = question(olga, kind="url", tool="open_url", message="Sign", url="https://example.org/?a=1&b=<")
    bad = question(olga, kind="url", tool="open_url", message="Sign", url="javascript:alert(1)")
    with live.client(olga) as client:
        page = client.get(address(good)).text
        assert 'href="https://example.org/?a=1&amp;b=&lt;" target="_blank" rel="noopener noreferrer"' in page
        assert "I have done it" in page
        assert "javascript:alert(1)" not in client.get(address(bad)).text.split("href=")[-1].split(">")[0]
        assert 'href="javascript' not in client.get(address(bad)).text


def test_a_form_from_elsewhere_is_refused(live: LiveSite, olga: User) -> None:
    pause = question(olga)
    with live.client(olga) as client:
        assert client.post(address(pause), data={"action": "accept"}).status_code == 403
    assert fresh(pause).decision is None


@pytest.mark.acceptance_id("O4", "O5")
def test_the_inbox_decides_through_the_service_and_stop_cancels(live: LiveSite, olga: User) -> None:
    ada = person("ada", superuser=True)
    pause, other = question(olga), question(olga)
    with live.client(ada) as client:
        client.get("/admin/")
        decided = live.post(client, f"/admin/runs/pausedexecution/{pause.id}/decide/", action="accept", back="run")
        assert decided.headers["location"] == f"/admin/runs/run/{pause.run_id}/change/"
        assert "will be made once" in client.get(decided.headers["location"]).text
        late = live.post(
            client, f"/admin/runs/pausedexecution/{pause.id}/decide/", action="decline", reason="kept text"
        )
        assert late.status_code == 409
        assert "decided before: accept, by ada" in late.text
        assert "kept text" in late.text
        stopped = live.post(client, f"/admin/runs/run/{other.run_id}/stop/")
        assert "Cancelled" in client.get(stopped.headers["location"]).text
        assert live.post(client, f"/admin/runs/run/{uuid4()}/stop/").status_code == 404
        assert client.get(f"/admin/runs/run/{other.run_id}/stop/").status_code == 405
    assert (fresh(pause).decision, fresh(pause).decided_via) == ("accept", "admin")
    assert Run.objects.get(id=other.run_id).state == "cancelled"


def test_staff_who_do_not_operate_cannot_decide_or_stop_what_is_not_theirs(live: LiveSite, olga: User) -> None:
    pause = question(olga)
    with live.client(person("hugo", staff=True)) as client:
        client.get("/admin/")
        refused = live.post(client, f"/admin/runs/pausedexecution/{pause.id}/decide/", action="accept")
        assert refused.status_code == 404
        assert live.post(client, f"/admin/runs/run/{pause.run_id}/stop/").status_code == 404
    with live.client(olga) as client:
        client.get("/")
        assert live.post(client, f"/admin/runs/pausedexecution/{pause.id}/decide/", action="accept").status_code == 403
        assert client.get("/admin/run-panel/").status_code == 403
    assert fresh(pause).decision is None
    assert Run.objects.get(id=pause.run_id).state == "paused"


@pytest.mark.acceptance_id("O3")
def test_an_operator_resolves_an_unconfirmed_run_once_with_a_reason(live: LiveSite, olga: User) -> None:
    run = rows.run(olga, "unconfirmed", error_code="effect_unknown")
    effect = rows.effect(run, state="unknown", settled_at=None, answer=None, ok=None, status=None, duration_ms=None)
    path = f"/admin/runs/run/{run.id}/resolve/"
    with live.client(person("hugo", staff=True)) as client:
        assert live.post(client, path, decision="failed", reason="no").status_code == 404
    with live.client(person("ada", superuser=True)) as client:
        assert f"Did {effect.tool} happen?" in client.get(f"/admin/runs/run/{run.id}/change/").text
        nameless = live.post(client, path, decision="failed", happened_0="yes")
        assert nameless.status_code == 422
        unsure = live.post(client, path, decision="run_again", reason="kept text", confirm="wrong")
        assert unsure.status_code == 422
        assert "if you mean to run it again" in unsure.text
        assert "kept text" in unsure.text
        assert Run.objects.get(id=run.id).state == "unconfirmed"
        done = live.post(client, path, decision="succeeded", reason="looked it up", happened_0="yes", result="[1]")
        assert done.status_code == 302, done.text[-2000:]
        page = client.get(done.headers["location"]).text
        assert "Resolved by an operator" in page
        assert "looked it up" in page
        late = live.post(client, path, decision="failed", reason="again")
        assert "not unconfirmed any more" in client.get(late.headers["location"]).text
    assert Run.objects.get(id=run.id).state == "succeeded"


@pytest.mark.acceptance_id("E21")
def test_the_run_panel_runs_once_and_needs_the_right_to_approve_in_advance(live: LiveSite, olga: User) -> None:
    form = {"code": "print('hello')\n6 * 7", "timeout_s": "5", "key": uuid4().hex}
    with live.client(person("hugo", staff=True)) as client:
        assert "Approve everything as me" not in client.get("/admin/run-panel/").text
        refused = live.post(client, "/admin/run-panel/", **form, auto_approve="on")
        assert refused.status_code == 403
        assert "print(&#x27;hello&#x27;)" in refused.text
        first = live.post(client, "/admin/run-panel/", **form)
        again = live.post(client, "/admin/run-panel/", **form)
        assert first.status_code == again.status_code == 302
        assert first.headers["location"] == again.headers["location"]
        page = client.get(first.headers["location"]).text
        assert ">42<" in page
        assert "hello" in page
        assert live.post(client, "/admin/run-panel/", **{**form, "code": "1"}).status_code == 409
    assert Run.objects.get(id=first.headers["location"].partition("run=")[2]).origin == "panel"
