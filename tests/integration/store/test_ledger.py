"""Reserving is the fence and settling is for whoever reserved: on the real database, statement by statement."""

import asyncio
from typing import Any
from uuid import UUID, uuid4

import pytest

from runs.domain.effects import EffectClass, EffectState
from runs.domain.states import RunState
from runs.store import stops
from runs.store.events import cancel_ask
from runs.store.ledger import Reservation, checkpoint_store, effect_settle, effects_reserve
from runs.store.submit import run_submit
from runs.store.transition import Connection, Lost, NewEvent
from tests.support.pg import Rows, checkpoint, connect

ANSWER = {"kind": "succeeded", "value": {"id": 7}}
READ = {
    "key": "read-1", "call_index": 0, "tool": "demo.get_item", "args": {"id": "7"}, "duration_ms": 1.5, "age_ms": 2.0,
    "answer": {"kind": "succeeded"}, "ok": True, "status": 200,
}  # fmt: skip


def call(key: str = "key-1", effect: str = "effect", *, honours_key: bool = False, index: int = 0) -> Reservation:
    return Reservation(key, index, "demo.create_note", effect, honours_key, {"text": "hello"})


async def reserve(
    conn: Connection, run_id: UUID, *calls: Reservation, epoch: int = 1, again: bool = False
) -> frozenset[str] | None:
    return await effects_reserve(
        conn, run_id=run_id, epoch=epoch, checkpoint=checkpoint(b"at the call"), calls=calls,
        events=[NewEvent("log", {"lines": ["x"]})], reads=[READ], again=again,
    )  # fmt: skip


async def settle(conn: Connection, run_id: UUID, *, epoch: int = 1, answer: dict[str, Any] = ANSWER) -> bool:
    return await effect_settle(
        conn, run_id=run_id, epoch=epoch, key="key-1", call_index=0, tool="demo.create_note", answer=answer, ok=True,
        status=201, duration_ms=12.34,
    )  # fmt: skip


@pytest.mark.acceptance_id("T3")
async def test_reserving_keeps_the_checkpoint_the_reads_and_the_events_in_one_commit(rows: Rows) -> None:
    run_id = await rows.run()
    assert await reserve(rows.conn, run_id, call("a", index=1), call("b", index=2)) == {"a", "b"}
    stored = await rows.snapshot(run_id)
    assert [(e["key"], e["state"]) for e in stored["runs_effect"]] == [
        ("a", "reserved"), ("b", "reserved"), ("read-1", "settled"),
    ]  # fmt: skip
    assert bytes(stored["runs_checkpoint"][0]["snapshot"]) == b"at the call"
    assert [(e["seq"], e["kind"]) for e in stored["runs_event"]] == [
        (1, "log"), (2, "call_reserved"), (3, "call_reserved"),
    ]  # fmt: skip
    written = await rows.all(
        "SELECT xmin::text AS x FROM runs_effect UNION SELECT xmin::text FROM runs_event"
        " UNION SELECT xmin::text FROM runs_checkpoint UNION SELECT xmin::text FROM runs_run WHERE id = %s",
        run_id,
    )
    assert len(written) == 1, "one transaction wrote all of it"


@pytest.mark.acceptance_id("T8")
@pytest.mark.parametrize("why", ["old epoch", "asked to stop", *sorted(set(RunState) - {RunState.RUNNING})])
async def test_a_holder_that_may_not_go_on_gets_no_reservation_and_writes_nothing(rows: Rows, why: str) -> None:
    state = RunState(why) if why in set(RunState) else RunState.RUNNING
    run_id = await rows.run(state, epoch=2, cancel_asked=why == "asked to stop")
    before = await rows.snapshot(run_id)
    assert await reserve(rows.conn, run_id, call(), epoch=1 if why == "old epoch" else 2) is None
    assert await rows.snapshot(run_id) == before


async def test_a_key_is_reserved_once_for_an_effect(rows: Rows) -> None:
    run_id = await rows.run(epoch=2)
    assert await reserve(rows.conn, run_id, call(), epoch=2) == {"key-1"}
    assert await reserve(rows.conn, run_id, call(), epoch=2) == frozenset()
    assert len(await rows.all("SELECT key FROM runs_effect WHERE effect = 'effect'")) == 1


@pytest.mark.acceptance_id("T4")
@pytest.mark.parametrize(("effect", "honours_key"), [("idempotent", False), ("effect", True)])
async def test_a_key_that_may_be_sent_again_is_reserved_again_by_the_new_epoch(
    rows: Rows, effect: str, honours_key: bool
) -> None:
    run_id = await rows.run(epoch=2)
    await rows.effect(run_id, EffectState.RESERVED, EffectClass(effect), key="key-1", honours_key=honours_key)
    assert await reserve(rows.conn, run_id, call(effect=effect, honours_key=honours_key), epoch=2) == {"key-1"}
    assert (await rows.get("runs_effect", "key-1"))["epoch"] == 2


@pytest.mark.acceptance_id("T3")
async def test_a_reservation_whose_acknowledgement_was_lost_is_its_own_and_nobody_elses(rows: Rows) -> None:
    run_id = await rows.run(epoch=2)
    assert await reserve(rows.conn, run_id, call(), epoch=2) == {"key-1"}
    assert await reserve(rows.conn, run_id, call(), epoch=2, again=True) == {"key-1"}, "nothing was sent yet"
    older = await rows.effect(run_id, EffectState.RESERVED, key="key-0")
    assert await reserve(rows.conn, run_id, call(older), epoch=2, again=True) == frozenset(), "epoch 1 may have sent it"
    for state in (EffectState.UNKNOWN, EffectState.SETTLED):
        key = await rows.effect(run_id, state, epoch=2)
        assert await reserve(rows.conn, run_id, call(key), epoch=2, again=True) == frozenset()


async def test_an_answer_whose_acknowledgement_was_lost_is_stored_once_and_not_as_a_late_one(rows: Rows) -> None:
    run_id = await rows.run()
    await reserve(rows.conn, run_id, call())
    assert await settle(rows.conn, run_id)
    assert await settle(rows.conn, run_id), "the same answer again"
    assert "call_answered_late" not in await rows.kinds(run_id)
    assert not await settle(rows.conn, run_id, answer={"kind": "succeeded", "value": "another"})
    assert "call_answered_late" in await rows.kinds(run_id)


async def test_what_is_unknown_or_settled_is_never_reserved_again(rows: Rows) -> None:
    run_id = await rows.run()
    for state in (EffectState.UNKNOWN, EffectState.SETTLED):
        key = await rows.effect(run_id, state, EffectClass.IDEMPOTENT)
        assert await reserve(rows.conn, run_id, call(key, "idempotent")) == frozenset()
        assert (await rows.get("runs_effect", key))["state"] == state


async def test_what_an_operator_released_is_reserved_once_more(rows: Rows) -> None:
    run_id = await rows.run(epoch=3)
    await rows.effect(run_id, EffectState.RELEASED, key="key-1")
    assert await reserve(rows.conn, run_id, call(), epoch=3) == {"key-1"}
    assert await reserve(rows.conn, run_id, call(), epoch=3) == frozenset()


async def test_another_runs_key_cannot_be_taken(rows: Rows) -> None:
    first, second = await rows.run(), await rows.run()
    await rows.effect(first, EffectState.RESERVED, EffectClass.IDEMPOTENT, key="key-1")
    assert await reserve(rows.conn, second, call(effect="idempotent")) == frozenset()
    assert (await rows.get("runs_effect", "key-1"))["run_id"] == first


async def test_one_of_many_reservations_at_once_gets_the_key(rows: Rows, database_url: str) -> None:
    run_id = await rows.run()
    conns = [await connect(database_url) for _ in range(8)]
    try:
        got = await asyncio.gather(*(reserve(conn, run_id, call()) for conn in conns))
    finally:
        for conn in conns:
            await conn.close()
    assert sorted(len(keys or ()) for keys in got) == [0] * 7 + [1]


async def test_an_answer_is_settled_once_with_all_that_came(rows: Rows) -> None:
    run_id = await rows.run()
    await reserve(rows.conn, run_id, call())
    assert await settle(rows.conn, run_id)
    effect = await rows.get("runs_effect", "key-1")
    assert (effect["state"], effect["answer"], effect["ok"], effect["status"]) == ("settled", ANSWER, True, 201)
    assert effect["settled_at"] >= effect["reserved_at"]
    assert not await settle(rows.conn, run_id, answer={"kind": "succeeded", "value": "other"})
    assert (await rows.get("runs_effect", "key-1"))["answer"] == ANSWER


@pytest.mark.acceptance_id("T8")
async def test_an_old_epochs_answer_changes_nothing_and_is_kept_as_evidence(rows: Rows) -> None:
    run_id = await rows.run(epoch=2)
    await rows.effect(run_id, EffectState.RESERVED, EffectClass.IDEMPOTENT, key="key-1", epoch=2)
    assert not await settle(rows.conn, run_id, epoch=1)
    assert (await rows.get("runs_effect", "key-1"))["state"] == "reserved"
    (late,) = await rows.all("SELECT kind, data FROM runs_event WHERE run_id = %s", run_id)
    assert late["kind"] == "call_answered_late"
    assert (late["data"]["epoch"], late["data"]["answer"], late["data"]["key"]) == (1, ANSWER, "key-1")
    assert (await rows.get("runs_run", run_id))["state"] == "running"


@pytest.mark.acceptance_id("T7")
async def test_an_answer_is_settled_whatever_became_of_the_run(rows: Rows) -> None:
    run_id = await rows.run()
    await reserve(rows.conn, run_id, call())
    await stops.run_doubt(
        rows.conn, run_id=run_id, epoch=1, code="effect_unknown", outcome=uuid4(), body={"status": "unconfirmed"},
        why="its host is gone",
    )  # fmt: skip
    assert (await rows.get("runs_effect", "key-1"))["state"] == "unknown"
    assert await settle(rows.conn, run_id)
    assert (await rows.get("runs_effect", "key-1"))["state"] == "settled"
    assert (await rows.get("runs_run", run_id))["state"] == "unconfirmed"


async def test_a_checkpoint_is_kept_only_by_the_holder_and_replaces_the_one_before(rows: Rows) -> None:
    run_id = await rows.run(epoch=2)
    for data, epoch, kept in ((b"1", 2, True), (b"old", 1, False), (b"2", 2, True)):
        stored = await checkpoint_store(
            rows.conn, run_id=run_id, epoch=epoch, checkpoint=checkpoint(data), events=[], reads=[]
        )
        assert stored is kept
    assert bytes((await rows.get("runs_checkpoint", run_id))["snapshot"]) == b"2"
    await cancel_ask(rows.conn, run_id=run_id, by=await rows.owner(), by_name="x")
    assert not await checkpoint_store(
        rows.conn, run_id=run_id, epoch=2, checkpoint=checkpoint(b"3"), events=[], reads=[]
    )


async def test_a_final_state_waits_for_every_call(rows: Rows) -> None:
    run_id = await rows.run()
    await reserve(rows.conn, run_id, call())
    finish = {"run_id": run_id, "epoch": 1, "code": None, "events": [], "reads": []}
    body = {"status": "completed"}
    assert await stops.run_finish(rows.conn, **finish, outcome=uuid4(), body=body) is Lost
    await settle(rows.conn, run_id)
    assert await stops.run_finish(rows.conn, **finish, outcome=uuid4(), body=body) is not Lost
    assert await rows.all("SELECT 1 FROM runs_checkpoint") == []


# -- the birth of a run ----------------------------------------------------------------------------------------


async def submit(rows: Rows, conn: Connection, *, digest: str = "d", **more: Any) -> Any:
    return await run_submit(
        conn, run_id=uuid4(), inline=True, process=await rows.holder(), origin="inline", owner=await rows.owner(),
        token=None, code="1", inputs={}, timeout_s=30, idempotency_key="k", digest=digest, **more,
    )  # fmt: skip


@pytest.mark.acceptance_id("E20")
async def test_one_idempotency_key_is_one_run_also_when_sixteen_ask_at_once(rows: Rows, database_url: str) -> None:
    await rows.holder(), await rows.owner()
    conns = [await connect(database_url) for _ in range(16)]
    try:
        got = await asyncio.gather(*(submit(rows, conn) for conn in conns))
    finally:
        for conn in conns:
            await conn.close()
    assert len({submitted.run_id for submitted in got}) == 1
    assert sum(submitted.is_new for submitted in got) == 1
    assert all(submitted.same_request for submitted in got)
    assert await rows.one("SELECT count(*) FROM runs_run") == 1
    assert await rows.one("SELECT count(*) FROM runs_attempt") == 1


@pytest.mark.acceptance_id("E20")
async def test_the_key_with_another_request_is_told_apart_and_writes_nothing(rows: Rows) -> None:
    first = await submit(rows, rows.conn)
    before = await rows.snapshot(first.run_id)
    other = await submit(rows, rows.conn, digest="another")
    assert (other.run_id, other.is_new, other.same_request) == (first.run_id, False, False)
    assert await rows.snapshot(first.run_id) == before
