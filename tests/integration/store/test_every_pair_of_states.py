"""The database refuses every arrow that is not in the table and takes every one that is, whoever writes."""

from itertools import product
from uuid import uuid4

import psycopg
import pytest

from runs.domain.effects import EffectState
from runs.domain.states import NOT_STARTED, RunState, allowed
from tests.support.pg import Rows

PAIRS = list(product(RunState, RunState))


@pytest.mark.parametrize(("source", "target"), PAIRS, ids=lambda state: state.value)
async def test_a_run_takes_exactly_the_arrows_of_the_table(rows: Rows, source: RunState, target: RunState) -> None:
    run_id = await rows.run(source, command_started_at=None)
    wanted = await rows.run_columns(target)
    columns = ("process_id", "lease_expires_at", "finished_at", "error_code")
    update = "UPDATE runs_run SET state = %s, " + ", ".join(f"{name} = %s" for name in columns) + " WHERE id = %s"

    move = rows.conn.execute(update.encode(), [target.value, *(wanted[name] for name in columns), run_id])
    if source is target or allowed(source, target):
        await move
        assert (await rows.get("runs_run", run_id))["state"] == target
    else:
        with pytest.raises(psycopg.errors.CheckViolation, match="run_transition"):
            await move
        assert (await rows.get("runs_run", run_id))["state"] == source


@pytest.mark.parametrize("state", list(RunState), ids=lambda state: state.value)
async def test_a_run_is_born_only_as_the_table_says(rows: Rows, state: RunState) -> None:
    columns = await rows.run_columns(state) | {"inputs": "{}"}
    names = ", ".join(columns)
    insert = rows.conn.execute(
        f"INSERT INTO runs_run ({names}) VALUES ({', '.join(['%s'] * len(columns))})".encode(), list(columns.values())
    )
    if allowed(None, state):
        await insert
    else:
        with pytest.raises(psycopg.errors.CheckViolation, match="run_transition"):
            await insert


async def test_the_start_of_a_command_is_written_once(rows: Rows) -> None:
    run_id = await rows.run(RunState.RUNNING)
    for value in ("now() + interval '1 s'", "NULL"):
        with pytest.raises(psycopg.errors.CheckViolation, match="run_started_once"):
            await rows.all(f"UPDATE runs_run SET command_started_at = {value} WHERE id = %s RETURNING id", run_id)


@pytest.mark.parametrize("state", sorted(NOT_STARTED), ids=str)
async def test_a_run_that_has_not_started_has_no_start(rows: Rows, state: RunState) -> None:
    run_id = await rows.run(state)
    with pytest.raises(psycopg.errors.CheckViolation, match="run_not_started_before_gate"):
        await rows.all("UPDATE runs_run SET command_started_at = now() WHERE id = %s RETURNING id", run_id)


async def test_an_epoch_and_an_event_number_never_fall(rows: Rows) -> None:
    run_id = await rows.run(RunState.RUNNING, epoch=3, event_seq=7)
    with pytest.raises(psycopg.errors.CheckViolation, match="run_epoch_never_falls"):
        await rows.all("UPDATE runs_run SET epoch = 2 WHERE id = %s RETURNING id", run_id)
    with pytest.raises(psycopg.errors.CheckViolation, match="run_events_only_grow"):
        await rows.all("UPDATE runs_run SET event_seq = 6 WHERE id = %s RETURNING id", run_id)


async def test_what_a_run_is_and_whose_it_is_never_changes(rows: Rows) -> None:
    run_id, other = await rows.run(), await rows.user()
    for change, value in (("kind = %s", "worker"), ("owner_id = %s", other), ("lineage = %s", uuid4())):
        with pytest.raises(psycopg.errors.CheckViolation, match="run_identity_fixed"):
            await rows.all(f"UPDATE runs_run SET {change} WHERE id = %s RETURNING id", value, run_id)


async def test_events_are_neither_changed_nor_deleted(rows: Rows) -> None:
    run_id = await rows.run()
    await rows.insert("runs_event", run_id=run_id, seq=1, kind="submit", data={})
    for statement in ("UPDATE runs_event SET kind = 'x'", "DELETE FROM runs_event"):
        with pytest.raises(psycopg.errors.CheckViolation, match="event_never_changes"):
            await rows.conn.execute(f"{statement} WHERE run_id = %s".encode(), (run_id,))
    async with rows.conn.transaction(force_rollback=True):
        await rows.conn.execute("SET LOCAL executor.retention = 'on'")
        with pytest.raises(psycopg.errors.CheckViolation, match="event_never_changes"):
            await rows.conn.execute("UPDATE runs_event SET kind = 'x'")
    assert await rows.kinds(run_id) == ["submit"]


async def test_a_settled_effect_stays_settled_and_stays_itself(rows: Rows) -> None:
    run_id = await rows.run()
    key = await rows.effect(run_id, EffectState.SETTLED)
    for state in ("reserved", "unknown"):
        with pytest.raises(psycopg.errors.CheckViolation, match="effect_settled_once"):
            await rows.conn.execute(
                "UPDATE runs_effect SET state = %s, settled_at = NULL, answer = NULL WHERE key = %s", (state, key)
            )
    for change in ("key = 'another'", "tool = 'demo.another'"):
        with pytest.raises(psycopg.errors.CheckViolation, match="effect_identity_fixed"):
            await rows.conn.execute(f"UPDATE runs_effect SET {change} WHERE key = %s".encode(), (key,))


@pytest.mark.acceptance_id("E7")
async def test_a_decision_stays_the_decision_it_was(rows: Rows) -> None:
    run_id = await rows.run(RunState.PAUSED)
    pause = await rows.pause(
        run_id, decision="accept", decided_at=await rows.now(), decided_via="api", decided_by_id=await rows.owner()
    )
    other = await rows.user()
    for change in ("decision = 'decline'", f"decided_by_id = {other}", "decided_at = now() + interval '1 s'"):
        with pytest.raises(psycopg.errors.CheckViolation, match="pause_decided_once"):
            await rows.conn.execute(f"UPDATE runs_pausedexecution SET {change} WHERE id = %s".encode(), (pause,))
