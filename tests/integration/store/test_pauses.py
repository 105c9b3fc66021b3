"""A pause is lost where a decision came first; a decision is stored once; both in one commit with all they change."""

import asyncio
from typing import Any
from uuid import UUID, uuid4

import pytest

from runs.domain.effects import EffectState
from runs.domain.states import RunState
from runs.store import stops
from runs.store.pauses import decisions_read, pause_decide, pause_find, pause_lock, pauses_expired, pauses_pending
from runs.store.retention import runs_purge
from runs.store.transition import Connection, Lost, Moved
from tests.support.pg import Rows, checkpoint, connect


async def pause(rows: Rows, run_id: UUID, *, decisions: int = 0, indexes: tuple[int, ...] = (0,)) -> Any:
    questions = [
        stops.NewQuestion(uuid4(), index, "approval", "demo.x", {"n": index}, "Allow?", "owner", 60.0)
        for index in indexes
    ]
    moved = await stops.run_pause(
        rows.conn, run_id=run_id, epoch=1, decisions=decisions, checkpoint=checkpoint(), questions=questions,
        outcome=uuid4(), body={"status": "paused", "execution": {"expires_at": ""}}, expires_at=None, expires_s=60,
        events=[], reads=[],
    )  # fmt: skip
    return moved, [question.id for question in questions]


async def decide(rows: Rows, conn: Connection, pause_id: UUID, decision: str = "accept") -> Moved | None:
    async with conn.transaction():
        locked = await pause_lock(conn, pause_id)
        assert locked is not None
        if locked["decision"] is not None:
            return None
        decided = await pause_decide(
            conn, pause=locked, decision=decision, content=None, reason=None, by=await rows.owner(), by_name="ann",
            via="api", token=None,
        )  # fmt: skip
        return decided if isinstance(decided, Moved) else None


async def test_a_pause_is_a_row_with_its_question_its_checkpoint_and_its_answer(rows: Rows) -> None:
    run_id = await rows.run()
    moved, (pause_id,) = await pause(rows, run_id)
    assert isinstance(moved, Moved)
    assert moved.extra["body"]["execution"]["expires_at"].endswith("Z")
    found = await pause_find(rows.conn, pause_id)
    assert found is not None
    assert (found["run_state"], found["decision"], found["args"]) == ("paused", None, {"n": 0})
    run = await rows.get("runs_run", run_id)
    assert (run["process_id"], run["lease_expires_at"]) == (None, None)
    written = await rows.all(
        "SELECT xmin::text FROM runs_pausedexecution UNION SELECT xmin::text FROM runs_checkpoint"
        " UNION SELECT xmin::text FROM runs_settledoutcome UNION SELECT xmin::text FROM runs_run WHERE id = %s",
        run_id,
    )
    assert len(written) == 1
    assert await pauses_pending(rows.conn) == await pauses_pending(rows.conn, await rows.owner()) == 1
    assert await pauses_pending(rows.conn, await rows.user()) == 0


@pytest.mark.acceptance_id("E4")
async def test_a_pause_is_lost_when_a_decision_came_while_the_program_worked(rows: Rows) -> None:
    run_id = await rows.run()
    first = await rows.pause(run_id, call_index=0)
    await rows.pause(run_id, call_index=1)
    assert await decide(rows, rows.conn, first) is None, "the run works on: it does not move"
    before = await rows.snapshot(run_id)
    moved, _ = await pause(rows, run_id, decisions=0, indexes=(2,))
    assert moved is Lost
    assert await rows.snapshot(run_id) == before
    count, found = await decisions_read(rows.conn, run_id)
    assert (count, found[first]["decision"]) == (1, "accept")
    moved, _ = await pause(rows, run_id, decisions=count, indexes=(2,))
    assert isinstance(moved, Moved)


@pytest.mark.acceptance_id("E4")
async def test_other_questions_stay_open_when_one_is_decided(rows: Rows) -> None:
    run_id = await rows.run()
    _, (first, second) = await pause(rows, run_id, indexes=(0, 1))
    decided = await decide(rows, rows.conn, second)
    assert decided is not None
    assert decided.state is RunState.SUSPENDED
    assert await pauses_pending(rows.conn) == 1
    found = await pause_find(rows.conn, first)
    assert found is not None
    assert found["decision"] is None


@pytest.mark.acceptance_id("E6")
async def test_of_many_deciders_at_once_one_decides(rows: Rows, database_url: str) -> None:
    run_id = await rows.run()
    _, (pause_id,) = await pause(rows, run_id)
    conns = [await connect(database_url) for _ in range(8)]
    try:
        got = await asyncio.gather(
            *(decide(rows, conn, pause_id, "accept" if n % 2 else "decline") for n, conn in enumerate(conns))
        )
    finally:
        for conn in conns:
            await conn.close()
    assert sum(decided is not None for decided in got) == 1
    assert await rows.one("SELECT decisions FROM runs_run") == 1
    assert (await rows.kinds(run_id)).count("decision") == 1


async def test_a_decision_of_a_pause_that_is_not_open_is_a_defect_and_is_refused(rows: Rows) -> None:
    run_id = await rows.run()
    _, (pause_id,) = await pause(rows, run_id)
    found = await pause_find(rows.conn, pause_id)
    assert found is not None
    await decide(rows, rows.conn, pause_id)
    with pytest.raises(LookupError):
        await pause_decide(
            rows.conn, pause=found, decision="decline", content=None, reason=None, by=await rows.owner(),
            by_name="ann", via="api", token=None,
        )  # fmt: skip


@pytest.mark.acceptance_id("E12")
async def test_only_open_pauses_past_their_time_are_due(rows: Rows) -> None:
    run_id, now = await rows.run(RunState.PAUSED), await rows.now()
    due = await rows.pause(run_id, call_index=0, expires_at=now)
    await rows.pause(run_id, call_index=1)
    decided = {"decision": "expired", "decided_at": now, "decided_via": "sweep"}
    await rows.pause(run_id, call_index=2, expires_at=now, **decided)
    assert await pauses_expired(rows.conn) == [due]


@pytest.mark.acceptance_id("E9")
async def test_a_final_stop_withdraws_what_is_open_and_answers_every_decision(rows: Rows) -> None:
    run_id, outcome = await rows.run(), uuid4()
    opened, decided = await rows.pause(run_id, call_index=0), await rows.pause(run_id, call_index=1)
    await decide(rows, rows.conn, decided)
    body = {"status": "failed"}
    await stops.run_finish(
        rows.conn, run_id=run_id, epoch=1, outcome=outcome, body=body, code="program_error", events=[], reads=[]
    )
    found = await pause_find(rows.conn, opened)
    assert found is not None
    assert (found["decision"], found["outcome_id"], found["decided_via"]) == ("withdrawn", outcome, "engine")
    found = await pause_find(rows.conn, decided)
    assert found is not None
    assert (found["decision"], found["outcome_id"]) == ("accept", outcome)
    assert await pauses_pending(rows.conn) == 0


@pytest.mark.acceptance_id("E22")
async def test_retention_takes_the_data_and_leaves_ids_states_and_kinds(rows: Rows) -> None:
    now = await rows.now()
    old = {"finished_at": now.replace(year=now.year - 1, day=1)}
    purged, kept = await rows.run(RunState.SUCCEEDED, **old), await rows.run(RunState.SUCCEEDED)
    doubted = await rows.run(RunState.UNCONFIRMED, **old)
    for run_id in (purged, kept, doubted):
        await rows.insert("runs_event", run_id=run_id, seq=1, kind="submit", data={"secret": 1})
        await rows.insert("runs_output", run_id=run_id, name="logs", text="secret", total_bytes=6)
        await rows.outcome(run_id, body={"status": "completed", "result": "secret"})
        await rows.pause(run_id, decision="expired", decided_at=now, decided_via="sweep", args={"secret": 1})
        await rows.effect(
            run_id, EffectState.SETTLED, args={"secret": 1}, answer={"kind": "succeeded", "value": "secret"}
        )
    assert await runs_purge(rows.conn, older_than_days=90) == 1
    assert await runs_purge(rows.conn, older_than_days=90) == 0
    run = await rows.get("runs_run", purged)
    assert (run["state"], run["code"], run["inputs"]) == ("succeeded", "", {})
    assert run["purged_at"] is not None
    (outcome,) = await rows.all("SELECT status, body, purged_at FROM runs_settledoutcome WHERE run_id = %s", purged)
    assert (outcome["status"], outcome["body"]) == ("completed", None)
    assert await rows.all("SELECT 1 FROM runs_event WHERE run_id = %s", purged) == []
    assert await rows.all("SELECT 1 FROM runs_output WHERE run_id = %s", purged) == []
    assert await rows.one("SELECT args FROM runs_pausedexecution WHERE run_id = %s", purged) == {}
    (effect,) = await rows.all("SELECT args, answer FROM runs_effect WHERE run_id = %s", purged)
    assert effect == {"args": {}, "answer": {"kind": "succeeded"}}
    for run_id in (kept, doubted):
        assert await rows.kinds(run_id) == ["submit"]
        assert (await rows.get("runs_run", run_id))["code"] == "1"
