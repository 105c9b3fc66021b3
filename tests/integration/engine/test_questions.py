"""Questions to people: asked with all they need, decided once, in any order, by anyone's request (E3 to E12, E21)."""

import asyncio
from typing import Any
from uuid import uuid4

import pytest

from runs.domain.codes import Refusal
from runs.domain.effects import Approver, PolicyAction
from runs.domain.principal import Principal
from runs.services.cancel import run_stop
from runs.services.resume import pause_read
from runs.services.sweep import pauses_expire
from runs.store.retention import runs_purge
from runs.tools.base import Succeeded
from runs.tools.policy import Policy
from tests.support.engine import POLICIES, Site, catalog, decide, execute
from tests.support.pg import Rows

CHARGE = "import demo\ndemo.create_charge(amount=5, ref='A')"
TWO = """
import asyncio, demo
async def main():
    return await asyncio.gather(demo.create_charge(amount=1, ref='A'), demo.create_charge(amount=2, ref='B'))
await main()
"""
CAUGHT = """
import demo
try:
    demo.create_charge(amount=5, ref='A')
    r = 'ran'
except PermissionError as e:
    r = str(e)
r
"""


async def _open(rows: Rows) -> list[str]:
    """The open questions, in the order of their calls."""
    found = await rows.all("SELECT id FROM runs_pausedexecution WHERE decision IS NULL ORDER BY call_index")
    return [f"exec_{row['id']}" for row in found]


async def _refused(code: str, attempt: Any) -> Refusal:
    with pytest.raises(Refusal) as refused:
        await attempt
    assert refused.value.code.name == code
    return refused.value


@pytest.mark.acceptance_id("E3")
async def test_a_gated_call_pauses_with_all_that_a_person_needs(site: Site, owner: int) -> None:
    run = await site.run(CHARGE, owner=owner)
    body = await run.body()
    assert (body["status"], body["run_id"]) == ("paused", str(run.run_id))
    asked = body["execution"]
    assert (asked["kind"], asked["tool"], asked["args"]) == (
        "approval",
        "demo.create_charge",
        {"amount": 5, "ref": "A"},
    )
    assert asked["id"].startswith("exec_")
    assert asked["approve_url"].endswith(f"/approve/{asked['id']}")
    assert asked["expires_at"].endswith("Z")
    assert await run.engine.paused_execution_count(owner_id=owner) == 1
    assert site.calls.count() == 0


@pytest.mark.acceptance_id("E5")
async def test_accept_runs_the_tool_once_and_the_program_goes_on(site: Site, ann: Principal, owner: int) -> None:
    site.calls.on("demo.create_charge", Succeeded({"id": 7}))
    paused = await (await site.run(f"{CHARGE}['id'] + 1", owner=owner)).body()
    assert (await decide(site, ann, paused["execution"]["id"]))["result"] == 8
    assert site.calls.count() == 1


@pytest.mark.acceptance_id("E5")
@pytest.mark.parametrize("action", ["decline", "cancel"])
async def test_without_an_accept_the_tool_never_runs_and_the_program_sees_why(
    site: Site, ann: Principal, owner: int, action: str
) -> None:
    paused = await (await site.run(CAUGHT, owner=owner)).body()
    body = await decide(site, ann, paused["execution"]["id"], action, reason="too dear")
    assert body["status"] == "completed"
    assert body["result"].startswith("approval_declined: ")
    assert "too dear" in body["result"]
    assert site.calls.count() == 0


@pytest.mark.acceptance_id("E4")
async def test_a_second_question_after_a_resume_is_a_second_pause(site: Site, ann: Principal, owner: int) -> None:
    code = "import demo\na = demo.create_charge(amount=1, ref='A')\nb = demo.create_charge(amount=2, ref='B')\n[a, b]"
    first = await (await site.run(code, owner=owner)).body()
    second = await decide(site, ann, first["execution"]["id"])
    assert second["status"] == "paused"
    assert second["execution"]["id"] != first["execution"]["id"]
    assert second["execution"]["args"] == {"amount": 2, "ref": "B"}
    done = await decide(site, ann, second["execution"]["id"])
    assert done["result"] == [{"amount": 1, "ref": "A"}, {"amount": 2, "ref": "B"}]
    # A decision answers with the stop that followed it, also when the run went on since.
    assert await decide(site, ann, first["execution"]["id"]) == second
    assert site.calls.count() == 2


@pytest.mark.acceptance_id("E4")
@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
@pytest.mark.parametrize("actions", [("accept", "accept"), ("accept", "decline"), ("decline", "accept")])
async def test_concurrent_questions_are_answered_in_any_order(
    site: Site, rows: Rows, ann: Principal, owner: int, order: tuple[int, int], actions: tuple[str, str]
) -> None:
    paused = await (await site.run(TWO, owner=owner)).body()
    ids = await _open(rows)
    assert len(ids) == 2
    assert paused["execution"]["id"] == ids[0]
    bodies = [await decide(site, ann, ids[at], actions[at]) for at in order]
    if "decline" in actions and bodies[0]["status"] == "failed":
        assert actions[order[0]] == "decline", "a refusal ends a gather at once"
        accepted = 0
    else:
        assert bodies[0]["status"] == "paused"
        assert bodies[0]["execution"]["id"] == ids[order[1]]
        accepted = actions.count("accept")
    assert bodies[1]["status"] == ("completed" if accepted == 2 else "failed")
    assert site.calls.count() == accepted
    assert await _open(rows) == []


@pytest.mark.acceptance_id("E4")
async def test_a_decision_that_arrives_while_the_program_works_is_seen_before_the_next_pause(
    site: Site, rows: Rows, ann: Principal, owner: int
) -> None:
    """The first is accepted and its call is under way when the second is decided."""
    held = site.calls.hold("demo.create_charge", Succeeded("first"))
    await (await site.run(TWO, owner=owner)).body()
    ids = await _open(rows)
    first = asyncio.create_task(decide(site, ann, ids[0]))
    await held.arrival()
    second = asyncio.create_task(decide(site, ann, ids[1]))
    while (await rows.one("SELECT decisions FROM runs_run")) < 2:
        await asyncio.sleep(0)
    held.release()
    bodies = await asyncio.gather(first, second)
    assert [body["status"] for body in bodies] == ["completed", "completed"]
    assert bodies[0]["result"] == ["first", {"amount": 2, "ref": "B"}]
    assert site.calls.count() == 2


@pytest.mark.acceptance_id("E6")
async def test_the_same_resume_again_and_64_at_once_is_one_outcome_and_one_call(
    site: Site, ann: Principal, owner: int
) -> None:
    paused = await (await site.run(CHARGE, owner=owner)).body()
    again = [decide(site, ann, paused["execution"]["id"]) for _ in range(64)]
    bodies = await asyncio.gather(*again)
    assert all(body == bodies[0] for body in bodies)
    assert bodies[0]["status"] == "completed"
    assert site.calls.count() == 1
    other = Site()
    await other.open()
    try:
        assert await decide(other, ann, paused["execution"]["id"]) == bodies[0], "also from another process"
        assert other.calls.count() == 0
    finally:
        await other.close()


@pytest.mark.acceptance_id("E7")
async def test_another_decision_is_refused_and_changes_nothing(
    site: Site, rows: Rows, ann: Principal, owner: int
) -> None:
    run = await site.run(CHARGE, owner=owner)
    paused = await run.body()
    await decide(site, ann, paused["execution"]["id"])
    before = await rows.snapshot(run.run_id)
    refusal = await _refused("decided_differently", decide(site, ann, paused["execution"]["id"], "decline"))
    assert refusal.code.http == 409
    assert refusal.detail["decision"] == "accept"  # type: ignore[index]
    assert await rows.snapshot(run.run_id) == before


@pytest.mark.acceptance_id("E7", "S3")
async def test_another_owners_pause_answers_like_one_that_does_not_exist(site: Site, rows: Rows, owner: int) -> None:
    paused = await (await site.run(CHARGE, owner=owner)).body()
    bob = Principal(await rows.user(username="bob"), "bob", False, frozenset({"run", "approve"}))
    texts = set()
    for execution_id in (paused["execution"]["id"], f"exec_{uuid4()}", "exec_nonsense", "nonsense"):
        refusal = await _refused("not_found", decide(site, bob, execution_id))
        read = await _refused("not_found", pause_read(site.scope(), bob, execution_id))
        texts |= {refusal.message, read.message}
    assert len(texts) == 1
    assert len(await _open(rows)) == 1


@pytest.mark.acceptance_id("E9")
async def test_a_pause_whose_run_ended_by_itself_answers_with_the_runs_end(
    site: Site, rows: Rows, ann: Principal, owner: int
) -> None:
    run = await site.run(CHARGE, owner=owner)
    paused = await run.body()
    assert (await run_stop(site.scope(), ann, run.run_id))["state"] == "cancelled"
    assert await run.engine.paused_execution_count() == 0
    for action in ("accept", "decline"):
        assert await decide(site, ann, paused["execution"]["id"], action) == {
            "status": "cancelled", "run_id": str(run.run_id),
        }  # fmt: skip
    assert site.calls.count() == 0


@pytest.mark.acceptance_id("E9")
async def test_a_question_left_open_by_a_failed_gather_is_withdrawn(
    site: Site, rows: Rows, ann: Principal, owner: int
) -> None:
    await (await site.run(TWO, owner=owner)).body()
    ids = await _open(rows)
    ended = await decide(site, ann, ids[0], "decline")
    assert ended["status"] == "failed"
    assert await decide(site, ann, ids[1]) == ended
    assert site.calls.count() == 0


@pytest.mark.acceptance_id("E10")
async def test_a_pause_is_resumed_in_another_process_days_later(site: Site, rows: Rows, ann: Principal) -> None:
    """The process that asked has ended; the rows are eight days old."""
    first = Site()
    await first.open()
    paused = await execute(first, ann, f"x = [1, 2]\n{CHARGE}\nx")
    await first.close()
    for table, columns in (("runs_pausedexecution", "created_at"), ("runs_run", "created_at, updated_at")):
        for column in columns.split(", "):
            await rows.conn.execute(f"UPDATE {table} SET {column} = {column} - interval '8 days'".encode())
    assert (await decide(site, ann, paused["execution"]["id"]))["result"] == [1, 2]
    assert (first.calls.count(), site.calls.count()) == (0, 1)


@pytest.mark.acceptance_id("E11")
async def test_who_may_not_approve_does_not(site: Site, rows: Rows, ann: Principal, owner: int) -> None:
    paused = await (await site.run(CHARGE, owner=owner)).body()
    agent = Principal(owner, "ann", False, frozenset({"run"}))
    await _refused("insufficient_scope", decide(site, agent, paused["execution"]["id"]))
    assert (await decide(site, ann, paused["execution"]["id"]))["status"] == "completed"
    row = (await rows.all("SELECT * FROM runs_pausedexecution"))[0]
    assert (row["decided_by_id"], row["decided_via"], row["decision"]) == (owner, "api", "accept")
    (event,) = await rows.all("SELECT data FROM runs_event WHERE kind = 'decision'")
    assert (event["data"]["by"], event["data"]["via"]) == ("ann", "api")


@pytest.mark.acceptance_id("E11")
async def test_a_call_for_staff_is_decided_by_staff(site: Site, rows: Rows, ann: Principal, owner: int) -> None:
    staff_only = Policy("demo.create_charge", PolicyAction.REQUIRE_APPROVAL, Approver.STAFF)
    site._tools = catalog(policies=(*POLICIES, staff_only))
    paused = await (await site.run(CHARGE, owner=owner)).body()
    await _refused("forbidden", decide(site, ann, paused["execution"]["id"]))
    boss = Principal(await rows.user(is_staff=True), "boss", True, frozenset({"run", "approve", "operate"}))
    assert (await decide(site, boss, paused["execution"]["id"]))["status"] == "completed"


@pytest.mark.acceptance_id("E12")
async def test_an_expired_question_is_refused_by_the_sweep_and_the_program_goes_on(
    site: Site, rows: Rows, ann: Principal, owner: int
) -> None:
    run = await site.run(CAUGHT, owner=owner)
    paused = await run.body()
    assert await pauses_expire(site.scope(), rows.conn) == 0
    await rows.conn.execute("UPDATE runs_pausedexecution SET expires_at = now()")
    await _refused("pause_expired", decide(site, ann, paused["execution"]["id"]))
    assert await pauses_expire(site.scope(), rows.conn) == 1
    assert site.handed_on == [run.run_id]
    assert (await (await site.go_on(run.run_id)).body())["result"].startswith("approval_expired: ")
    assert (await _refused("pause_expired", decide(site, ann, paused["execution"]["id"]))).code.http == 410
    assert site.calls.count() == 0


@pytest.mark.acceptance_id("E21")
async def test_an_operators_panel_approves_beforehand_and_says_who(site: Site, rows: Rows, owner: int) -> None:
    boss = await rows.user(username="boss", is_staff=True)
    run = await site.run(CHARGE, owner=owner, auto_approve_by=(boss, "boss"))
    assert (await run.body())["status"] == "completed"
    assert site.calls.count() == 1
    (event,) = await rows.all("SELECT data FROM runs_event WHERE kind = 'auto_approved'")
    assert (event["data"]["by"], event["data"]["tool"]) == ("boss", "demo.create_charge")
    blocked = await site.run("import demo\ndemo.forbidden()", owner=owner, auto_approve_by=(boss, "boss"))
    assert (await blocked.body())["error"]["code"] == "tool_blocked"


@pytest.mark.acceptance_id("E21")
async def test_who_may_not_operate_cannot_approve_beforehand(site: Site, ann: Principal) -> None:
    await _refused("insufficient_scope", execute(site, ann, CHARGE, auto_approve=True))
    assert site.calls.count() == 0


async def test_a_form_is_answered_within_its_schema_and_the_program_gets_the_answer(
    site: Site, ann: Principal, owner: int
) -> None:
    schema = "{'type': 'object', 'properties': {'size': {'enum': ['S', 'M']}}, 'required': ['size']}"
    paused = await (await site.run(f"ask('Which?', schema={schema})['size']", owner=owner)).body()
    asked = paused["execution"]
    assert (asked["kind"], asked["message"]) == ("form", "Which?")
    await _refused("content_invalid", decide(site, ann, asked["id"], content={"size": "XL"}))
    assert (await decide(site, ann, asked["id"], content={"size": "M"}))["result"] == "M"
    await _refused("decided_differently", decide(site, ann, asked["id"], content={"size": "S"}))


async def test_an_address_is_confirmed(site: Site, ann: Principal, owner: int) -> None:
    paused = await (await site.run("open_url('https://pay.example/x')", owner=owner)).body()
    assert (paused["execution"]["kind"], paused["execution"]["url"]) == ("url", "https://pay.example/x")
    assert (await decide(site, ann, paused["execution"]["id"]))["result"] is True


@pytest.mark.acceptance_id("E20")
async def test_one_idempotency_key_is_one_run_and_one_effect_also_at_once(site: Site, ann: Principal) -> None:
    code = "import demo\ndemo.create_note(text='a')"
    bodies = await asyncio.gather(*(execute(site, ann, code, idempotency_key="k") for _ in range(8)))
    assert all(body == bodies[0] for body in bodies)
    assert site.calls.count() == 1
    await _refused("idempotency_conflict", execute(site, ann, "1", idempotency_key="k"))
    assert await execute(site, ann, code, idempotency_key="k") == bodies[0]


@pytest.mark.acceptance_id("E22")
async def test_a_decision_of_a_purged_run_is_settled_and_never_unknown(
    site: Site, rows: Rows, ann: Principal, owner: int
) -> None:
    run = await site.run(CHARGE, owner=owner)
    paused = await run.body()
    await decide(site, ann, paused["execution"]["id"])
    await rows.conn.execute("UPDATE runs_run SET finished_at = now() - interval '100 days'")
    assert await runs_purge(rows.conn, older_than_days=90) == 1
    refusal = await _refused("already_settled", decide(site, ann, paused["execution"]["id"]))
    assert refusal.code.http == 410
    await _refused("not_found", decide(site, ann, f"exec_{uuid4()}"))
    assert site.calls.count() == 1


@pytest.mark.acceptance_id("E17")
async def test_chained_approvals_outlast_the_compute_budget(site: Site, rows: Rows, ann: Principal, owner: int) -> None:
    """Three people's answers, each an hour after its question, of a program that may compute for half a second."""
    code = "a = [ask(f'{n}?')['answer'] for n in range(3)]\na"
    body = await (await site.run(code, owner=owner, timeout_s=0.5)).body()
    for n in range(3):
        await rows.conn.execute("UPDATE runs_run SET updated_at = updated_at - interval '1 hour'")
        body = await decide(site, ann, body["execution"]["id"], content={"answer": str(n)})
    assert body["result"] == ["0", "1", "2"]


@pytest.mark.acceptance_id("E13")
async def test_a_caller_who_leaves_changes_nothing_and_another_gets_the_outcome(
    site: Site, rows: Rows, ann: Principal
) -> None:
    held = site.calls.hold("demo.create_note", Succeeded("noted"))
    code = "import demo\ndemo.create_note(text='a')"
    leaving = asyncio.create_task(execute(site, ann, code, idempotency_key="k"))
    await held.arrival()
    leaving.cancel()
    held.release()
    with pytest.raises(asyncio.CancelledError):
        await leaving
    (run_id,) = site.handed_on
    second = asyncio.create_task(execute(site, ann, code, idempotency_key="k"))
    await (await site.go_on(run_id)).body()
    assert (await second)["result"] == "noted"
    assert site.calls.count() == 1


@pytest.mark.acceptance_id("E12")
async def test_only_the_expired_one_of_two_questions_is_refused(
    site: Site, rows: Rows, ann: Principal, owner: int
) -> None:
    code = TWO.replace("await main()", "try:\n    r = await main()\nexcept PermissionError as e:\n    r = str(e)\nr")
    run = await site.run(code, owner=owner)
    await run.body()
    ids = await _open(rows)
    second = ids[1].removeprefix("exec_")
    await rows.conn.execute("UPDATE runs_pausedexecution SET expires_at = now() WHERE id = %s", (second,))
    assert await pauses_expire(site.scope(), rows.conn) == 1
    assert (await (await site.go_on(run.run_id)).body())["result"].startswith("approval_expired: ")
    assert (await decide(site, ann, ids[0]))["status"] == "completed", "withdrawn: the run's end is its answer"
    assert site.calls.count() == 0
