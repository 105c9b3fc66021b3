"""The admin and the approval page in a real Chromium: clicked, watched live, by keyboard, and without JavaScript."""

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.urls import reverse

from runs.demo.ledger import Ledger
from runs.models import PausedExecution, Run
from tests.support import browser as support
from tests.support.browser import Browser, LiveSite, person

live, demo, browser, screenshot = support.live, support.demo, support.browser, support.screenshot
transactional_db = support.transactional_db
pytestmark = [pytest.mark.browser, pytest.mark.usefixtures("transactional_db"), pytest.mark.timeout(180)]

CHARGE = """\
import demo
item = demo.get_item(id="7")
print("price", item["price"])
charge = demo.create_charge(amount=item["price"], ref="A-1")
[item["name"], charge["amount"]]
"""
ASK = """\
answer = ask("Which size?", schema={
    "type": "object", "required": ["size"],
    "properties": {"size": {"enum": ["S", "M"], "title": "Size"}, "count": {"type": "integer", "title": "Count"}},
})
answer
"""


@pytest.fixture
def ada(live: LiveSite) -> User:
    return person("ada", superuser=True)


@pytest.fixture
def olga(live: LiveSite) -> User:
    return person("olga")


def started(site: LiveSite, owner: User, code: str) -> Run:
    """A run of the owner's that has come to its first stop, over the API."""
    with site.client(owner) as client:
        answer = client.post(
            "/api/v1/executions", json={"code": code}, headers={"X-CSRFToken": client.cookies["csrftoken"]}
        )
        assert answer.status_code == 200, answer.text
    return Run.objects.get(id=answer.json()["run_id"])


def open_question(run: Run) -> PausedExecution:
    return run.pauses.get(decision__isnull=True)


def run_page(run: Run) -> str:
    return reverse("admin:runs_run_change", args=[run.id])


@pytest.mark.acceptance_id("O4", "O7")
def test_a_click_approves_and_the_page_follows_without_a_reload(
    live: LiveSite, demo: Ledger, browser: Browser, ada: User, olga: User, screenshot: Callable[[Any, str], None]
) -> None:
    run = started(live, olga, CHARGE)
    page, watcher = browser.page(ada), browser.page(ada)
    for each in (page, watcher):
        each.goto(run_page(run))
        each.get_by_role("button", name="Approve").wait_for()
        each.evaluate("window.notReloaded = true")
    screenshot(page, "run-paused")
    page.get_by_role("button", name="Approve").click()
    page.get_by_text("will be made once").wait_for()
    watcher.locator("[data-live=decisions]").get_by_text("ada, through admin").wait_for()
    live.work(run.id)
    for each in (page, watcher):
        each.get_by_role("status").filter(has_text="Succeeded").wait_for()
        each.locator("[data-live=answer]").get_by_text("64.5").wait_for()
    assert watcher.evaluate("window.notReloaded") is True
    assert watcher.get_by_role("button", name="Approve").count() == 0
    assert demo.count == 1
    screenshot(watcher, "run")


@pytest.mark.acceptance_id("O7")
def test_what_is_being_typed_survives_a_live_update(live: LiveSite, browser: Browser, ada: User, olga: User) -> None:
    run = started(live, olga, ASK)
    page = browser.page(ada)
    page.goto(run_page(run))
    page.get_by_label("Reason").fill("half a sentence")
    with live.client(olga) as client:
        path = f"/approve/{open_question(run).execution_id}"
        assert live.post(client, path, action="accept", f_size="1").status_code == 302
    page.get_by_role("status").filter(has_text="Succeeded").wait_for()
    page.get_by_text("This changed meanwhile").wait_for()
    assert page.get_by_label("Reason").input_value() == "half a sentence"


@pytest.mark.acceptance_id("O7")
def test_a_form_is_answered_by_keyboard_alone(live: LiveSite, browser: Browser, olga: User) -> None:
    run = started(live, olga, ASK)
    page = browser.page(olga)
    page.goto(f"/approve/{open_question(run).execution_id}")
    focused = "document.activeElement.name || document.activeElement.textContent.trim()"
    for _ in range(30):
        page.keyboard.press("Tab")
        if page.evaluate(focused) == "f_size":
            break
    page.keyboard.press("m")
    page.keyboard.press("Tab")
    page.keyboard.type("3")
    page.keyboard.press("Enter")
    page.get_by_text("Your answer is stored").wait_for()
    page.locator("[data-live=answer]").get_by_text('"count": 3').wait_for()
    assert run.pauses.get().content == {"size": "M", "count": 3}


@pytest.mark.acceptance_id("O4", "O7")
def test_everything_works_without_javascript(
    live: LiveSite, demo: Ledger, browser: Browser, ada: User, olga: User
) -> None:
    run, other = started(live, olga, CHARGE), started(live, olga, CHARGE)
    page = browser.page(olga, javascript=False)
    page.goto(f"/approve/{open_question(run).execution_id}")
    page.get_by_label("Reason").fill("fine by me")
    page.get_by_role("button", name="Approve").click()
    page.get_by_text("Approved.").wait_for()
    page.get_by_text("fine by me").wait_for()
    page.get_by_text("64.5").last.wait_for()
    assert demo.count == 1
    desk = browser.page(ada, javascript=False)
    desk.goto("/admin/")
    desk.get_by_role("link", name="Decide").first.wait_for()
    desk.goto(reverse("admin:runs_run_changelist"))
    desk.get_by_role("link", name="Waits for a person").click()
    desk.get_by_role("link", name=other.id.hex[:8]).click()
    desk.get_by_text("Stop this run").click()
    desk.get_by_role("button", name="Yes, stop it").click()
    desk.get_by_text("Nothing works on it any more").wait_for()
    desk.get_by_role("status").filter(has_text="Cancelled").wait_for()
    assert demo.count == 1


@pytest.mark.acceptance_id("E21")
def test_the_run_panel_approves_in_advance_and_says_who(
    live: LiveSite, demo: Ledger, browser: Browser, ada: User, screenshot: Callable[[Any, str], None]
) -> None:
    page = browser.page(ada)
    page.goto(reverse("run_panel"))
    page.get_by_role("textbox", name="Program").fill(CHARGE)
    page.get_by_label("Approve everything as me").check()
    page.get_by_role("button", name="Run", exact=True).click()
    page.get_by_role("status").filter(has_text="Succeeded").wait_for()
    screenshot(page, "run-panel")
    page.get_by_role("link", name="The run’s page").click()
    page.get_by_text("demo.create_charge approved in advance").wait_for()
    page.get_by_text("Approved in advance by", exact=True).wait_for()
    assert demo.count == 1


@pytest.mark.acceptance_id("O4", "O7")
def test_the_pages_are_whole_and_ask_nothing_of_other_hosts(
    live: LiveSite, demo: Ledger, browser: Browser, ada: User, olga: User, screenshot: Callable[[Any, str], None]
) -> None:
    """The browser fixture fails on any console error and any request to another host."""
    paused = started(live, olga, CHARGE)
    started(live, olga, ASK)
    failed = started(live, olga, "x = '</script><img src=x onerror=alert(1)>'\nprint(x)\n1 / 0\n")
    for number in range(3):
        started(live, ada, f"{number} + 1")
    page = browser.page(ada)
    page.on("dialog", lambda dialog: browser.faults.append(f"dialog: {dialog.message}"))
    pause = open_question(paused)
    for name, address in (
        ("home", "/admin/"),
        ("runs", reverse("admin:runs_run_changelist")),
        ("inbox", reverse("admin:runs_pausedexecution_changelist")),
        ("question", reverse("admin:runs_pausedexecution_change", args=[pause.id])),
        ("run-failed", run_page(failed)),
        ("approval-page", f"/approve/{pause.execution_id}"),
        ("start", "/"),
        ("login", "/login/"),
        ("", reverse("admin:runs_source_changelist")),
        ("", reverse("admin:runs_tool_changelist")),
        ("", reverse("admin:runs_process_changelist")),
        ("", reverse("admin:auth_user_changelist")),
    ):
        answer = page.goto(address)
        assert answer.status == 200, address
        page.get_by_role("heading").first.wait_for()
        if name:
            screenshot(page, name)
    page.goto(run_page(failed))
    page.get_by_text("it failed here").or_(page.locator(".hll")).first.wait_for()
    assert page.locator(".hll").inner_text().strip().endswith("1 / 0")


@pytest.mark.acceptance_id("O7")
def test_every_field_and_button_has_a_name_and_the_page_has_one_heading(
    live: LiveSite, browser: Browser, olga: User
) -> None:
    run = started(live, olga, ASK)
    page = browser.page(olga)
    page.goto(f"/approve/{open_question(run).execution_id}")
    assert page.get_by_role("heading", level=1).count() == 1
    assert page.get_by_role("main").count() == 1
    nameless = page.evaluate(
        """() => [...document.querySelectorAll("main input:not([type=hidden]), main select, main textarea, button")]
            .filter((e) => !(e.labels && e.labels.length) && !e.textContent.trim()).map((e) => e.outerHTML)"""
    )
    assert nameless == []
    narrow = browser.page(olga)
    narrow.set_viewport_size({"width": 360, "height": 740})
    narrow.goto(f"/approve/{open_question(run).execution_id}")
    assert narrow.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
