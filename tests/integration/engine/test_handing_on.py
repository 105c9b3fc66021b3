"""A run goes on elsewhere from what is stored: after each stop, a slow call, a sleep. Never from a forgery."""

import asyncio
from typing import Any

import pytest
from django.conf import settings
from psycopg.types.json import Jsonb

from runs.domain import limits
from runs.domain.principal import Principal
from runs.engine.checkpoint import BrokerState, CheckpointKeys
from runs.engine.engine import CheckpointRefused
from runs.services.dispatch import run_dispatch
from runs.services.submit import run_enqueue
from runs.store.transition import Connection
from runs.tools.base import Succeeded
from tests.support.engine import Site, decide, sandbox_pids, until
from tests.support.pg import Rows

EVERY_STOP = """
import demo
seen = []
seen.append(demo.get_item(id='1'))
seen.append(demo.create_note(text='a'))
seen.append(ask('first?')['answer'])
seen.append(demo.create_charge(amount=1, ref='A'))
sleep(3600)
seen.append(demo.put_item(id='2'))
print('at the end')
seen
"""


async def _wake(rows: Rows) -> None:
    """An hour passes: the database's clock and the program's own end of its sleep."""
    (row,) = await rows.all("SELECT run_id, state FROM runs_checkpoint")
    for call in row["state"]["calls"]:
        if call["wake_at"] is not None:
            call["wake_at"] -= 3700
    await rows.conn.execute("UPDATE runs_run SET wake_at = NULL WHERE state = 'suspended'")
    await _seal_again(rows.conn, row["run_id"], row["state"])


async def _seal_again(conn: Connection, run_id: Any, state: dict[str, Any]) -> None:
    """Sign a changed state as the site would: for moving time, where no clock can be moved."""
    cursor = await conn.execute("SELECT snapshot FROM runs_checkpoint WHERE run_id = %s", (run_id,))
    row = await cursor.fetchone()
    assert row is not None
    sealed = CheckpointKeys(settings.CREDENTIAL_KEYS).seal(run_id, bytes(row["snapshot"]), BrokerState.from_json(state))
    await conn.execute(
        "UPDATE runs_checkpoint SET state = %s, mac = %s WHERE run_id = %s", (Jsonb(sealed.state), sealed.mac, run_id)
    )


@pytest.mark.acceptance_id("E10", "E4")
async def test_a_program_goes_on_in_another_process_after_every_kind_of_stop(
    site: Site, rows: Rows, ann: Principal, owner: int
) -> None:
    """Form, approval and a sleep, each gone on from in a process of its own that has seen nothing before."""
    calls: list[str] = []
    run = await site.run(EVERY_STOP, owner=owner)
    body = await run.body()
    await run.scope.close()
    calls += [sent.tool for sent in site.calls.sent]
    for content in ({"answer": "yes"}, None):
        other = Site()
        await other.open()
        if content is None:
            # This one goes on into the sleep, and ends there.
            deciding = asyncio.create_task(decide(other, ann, body["execution"]["id"], content=content, wait_s=0.1))
            assert (await deciding)["status"] == "running"
        else:
            body = await decide(other, ann, body["execution"]["id"], content=content)
        calls += [sent.tool for sent in other.calls.sent]
        await other.close()
    row = await rows.get("runs_run", run.run_id)
    assert row["state"] == "suspended"
    assert row["wake_at"] > await rows.now()
    await _wake(rows)
    again = await site.go_on(run.run_id)
    done = await again.body()
    assert done["result"] == [{"id": "1"}, {"text": "a"}, "yes", {"amount": 1, "ref": "A"}, {"id": "2"}]
    assert done["logs"] == ["at the end"]
    calls.append(site.calls.sent[-1].tool)
    assert calls == ["demo.get_item", "demo.create_note", "demo.create_charge", "demo.put_item"]


async def test_what_was_printed_and_emitted_before_a_stop_is_told_once(
    site: Site, rows: Rows, ann: Principal, owner: int
) -> None:
    code = "print('before')\nemit(1)\nask('go?')\nprint('after')\nemit(2)"
    run = await site.run(code, owner=owner)
    paused = await run.body()
    done = await decide(site, ann, paused["execution"]["id"], content={"answer": "y"})
    assert (done["logs"], done["emitted"]) == (["before", "after"], [1, 2])
    kinds = await rows.kinds(run.run_id)
    assert (kinds.count("log"), kinds.count("emitted")) == (2, 2)
    assert [row["seq"] for row in await rows.all("SELECT seq FROM runs_event ORDER BY seq")] == list(
        range(1, len(kinds) + 1)
    ), "without gaps"


async def test_a_sandbox_is_given_back_during_a_slow_call_and_taken_again_for_the_answer(owner: int) -> None:
    """With one worker process in all, another program runs in it while the first waits."""
    small = Site(processes=1)
    await small.open()
    try:
        held = small.calls.hold("demo.create_note", Succeeded("late", 201))
        slow = await small.run("import demo\nx = 40\nr = demo.create_note(text='a')\n[x + 2, r]", owner=owner)
        await held.arrival()
        worker = small.workers.taken[0].worker_pid
        assert worker in sandbox_pids()
        other = await small.run("'meanwhile'", owner=owner)
        assert (await other.body())["result"] == "meanwhile"
        assert not slow.execution.done.done()
        held.release()
        assert (await slow.body())["result"] == [42, "late"]
        assert [sandbox.worker_pid for sandbox in small.workers.taken] == [worker] * 3
    finally:
        await small.close()


async def test_a_quick_call_keeps_its_sandbox(site: Site, owner: int) -> None:
    run = await site.run("import demo\n[demo.get_item(id='1') for _ in range(5)]", owner=owner)
    assert (await run.body())["status"] == "completed"
    assert len(site.workers.taken) == 1


async def test_a_long_sleep_holds_no_sandbox_and_survives_its_process(site: Site, rows: Rows, owner: int) -> None:
    run = await site.run("x = 41\nsleep(3600)\nx + 1", owner=owner)

    async def kept() -> bool:
        return bool(await rows.all("SELECT 1 FROM runs_checkpoint"))

    await until(kept, "the sleep is checkpointed")
    await run.scope.close()
    await run.handed_on()
    row = await rows.get("runs_run", run.run_id)
    left = (row["wake_at"] - await rows.now()).total_seconds()
    assert 3500 < left <= 3600, "the time already slept counts"
    assert await (await site.scope().engine()).resume(run.run_id) is None, "not before its time"
    await _wake(rows)
    assert (await (await site.go_on(run.run_id)).body())["result"] == 42


async def test_a_short_sleep_is_slept(site: Site, owner: int) -> None:
    run = await site.run(
        "import time, asyncio\nsleep(0.01)\ntime.sleep(0.01)\nawait asyncio.sleep(0.01)\n'up'", owner=owner
    )
    assert (await run.body())["result"] == "up"
    assert len(site.workers.taken) == 1


async def test_a_program_that_never_stopped_begins_again_where_nothing_was_sent(
    site: Site, rows: Rows, owner: int
) -> None:
    run = await site.run(
        "import demo\nprint('once')\nwhile inputs['spin']:\n    pass", owner=owner, inputs={"spin": True}
    )
    await run.computing()
    await run.scope.close()
    await run.handed_on()
    assert site.handed_on == [run.run_id]
    await rows.conn.execute("UPDATE runs_run SET inputs = '{\"spin\": false}'")
    assert (await (await site.go_on(run.run_id)).body())["logs"] == ["once"]


async def test_a_queued_run_is_claimed_passes_the_gate_and_ends(site: Site, rows: Rows, ann: Principal) -> None:
    body = await run_enqueue(site.scope(), ann, code="1 + 1", inputs={}, timeout_s=5)
    run_id = site.handed_on[0]
    assert body == {"status": "running", "run_id": str(run_id), "events_url": body["events_url"]}
    done = await asyncio.gather(*(run_dispatch(site.scope(), run_id) for _ in range(4)))
    assert sorted(set(done) - {"succeeded"}) in (["nothing"], [])
    assert "succeeded" in done
    assert await rows.kinds(run_id) == ["submit", "claim", "gate", "succeed"]
    assert await run_dispatch(site.scope(), run_id) == "nothing"


# -- checkpoints -----------------------------------------------------------------------------------------------

PAUSED = "x = 41\nask('go?')\nx + 1"


@pytest.mark.parametrize("column", ["snapshot", "mac", "state", "run"])
async def test_a_forged_checkpoint_is_refused_and_nothing_of_it_runs(
    site: Site, rows: Rows, ann: Principal, owner: int, column: str
) -> None:
    run = await site.run(PAUSED, owner=owner)
    paused = await run.body()
    if column == "state":
        await rows.conn.execute("UPDATE runs_checkpoint SET state = jsonb_set(state, '{call_count}', '0')")
    elif column == "run":
        other = await site.run(PAUSED.replace("41", "1"), owner=owner)
        await other.body()
        await rows.conn.execute(
            "UPDATE runs_checkpoint c SET snapshot = o.snapshot, state = o.state, mac = o.mac FROM runs_checkpoint o"
            " WHERE c.run_id = %s AND o.run_id = %s",
            (run.run_id, other.run_id),
        )
    else:
        await rows.conn.execute(f"UPDATE runs_checkpoint SET {column} = set_byte({column}, 5, 255)".encode())
    before = len(site.workers.taken)
    body = await decide(site, ann, paused["execution"]["id"], content={"answer": "y"})
    assert (body["status"], body["error"]["code"]) == ("failed", "checkpoint_invalid")
    assert len(site.workers.taken) == before, "no sandbox was even taken"


async def test_the_engine_itself_refuses_a_forged_checkpoint(
    site: Site, rows: Rows, ann: Principal, owner: int
) -> None:
    run = await site.run(PAUSED, owner=owner)
    paused = await run.body()
    await decide(site, ann, paused["execution"]["id"], content={"answer": "y"}, go_on_here=False, wait_s=0)
    await rows.conn.execute("UPDATE runs_checkpoint SET mac = '\\x00'")
    with pytest.raises(CheckpointRefused) as refused:
        await (await site.scope().engine()).resume(run.run_id)
    assert refused.value.epoch == 2
    assert (await rows.get("runs_run", run.run_id))["state"] == "running"


async def test_a_key_is_rotated_by_putting_a_new_one_in_front(site: Site, ann: Principal, owner: int) -> None:
    site.checkpoints = CheckpointKeys(["old"])
    paused = [await (await site.run(PAUSED, owner=owner)).body() for _ in range(2)]
    site.checkpoints = CheckpointKeys(["new", "old"])
    assert (await decide(site, ann, paused[0]["execution"]["id"], content={"answer": "y"}))["result"] == 42
    site.checkpoints = CheckpointKeys(["new"])
    gone = await decide(site, ann, paused[1]["execution"]["id"], content={"answer": "y"})
    assert gone["error"]["code"] == "checkpoint_invalid"


@pytest.mark.acceptance_id("E18")
async def test_a_state_too_large_to_keep_is_a_coded_failure(site: Site, owner: int) -> None:
    run = await site.run(f"x = 'a' * {limits.CHECKPOINT_BYTES + 1}\nask('go?')\nlen(x)", owner=owner)
    body = await run.body()
    assert body["error"]["code"] == "checkpoint_too_large"


async def test_too_many_questions_are_a_coded_failure(
    site: Site, rows: Rows, owner: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "PAUSES_PER_RUN", 2)
    code = (
        "import asyncio\nasync def main():\n    return await asyncio.gather(ask('a'), ask('b'), ask('c'))\nawait main()"
    )
    body = await (await site.run(code, owner=owner)).body()
    assert body["error"]["code"] == "too_many_calls"
    assert await rows.all("SELECT 1 FROM runs_pausedexecution") == []
