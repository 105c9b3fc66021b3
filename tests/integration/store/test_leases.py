"""Who holds what: leases renewed only for what is really worked on, holders looked for, waiting runs found."""

from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest

from runs.domain.effects import EffectClass, EffectState
from runs.domain.states import RunState
from runs.drivers.identity import host_name
from runs.store.claim import run_claim, run_load, run_release, run_resume
from runs.store.leases import (
    leases_renew,
    process_end,
    process_register,
    runs_held_elsewhere,
    runs_waiting,
)
from runs.store.stops import run_doubt
from runs.store.transition import Lost, Moved, Reaped
from tests.support.pg import Rows, dead_identity, foreign_identity


async def test_a_beat_renews_only_the_runs_that_are_worked_on_and_says_who_was_asked_to_stop(rows: Rows) -> None:
    me, now = await rows.process(heartbeat_at=await rows.now() - timedelta(hours=1)), await rows.now()
    held = {"process_id": me, "lease_expires_at": now}
    works, asked, left = [await rows.run(cancel_asked=n == 1, **held) for n in range(3)]
    foreign = await rows.run()
    beat = await leases_renew(rows.conn, me, [works, asked, foreign])
    assert {row["id"]: row["cancel_asked"] for row in beat} == {works: False, asked: True}
    assert (await rows.get("runs_run", works))["lease_expires_at"] > now
    assert (await rows.get("runs_run", left))["lease_expires_at"] == now
    assert (await rows.get("runs_process", me))["heartbeat_at"] >= now


async def test_held_runs_are_looked_at_when_their_holder_may_be_gone_and_only_then(rows: Rows) -> None:
    now = await rows.now()
    me, neighbour = await rows.process(), await rows.process(identity=dead_identity())
    far = await rows.process(identity=foreign_identity())
    ended = await rows.process(identity=foreign_identity(), ended_at=now)
    own = await rows.run(process_id=me)
    own_expired = await rows.run(process_id=me, lease_expires_at=now)
    of_neighbour = await rows.run(process_id=neighbour)
    of_far = await rows.run(process_id=far)
    of_far_expired = await rows.run(process_id=far, lease_expires_at=now)
    of_ended = await rows.run(RunState.CLAIMED, process_id=ended)
    await rows.run(RunState.PAUSED)
    found = {row["id"]: row for row in await runs_held_elsewhere(rows.conn, own=me, host=host_name())}
    assert set(found) == {own_expired, of_neighbour, of_far_expired, of_ended}
    assert own not in found
    assert of_far not in found
    assert found[of_neighbour]["lease_expired"] is False
    assert found[of_far_expired]["lease_expired"] is True


async def test_a_held_run_comes_with_the_evidence_of_its_ledger(rows: Rows) -> None:
    me, gone = await rows.process(), await rows.process(identity=dead_identity())
    run_id = await rows.run(process_id=gone, epoch=3)
    for epoch, by in ((1, "lost"), (2, "suspend")):
        await rows.insert(
            "runs_attempt", run_id=run_id, epoch=epoch, process_id=gone, ended_at=await rows.now(), ended_by=by
        )
    await rows.effect(run_id, EffectState.SETTLED)
    await rows.effect(run_id, EffectState.SETTLED, answer={"kind": "refused", "sent": False})
    await rows.effect(run_id, EffectState.SETTLED, EffectClass.READ)
    await rows.effect(run_id, EffectState.RELEASED)
    key = await rows.effect(run_id, EffectState.RESERVED)
    (found,) = await runs_held_elsewhere(rows.conn, own=me, host=host_name())
    assert (found["attempts"], found["crashes"], found["settled"]) == (2, 1, 1)
    assert [effect["key"] for effect in found["open_effects"]] == [key]


async def test_a_judgement_does_not_outlive_a_renewal(rows: Rows) -> None:
    """The reaper read an expired lease; the holder came back before the reaper wrote."""
    run_id = await rows.run(RunState.CLAIMED)
    release = {"run_id": run_id, "epoch": 1, "why": "its worker is gone"}
    assert await run_release(rows.conn, **release, reaped=Reaped(proven_dead=False)) is Lost
    assert isinstance(await run_release(rows.conn, **release, reaped=Reaped(proven_dead=True)), Moved)


async def test_a_doubt_does_not_outlive_the_answer_of_the_last_call(rows: Rows) -> None:
    """The holder settled its call, and died, between the reaper's look at the ledger and its look at the process."""
    run_id = await rows.run(RunState.RUNNING)
    key = await rows.effect(run_id, EffectState.SETTLED)
    doubt: dict[str, Any] = {
        "run_id": run_id, "epoch": 1, "code": "effect_unknown", "body": {"status": "unconfirmed"}, "why": "gone",
    }  # fmt: skip
    dead = Reaped(proven_dead=True)
    assert await run_doubt(rows.conn, **doubt, outcome=uuid4(), reaped=dead) is Lost
    await rows.effect(run_id, EffectState.RESERVED)
    assert isinstance(await run_doubt(rows.conn, **doubt, outcome=uuid4(), reaped=dead), Moved)
    assert (await rows.get("runs_effect", key))["state"] == "settled"


async def test_a_lost_holders_attempt_ends_as_lost(rows: Rows) -> None:
    me = await rows.holder()
    run_id = await rows.run(RunState.QUEUED, epoch=0)
    claimed = await run_claim(rows.conn, run_id=run_id, process=me)
    assert isinstance(claimed, Moved)
    assert await run_claim(rows.conn, run_id=run_id, process=me) is Lost
    await run_release(rows.conn, run_id=run_id, epoch=1, why="gone", reaped=Reaped(proven_dead=True))
    (attempt,) = await rows.all("SELECT epoch, ended_by, ended_at FROM runs_attempt")
    assert (attempt["epoch"], attempt["ended_by"]) == (1, "lost")
    again = await run_claim(rows.conn, run_id=run_id, process=me)
    assert isinstance(again, Moved)
    assert again.epoch == 2


async def test_waiting_runs_are_found_after_a_while_unless_they_sleep(rows: Rows) -> None:
    now = await rows.now()
    ago, ahead = now - timedelta(seconds=10), now + timedelta(hours=1)
    queued = await rows.run(RunState.QUEUED, updated_at=ago)
    suspended = await rows.run(RunState.SUSPENDED, updated_at=ago)
    woken = await rows.run(RunState.SUSPENDED, updated_at=ago, wake_at=ago)
    await rows.run(RunState.SUSPENDED, updated_at=ago, wake_at=ahead)
    await rows.run(RunState.QUEUED)
    await rows.run(RunState.PAUSED, updated_at=ago)
    found = await runs_waiting(rows.conn, older_than_s=2)
    assert {row["id"] for row in found} == {queued, suspended, woken}


async def test_a_sleeper_and_a_checkpoint_of_a_newer_format_are_not_resumed(rows: Rows) -> None:
    me, now = await rows.holder(), await rows.now()
    asleep = await rows.run(RunState.SUSPENDED, wake_at=now + timedelta(hours=1))
    newer = await rows.run(RunState.SUSPENDED)
    await rows.insert("runs_checkpoint", run_id=newer, epoch=1, snapshot=b"", state={}, mac=b"", format=8)
    for run_id in (asleep, newer):
        assert await run_resume(rows.conn, run_id=run_id, process=me, format=7) is Lost
    resumed = await run_resume(rows.conn, run_id=newer, process=me, format=8)
    assert isinstance(resumed, Moved)
    assert (resumed.epoch, resumed.state) == (2, RunState.RUNNING)
    loaded = await run_load(rows.conn, newer)
    assert loaded is not None
    assert loaded.checkpoint is not None
    assert loaded.checkpoint["format"] == 8


async def test_a_process_says_goodbye_and_may_come_back_under_its_id(rows: Rows) -> None:
    me = uuid4()
    for _ in range(2):
        await process_register(rows.conn, process_id=me, role="web", identity=dead_identity())
        assert (await rows.get("runs_process", me))["ended_at"] is None
        await process_end(rows.conn, me)
        assert (await rows.get("runs_process", me))["ended_at"] is not None


@pytest.mark.parametrize("state", [RunState.RUNNING, RunState.PAUSED, RunState.SUCCEEDED])
async def test_only_a_queued_run_is_claimed(rows: Rows, state: RunState) -> None:
    run_id = await rows.run(state)
    assert await run_claim(rows.conn, run_id=run_id, process=await rows.holder()) is Lost
