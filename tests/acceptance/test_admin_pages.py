"""The admin through Django's client: who sees what, nothing can be written, bounded queries, everything escaped."""

import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.auth.models import User
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from runs.domain.states import RunEvent
from runs.models import Connection, Policy, Run, Source, Token, Tool
from runs.selectors.dashboard import dashboard
from runs.selectors.timeline import WORDS
from tests.support import admin_rows as rows

pytestmark = pytest.mark.django_db

OURS = [model for model in admin.site._registry if model._meta.app_label == "runs"]
RUNS = Path(__file__).parents[2] / "runs"
HOSTILE = "</script><img src=x onerror=alert(1)>"


@pytest.fixture
def operator() -> User:
    return rows.user("ada", superuser=True)


@pytest.fixture
def desk(operator: User) -> Client:
    client = Client()
    client.force_login(operator)
    return client


def changelist(name: str) -> str:
    return reverse(f"admin:runs_{name}_changelist")


def page_of(run: Run) -> str:
    return reverse("admin:runs_run_change", args=[run.id])


def shown(client: Client, address: str) -> str:
    answer = client.get(address)
    assert answer.status_code == 200, f"{address}: {answer.status_code}"
    return answer.content.decode()


def listed(client: Client, query: str) -> set[str]:
    answer = client.get(f"{changelist('run')}?{query}")
    assert answer.status_code == 200, query
    return {str(run.id) for run in answer.context["cl"].result_list}


def one_of_everything(owner: User) -> Run:
    run = rows.run(owner, "paused", code="print(1)")
    rows.pause(run)
    rows.effect(run)
    rows.attempt(run)
    rows.events(run, ("submit", {"by": owner.username, "origin": "inline"}), ("pause", {"executions": ["exec_1"]}))
    rows.outcome(run, {"status": "paused", "run_id": str(run.id)})
    source = Source.objects.create(name="demo", kind="openapi", base_url="http://127.0.0.1:1", created_by=owner)
    Tool.objects.create(source=source, name="create_charge", input_schema={}, effect="effect")
    Policy.objects.create(pattern="demo.*", action="block", created_by=owner)
    Connection.objects.create(source=source, ciphertext=b"CIPHER-TEXT", schemes=["bearer"], created_by=owner)
    Token.objects.create(user=owner, name="laptop", digest=b"D1GEST" * 5, scopes=["run"])
    return run


# -- who sees what -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [model._meta.model_name for model in OURS])
def test_the_admin_is_for_staff(client: Client, name: str) -> None:
    assert client.get(changelist(name)).status_code == 302
    client.force_login(rows.user("olga"))
    assert client.get(changelist(name)).status_code == 302


@pytest.mark.acceptance_id("S3")
def test_staff_who_do_not_operate_see_their_own_runs_alone(client: Client) -> None:
    helper, olga = rows.user("hugo", staff=True), rows.user("olga")
    own, foreign = rows.run(helper, "paused"), rows.run(olga, "paused")
    own_pause, foreign_pause = rows.pause(own), rows.pause(foreign)
    client.force_login(helper)
    assert listed(client, "") == {str(own.id)}
    assert client.get(page_of(own)).status_code == 200
    for address in (
        page_of(foreign),
        reverse("admin:runs_run_live", args=[foreign.id]),
        reverse("admin:runs_pausedexecution_change", args=[foreign_pause.id]),
    ):
        assert client.get(address).status_code == 404
    assert str(foreign_pause.id) not in shown(client, changelist("pausedexecution"))
    assert str(own_pause.id) in shown(client, changelist("pausedexecution"))
    assert client.get(changelist("source")).status_code == 403


def test_the_right_to_operate_opens_everything(client: Client) -> None:
    run = one_of_everything(rows.user("olga"))
    client.force_login(rows.user("otto", staff=True, operates=True))
    assert listed(client, "") == {str(run.id)}
    for model in OURS:
        assert client.get(changelist(str(model._meta.model_name))).status_code == 200


@pytest.mark.parametrize("address", ["not-an-id", "0b9f9a4e-0000-4000-8000-000000000000"])
def test_a_run_that_does_not_exist_is_a_404(desk: Client, address: str) -> None:
    assert desk.get(f"/admin/runs/run/{address}/change/").status_code == 404


# -- nothing can be written ----------------------------------------------------------------------------------


@pytest.mark.acceptance_id("O5")
@pytest.mark.parametrize("model", OURS)
def test_rows_are_read_only(desk: Client, operator: User, model: type[Any]) -> None:
    one_of_everything(operator)
    name = str(model._meta.model_name)
    row = model.objects.first()
    if row is None:
        assert name == "process"
        row = rows.process()
    before = model.objects.filter(pk=row.pk).values().get()
    assert desk.get(reverse(f"admin:runs_{name}_change", args=[row.pk])).status_code == 200
    assert desk.get(reverse(f"admin:runs_{name}_add")).status_code == 403
    assert desk.post(reverse(f"admin:runs_{name}_add"), {}).status_code == 403
    assert desk.post(reverse(f"admin:runs_{name}_change", args=[row.pk]), {"state": "failed"}).status_code == 403
    assert desk.post(reverse(f"admin:runs_{name}_delete", args=[row.pk]), {"post": "yes"}).status_code == 403
    desk.post(changelist(name), {"action": "delete_selected", "_selected_action": row.pk, "post": "yes"})
    assert model.objects.filter(pk=row.pk).values().get() == before


@pytest.mark.acceptance_id("T11")
def test_what_a_connection_or_token_holds_is_on_no_page(desk: Client, operator: User) -> None:
    one_of_everything(operator)
    connection, token = Connection.objects.get(), Token.objects.get()
    for address in (
        changelist("connection"),
        reverse("admin:runs_connection_change", args=[connection.id]),
        changelist("token"),
        reverse("admin:runs_token_change", args=[token.id]),
    ):
        text = shown(desk, address)
        assert "CIPHER-TEXT" not in text
        assert "D1GEST" not in text
    assert "bearer" in shown(desk, reverse("admin:runs_connection_change", args=[connection.id]))


def test_the_task_queue_has_no_page_of_its_own() -> None:
    assert {model._meta.app_label for model in admin.site._registry} == {"runs", "auth"}


def test_people_and_groups_can_still_be_made(desk: Client) -> None:
    for address in ("/admin/auth/user/", "/admin/auth/user/add/", "/admin/auth/group/", "/admin/auth/group/add/"):
        assert desk.get(address).status_code == 200


# -- bounded queries -----------------------------------------------------------------------------------------


def queries(client: Client, address: str) -> int:
    from django.db import connection

    with CaptureQueriesContext(connection) as captured:
        shown(client, address)
    return len(captured)


def test_the_run_list_asks_as_often_for_forty_runs_as_for_two(desk: Client, operator: User) -> None:
    for number in range(2):
        rows.run(rows.user(f"user-{number}"), "queued")
    few = queries(desk, changelist("run"))
    for number in range(2, 40):
        rows.run(rows.user(f"user-{number}"), "queued")
    assert queries(desk, changelist("run")) == few <= 6


def test_the_inbox_asks_as_often_for_twenty_questions_as_for_two(desk: Client) -> None:
    for number in range(2):
        rows.pause(rows.run(rows.user(f"user-{number}"), "paused"))
    few = queries(desk, changelist("pausedexecution"))
    for number in range(2, 20):
        rows.pause(rows.run(rows.user(f"user-{number}"), "paused"))
    assert queries(desk, changelist("pausedexecution")) == few <= 6


def test_the_run_page_asks_as_often_for_a_long_run_as_for_a_short_one(desk: Client, operator: User) -> None:
    run = one_of_everything(operator)
    few = queries(desk, page_of(run))
    for index in range(2, 30):
        rows.effect(run, index)
        rows.pause(run, call_index=index)
        rows.attempt(run, index)
    assert queries(desk, page_of(run)) == few <= 11


def test_the_home_page_asks_seven_things(desk: Client, operator: User, django_assert_num_queries: Any) -> None:
    one_of_everything(operator)
    for state in ("queued", "suspended", "failed", "unconfirmed", "succeeded", "cancelled"):
        for _ in range(3):
            rows.run(operator, state)
    with django_assert_num_queries(7):
        dashboard(None)
    with django_assert_num_queries(7):
        dashboard(operator.pk)
    # Beside those seven: the session, the user, the badge.
    assert queries(desk, "/admin/") == 10


# -- finding runs --------------------------------------------------------------------------------------------


def test_filters_narrow_the_list(desk: Client, operator: User) -> None:
    olga = rows.user("olga")
    queued = rows.run(olga, "queued", origin="background")
    paused = rows.run(operator, "paused")
    stopping = rows.run(operator, "running", cancel_requested_at=timezone.now(), cancel_requested_by=operator)
    failed = rows.run(olga, "failed", error_code="upstream_error", origin="panel")
    old = rows.run(olga, "succeeded", created=timezone.now() - timedelta(days=40))
    doubt = rows.run(olga, "unconfirmed", error_code="effect_unknown")

    def ids(*found: Run) -> set[str]:
        return {str(run.id) for run in found}

    day = (timezone.now() - timedelta(days=39)).strftime("%Y-%m-%d")
    assert listed(desk, "state=queued&state=paused") == ids(queued, paused)
    assert listed(desk, "origin=background") == ids(queued)
    assert listed(desk, "owner=OLGA") == ids(queued, failed, old, doubt)
    assert listed(desk, "code=upstream_error") == ids(failed)
    assert listed(desk, "attention=yes") == ids(paused, stopping, doubt)
    assert listed(desk, f"created_at_to={day}") == ids(old)
    assert listed(desk, "kind=worker") == set()
    assert listed(desk, "state=nonsense&code=nonsense&kind=nonsense") == ids(*Run.objects.all())


def test_the_newest_run_is_on_top(desk: Client, operator: User) -> None:
    ages = [5, 1, 3]
    made = {age: rows.run(operator, "queued", created=timezone.now() - timedelta(hours=age)) for age in ages}
    found = [run.id for run in desk.get(changelist("run")).context["cl"].result_list]
    assert found == [made[age].id for age in sorted(ages)]


def test_search_finds_by_id_its_beginning_owner_and_program_text(desk: Client, operator: User) -> None:
    olga = rows.user("olga")
    one = rows.run(olga, "queued", code="charge_the_card()")
    two = rows.run(operator, "queued", code="something_else()")
    assert listed(desk, f"q={one.id}") == {str(one.id)}
    assert listed(desk, f"q={one.id.hex[:8]}") == {str(one.id)}
    assert listed(desk, f"q={str(one.id)[:13].upper()}") == {str(one.id)}
    assert listed(desk, "q=olga") == {str(one.id)}
    assert listed(desk, "q=Something_Else") == {str(two.id)}
    assert listed(desk, "q=%00") in ({str(one.id), str(two.id)}, set())
    assert listed(desk, "q=nothing-like-it") == set()


# -- what the pages say --------------------------------------------------------------------------------------


def test_everything_a_program_writes_is_escaped(desk: Client, operator: User) -> None:
    run = rows.run(operator, "paused", code=f"x = '{HOSTILE}'", inputs={"x": HOSTILE})
    rows.pause(run, message=HOSTILE, args={"x": HOSTILE}, tool=f"demo.{HOSTILE}")
    rows.effect(run, args={"x": HOSTILE}, answer={"kind": "refused", "message": HOSTILE}, tool=f"demo.{HOSTILE}")
    rows.events(
        run, ("submit", {"by": HOSTILE}), ("log", {"lines": [HOSTILE]}), ("emitted", {"value": HOSTILE}),
        ("suspend", {"why": HOSTILE}), (HOSTILE[:40], {"x": HOSTILE}),
    )  # fmt: skip
    failed = rows.run(operator, "failed", code=HOSTILE)
    body = {"status": "failed", "run_id": "", "error": {"code": "program_error", "message": HOSTILE, "line": 1}}
    rows.outcome(failed, {**body, "retry_safe": True, "logs": [HOSTILE], "emitted": [HOSTILE]})
    pause = run.pauses.get()
    for address in (
        "/admin/",
        "/",
        *(changelist(str(model._meta.model_name)) for model in OURS),
        page_of(run),
        page_of(failed),
        reverse("admin:runs_run_live", args=[run.id]),
        reverse("admin:runs_pausedexecution_change", args=[pause.id]),
    ):
        assert "<img src=x" not in shown(desk, address), address


def test_the_failing_line_is_marked_and_says_what_to_do(desk: Client, operator: User) -> None:
    run = rows.run(operator, "failed", code="\n\n1 / 0\n", error_code="program_error")
    error = {"code": "program_error", "message": "ZeroDivisionError: division by zero", "line": 3}
    rows.outcome(run, {"status": "failed", "run_id": str(run.id), "error": error, "retry_safe": True, "logs": ["one"]})
    text = shown(desk, page_of(run))
    assert 'href="#line-3"' in text
    marked = text.split('class="hll"')
    assert len(marked) == 2
    assert 'id="line-3"' in marked[0][-60:] + marked[1][:60]
    assert "The program raised an error" in text
    assert "Nothing to do; the program" in text
    assert "Stop this run" not in text


def test_an_open_run_can_be_stopped_and_a_stopping_one_says_so(desk: Client, operator: User) -> None:
    assert "Yes, stop it" in shown(desk, page_of(rows.run(operator, "running")))
    stopping = rows.run(operator, "running", cancel_requested_at=timezone.now(), cancel_requested_by=operator)
    text = shown(desk, page_of(stopping))
    assert "Yes, stop it" not in text
    assert "Stopping" in text


@pytest.mark.acceptance_id("E11")
def test_a_decision_shows_who_when_and_through_what(desk: Client, operator: User) -> None:
    run = rows.run(operator, "suspended")
    rows.pause(
        run, decision="decline", decided_by=operator, decided_via="page", decided_at=timezone.now(), reason="too much"
    )
    text = shown(desk, page_of(run))
    assert "ada, through page" in text
    assert "too much" in text


def test_every_event_of_the_table_and_of_the_code_has_words() -> None:
    written = re.compile(r"""(?:NewEvent|\.event)\(\s*"(\w+)\"""")
    in_code = {kind for path in RUNS.rglob("*.py") for kind in written.findall(path.read_text())}
    assert {"decision", "call_settled", "auto_approved"} <= in_code
    assert ({event.value for event in RunEvent} | in_code) - set(WORDS) == set()


@pytest.mark.acceptance_id("O4")
def test_the_home_page_begins_with_what_waits_for_a_person(desk: Client, operator: User) -> None:
    assert "Nothing waits for a person" in shown(desk, "/admin/")
    run = rows.run(operator, "paused")
    pause = rows.pause(run)
    rows.run(operator, "failed", error_code="upstream_timeout")
    doubt = rows.run(operator, "unconfirmed", error_code="effect_unknown")
    text = shown(desk, "/admin/")
    assert reverse("admin:runs_pausedexecution_change", args=[pause.id]) in text
    assert "upstream_timeout" in text
    assert page_of(doubt) in text
    board = dashboard(None)
    assert (board.pending.total, board.unconfirmed.total, board.failures) == (1, 1, [("upstream_timeout", 1)])
    assert sum(board.per_hour.values()) == 3


def test_the_home_page_loads_nothing_from_elsewhere(desk: Client) -> None:
    text = shown(desk, "/admin/")
    assert 'src="http' not in text
    assert 'href="http' not in text
