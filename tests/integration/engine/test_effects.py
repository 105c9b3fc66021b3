"""Order of commits and sends, seen from another connection while the call is under way (acceptance T3 to T9)."""

import asyncio
from typing import Any

import pytest

from runs.domain import limits
from runs.domain.effects import EffectClass
from runs.domain.principal import Principal
from runs.engine import hold
from runs.services.cancel import run_stop
from runs.services.recover import runs_reap
from runs.store.transition import Connection
from runs.tools.base import Refused, Succeeded, Unknown, Unrepresentable
from tests.support.engine import TOOLS, Sent, Site, beat, catalog, decide, execute, sandbox_pids, tool, until
from tests.support.pg import Rows

NOTE = "import demo\nfirst = demo.create_note(text='a')\nsecond = demo.create_note(text='b')\n[first, second]"


async def _effects(conn: Connection) -> dict[str, dict[str, Any]]:
    rows = await (await conn.execute("SELECT * FROM runs_effect ORDER BY call_index")).fetchall()
    return {row["key"]: row for row in rows}


@pytest.mark.acceptance_id("T3")
async def test_an_effect_is_reserved_before_it_leaves_and_settled_before_the_program_goes_on(
    site: Site, rows: Rows, owner: int, observer: Connection
) -> None:
    seen: list[dict[str, Any]] = []

    async def look(sent: Sent) -> Succeeded:
        checkpoints = await (await observer.execute("SELECT run_id::text FROM runs_checkpoint")).fetchall()
        seen.append({"sent": sent, "effects": await _effects(observer), "checkpoints": checkpoints})
        return Succeeded({"n": len(seen)}, 201)

    site.calls.on("demo.create_note", look)
    run = await site.run(NOTE, owner=owner)
    assert (await run.body())["result"] == [{"n": 1}, {"n": 2}]

    first, second = seen
    for at in (first, second):
        sent = at["sent"]
        assert at["effects"][sent.key]["state"] == "reserved", "committed before the call left"
        assert [row["run_id"] for row in at["checkpoints"]] == [str(run.run_id)], "with its checkpoint"
        assert (sent.run_id, sent.owner_id) == (str(run.run_id), owner)
    assert first["sent"].key != second["sent"].key
    settled = second["effects"][first["sent"].key]
    assert (settled["state"], settled["answer"]["value"]) == ("settled", {"n": 1}), (
        "committed before the program went on"
    )
    assert site.calls.count() == 2


async def test_reads_leave_without_a_reservation_and_are_in_the_ledger_at_the_end(
    site: Site, rows: Rows, owner: int, observer: Connection
) -> None:
    async def look(_: Sent) -> Succeeded:
        assert await _effects(observer) == {}
        return Succeeded("item")

    site.calls.on("demo.get_item", look)
    run = await site.run("import demo\n[demo.get_item(id=str(i)) for i in range(3)]", owner=owner)
    assert (await run.body())["result"] == ["item"] * 3
    stored = await _effects(observer)
    assert [(row["effect"], row["state"], row["args"]) for row in stored.values()] == [
        ("read", "settled", {"id": str(i)}) for i in range(3)
    ]


@pytest.mark.acceptance_id("T9")
async def test_when_one_of_a_gather_is_rejected_the_others_are_settled_and_counted(
    site: Site, owner: int, observer: Connection
) -> None:
    code = "import asyncio, demo\nasync def main():\n    return await asyncio.gather(\n"
    code += "        demo.create_note(text='a'), demo.create_note(text='b'), demo.create_note(text='c'))\nawait main()"
    slow = site.calls.hold("demo.create_note", Succeeded("late", 201))
    site.calls.next("demo.create_note", Refused("upstream_error", "no", 500, "boom"), Succeeded("quick", 201))
    run = await site.run(code, owner=owner)
    await slow.arrival()
    await until(lambda: site.calls.count() == 3, "all three have arrived")
    assert not run.execution.done.done(), "the run is not final while a call is under way"
    slow.release()
    body = await run.body()
    assert (body["status"], body["error"]["code"]) == ("failed", "upstream_error")
    assert body["effects"] == {"settled": 3, "unknown": 0}
    assert body["retry_safe"] is False
    assert {row["state"] for row in (await _effects(observer)).values()} == {"settled"}


@pytest.mark.acceptance_id("T6")
async def test_a_result_that_cannot_be_represented_is_a_success_and_no_second_call(
    site: Site, owner: int, observer: Connection
) -> None:
    site.calls.next("demo.create_note", Unrepresentable("the body is not JSON", 200), Succeeded({1, 2, object()}))
    code = NOTE.replace("[first, second]", "[first['succeeded'], second['succeeded']]")
    assert (await (await site.run(code, owner=owner)).body())["result"] == [True, True]
    assert [row["answer"]["kind"] for row in (await _effects(observer)).values()] == ["unrepresentable"] * 2
    assert site.calls.count() == 2


@pytest.mark.acceptance_id("T2")
async def test_an_upstream_error_is_a_runtime_error_with_code_status_and_body(site: Site, ann: Principal) -> None:
    site.calls.next("demo.create_note", Refused("upstream_error", "the service said no", 503, "down for tea"))
    code = "import demo\ntry:\n    demo.create_note(text='a')\nexcept RuntimeError as e:\n    r = str(e)\nr"
    text = (await execute(site, ann, code))["result"]
    assert text.startswith("upstream_error: ")
    assert "503" in text
    assert "down for tea" in text


@pytest.mark.acceptance_id("T2")
async def test_a_defect_of_the_invoker_leaves_an_effect_unknown_and_tells_no_detail(site: Site, ann: Principal) -> None:
    site.calls.next("demo.create_note", RuntimeError("password=hunter2"))
    body = await execute(site, ann, NOTE)
    assert (body["status"], body["error"]["code"]) == ("unconfirmed", "effect_unknown")
    assert "hunter2" not in str(body)
    assert site.calls.count() == 1


@pytest.mark.acceptance_id("T4")
async def test_an_effect_whose_outcome_is_unknown_is_never_sent_again_and_names_itself(
    site: Site, rows: Rows, owner: int
) -> None:
    site.calls.next("demo.create_note", Unknown("upstream_timeout", "no answer came"))
    run = await site.run(NOTE, owner=owner)
    body = await run.body()
    assert body["status"] == "unconfirmed"
    assert [(effect["tool"], effect["state"]) for effect in body["effects"]] == [("demo.create_note", "unknown")]
    assert body["retry_safe"] is False
    assert site.calls.count() == 1
    row = await rows.get("runs_run", run.run_id)
    assert (row["state"], row["error_code"]) == ("unconfirmed", "effect_unknown")
    assert await run.engine.resume(run.run_id) is None


@pytest.mark.acceptance_id("T4")
@pytest.mark.parametrize("call", ["demo.put_item(id='1')", "keyed.send(text='a')"])
async def test_a_call_that_may_be_repeated_is_sent_again_under_the_same_key(site: Site, owner: int, call: str) -> None:
    address = call.partition("(")[0]
    site.calls.next(address, Unknown("upstream_timeout", "no answer"), Unknown("upstream_timeout", "no answer"))
    run = await site.run(f"import demo, keyed\n{call}", owner=owner)
    assert (await run.body())["status"] == "completed"
    assert site.calls.count() == 3
    assert len({sent.key for sent in site.calls.sent}) == 1


async def _lose_the_host(site: Site, rows: Rows, scope_conn: Connection) -> int:
    """The holder's lease is over, and a process that never heard of it reaps."""
    await rows.conn.execute("UPDATE runs_run SET lease_expires_at = now() - interval '1 s' WHERE state = 'running'")
    return await runs_reap(site.scope(), scope_conn)


@pytest.mark.acceptance_id("T4", "T7")
async def test_a_host_lost_between_reserve_and_settle_leaves_the_effect_to_a_person(
    site: Site, rows: Rows, owner: int
) -> None:
    held = site.calls.hold("demo.create_note", Succeeded("it did happen", 201))
    run = await site.run(NOTE, owner=owner)
    await held.arrival()
    assert await _lose_the_host(site, rows, rows.conn) == 1
    row = await rows.get("runs_run", run.run_id)
    assert (row["state"], row["error_code"]) == ("unconfirmed", "effect_unknown")
    assert (await _effects(rows.conn)).popitem()[1]["state"] == "unknown"

    held.release()
    await run.handed_on()
    (effect,) = (await _effects(rows.conn)).values()
    assert (effect["state"], effect["answer"]["value"]) == ("settled", "it did happen"), "the late answer is kept"
    assert site.calls.count() == 1, "the program of the lost holder did not go on"
    assert (await rows.get("runs_run", run.run_id))["state"] == "unconfirmed"


@pytest.mark.acceptance_id("T4")
async def test_a_host_lost_in_a_repeatable_call_goes_on_elsewhere_with_the_same_key(
    site: Site, rows: Rows, owner: int
) -> None:
    held = site.calls.hold("keyed.send")
    run = await site.run("import keyed\nkeyed.send(text='a')", owner=owner)
    await held.arrival()
    assert await _lose_the_host(site, rows, rows.conn) == 1
    assert site.handed_on == [run.run_id]
    again = await site.go_on(run.run_id)
    assert (await again.body())["result"] == {"text": "a"}
    assert len({sent.key for sent in site.calls.sent}) == 1
    held.release()
    await run.handed_on()


@pytest.mark.acceptance_id("T5")
async def test_a_settled_answer_is_used_after_a_crash_and_the_call_is_not_made_again(
    site: Site, rows: Rows, owner: int
) -> None:
    """The answer of the first call is committed, the second is on its way when the host is lost."""
    code = "import demo\na = demo.create_note(text='a')\nb = demo.put_item(id='1')\n[a, b]"
    site.calls.next("demo.create_note", Succeeded("noted", 201))
    held = site.calls.hold("demo.put_item")
    run = await site.run(code, owner=owner)
    await held.arrival()
    # Back to the checkpoint of the first call, as if the crash had come right after its settle.
    await _lose_the_host(site, rows, rows.conn)
    again = await site.go_on(run.run_id)
    assert (await again.body())["result"] == ["noted", {"id": "1"}]
    assert site.calls.count("demo.create_note") == 1
    held.release()
    await run.handed_on()


@pytest.mark.acceptance_id("T5")
async def test_an_answer_settled_while_the_program_did_not_go_on_is_given_to_it_elsewhere(
    site: Site, rows: Rows, owner: int
) -> None:
    held = site.calls.hold("demo.create_note", Succeeded("noted", 201))
    run = await site.run("import demo\ndemo.create_note(text='a')", owner=owner)
    await held.arrival()
    closing = asyncio.create_task(run.scope.close())
    held.release()
    await closing
    await run.handed_on()
    assert (await rows.get("runs_run", run.run_id))["state"] == "suspended"
    again = await site.go_on(run.run_id)
    assert (await again.body())["result"] == "noted"
    assert site.calls.count() == 1


@pytest.mark.acceptance_id("T8")
async def test_a_superseded_holder_sends_nothing(site: Site, rows: Rows, owner: int) -> None:
    """A zombie: its run went on elsewhere while it was held up in a read."""
    held = site.calls.hold("demo.get_item", Succeeded("item"))
    run = await site.run("import demo\ndemo.get_item(id='1')\ndemo.create_note(text='a')", owner=owner)
    await held.arrival()
    await _lose_the_host(site, rows, rows.conn)
    again = await site.go_on(run.run_id)
    assert (await again.body())["status"] == "completed"
    before = await rows.snapshot(run.run_id)
    held.release()
    await run.handed_on()
    assert site.calls.count("demo.create_note") == 1
    assert await rows.snapshot(run.run_id) == before


@pytest.mark.acceptance_id("T7")
async def test_a_run_cancelled_during_a_call_is_final_only_after_the_call_is_settled(
    site: Site, rows: Rows, ann: Principal, owner: int
) -> None:
    held = site.calls.hold("demo.create_note", Succeeded("noted", 201))
    run = await site.run(NOTE, owner=owner)
    await held.arrival()
    answer = await run_stop(site.scope(), ann, run.run_id)
    assert answer == {"run_id": str(run.run_id), "state": "running", "stopping": True}
    await beat(site)
    assert site.workers.taken[-1].worker_pid not in sandbox_pids(), "its sandbox is dead at once"
    assert (await rows.get("runs_run", run.run_id))["state"] == "running", "not final while its call is open"
    assert not run.execution.done.done()
    held.release()
    assert await run.body() == {"status": "cancelled", "run_id": str(run.run_id)}
    assert [row["state"] for row in (await _effects(rows.conn)).values()] == ["settled"]
    kinds = await rows.kinds(run.run_id)
    assert kinds.index("call_settled") < kinds.index("cancel_confirmed")
    assert site.calls.count() == 1


@pytest.mark.acceptance_id("T7")
async def test_a_run_cancelled_while_its_call_stays_unanswered_is_a_persons_work(
    site: Site, rows: Rows, ann: Principal, owner: int
) -> None:
    held = site.calls.hold("demo.create_note", Unknown("upstream_timeout", "no answer came"))
    run = await site.run(NOTE, owner=owner)
    await held.arrival()
    assert await site.active.cancel(run.run_id)
    held.release()
    assert (await run.body())["status"] == "unconfirmed"


@pytest.mark.acceptance_id("E3", "T1", "T10")
@pytest.mark.parametrize(
    ("call", "error", "code"),
    [
        ("demo.create_charge(amount='five', ref='A')", "TypeError", "invalid_arguments"),
        ("demo.create_charge(amount=5)", "TypeError", "invalid_arguments"),
        ("demo.create_note(text='a', colour='red')", "TypeError", "invalid_arguments"),
        ("demo.forbidden()", "PermissionError", "tool_blocked"),
        ("demo.create_notes(text='a')", "AttributeError", "tool_not_found"),
    ],
)
async def test_a_call_that_may_not_be_made_reaches_neither_a_person_nor_the_network(
    site: Site, ann: Principal, call: str, error: str, code: str
) -> None:
    body = await execute(site, ann, f"import demo\n{call}")
    assert (body["status"], body["error"]["code"]) == ("failed", code), body
    assert site.calls.count() == 0
    caught = await execute(site, ann, f"import demo\ntry:\n    {call}\nexcept {error}:\n    r = 'caught'\nr")
    assert caught["result"] == "caught"


@pytest.mark.acceptance_id("T1")
async def test_an_unknown_tool_is_answered_with_near_ones(site: Site, ann: Principal) -> None:
    body = await execute(site, ann, "import demo\ndemo.create_notes(text='a')")
    assert "demo.create_note" in body["error"]["message"]
    assert "forbidden" not in (await execute(site, ann, "import demo\ndemo.forbiden()"))["error"]["message"]


@pytest.mark.acceptance_id("T11")
async def test_secret_arguments_are_sent_and_kept_nowhere(site: Site, rows: Rows, ann: Principal, owner: int) -> None:
    hidden = tool("create_charge", EffectClass.EFFECT, required=["amount", "ref"], sensitive=frozenset({"ref"}))
    site._tools = catalog([*TOOLS[:2], hidden])
    secret = "do-not-keep-me"
    site.calls.on("demo.create_charge", Succeeded("charged"))
    run = await site.run(f"import demo\ndemo.create_charge(amount=1, ref='{secret}')", owner=owner)
    paused = await run.body()
    assert secret not in str(paused)
    await decide(site, ann, paused["execution"]["id"])
    assert site.calls.sent[-1].arguments["ref"] == secret
    for table in ("runs_effect", "runs_event", "runs_pausedexecution", "runs_settledoutcome"):
        assert secret not in str(await rows.all(f"SELECT t::text FROM {table} t")), table


@pytest.mark.acceptance_id("T8")
async def test_a_process_that_slept_past_its_lease_sends_nothing(
    site: Site, owner: int, monkeypatch: pytest.MonkeyPatch, observer: Connection
) -> None:
    """Stopped between reserve and send, and no heartbeat confirms that the run is still its own."""
    monkeypatch.setattr(limits, "SEND_WITHIN_S", 0.0)
    monkeypatch.setattr(hold, "_PATIENCE_S", 0.01)
    body = await (await site.run(NOTE, owner=owner)).body()
    assert (body["status"], body["error"]["code"]) == ("failed", "upstream_unreachable")
    assert (body["retry_safe"], body["effects"]) == (True, {"settled": 0, "unknown": 0})
    assert site.calls.count() == 0
    (effect,) = (await _effects(observer)).values()
    assert (effect["state"], effect["answer"]["sent"]) == ("settled", False)


@pytest.mark.acceptance_id("T8")
async def test_a_heartbeat_that_comes_confirms_the_hold_and_the_call_is_sent(
    site: Site, owner: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = site.calls.hold("demo.get_item")
    run = await site.run("import demo\ndemo.get_item(id='1')\ndemo.create_note(text='a')", owner=owner)
    await held.arrival()
    run.execution.hold._confirmed_at -= 1000
    assert not run.execution.hold.is_fresh
    await beat(site)
    assert run.execution.hold.is_fresh
    held.release()
    assert (await run.body())["status"] == "completed"


async def test_a_beat_tells_a_holder_that_lost_its_run_and_it_writes_nothing(
    site: Site, rows: Rows, owner: int
) -> None:
    run = await site.run("while True:\n    pass", owner=owner, timeout_s=5)
    worker = await run.computing()
    await rows.conn.execute("UPDATE runs_run SET epoch = 2, process_id = %s", (await rows.process(),))
    before = await rows.snapshot(run.run_id)
    await beat(site)
    assert worker not in sandbox_pids()
    await run.handed_on()
    assert await rows.snapshot(run.run_id) == before
