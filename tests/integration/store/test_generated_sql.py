"""What the table says, the guards as functions, the generated SQL and the database's own triggers: one and the same."""

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from itertools import product
from typing import Any
from uuid import UUID, uuid4

import pytest
from psycopg.types.json import Jsonb

from runs.domain.codes import RUN_CODES
from runs.domain.effects import EffectClass, EffectState
from runs.domain.guards import EffectView, RunView, outcome_unknown, permits
from runs.domain.states import BY_EVENT, HELD, RunEvent, RunKind, RunState
from runs.store import claim, guards, pauses, resolve, stops
from runs.store.transition import OPEN_CALLS, UNKNOWN_EFFECTS, Connection, Lost, Moved, _Lost, run_move
from tests.support.pg import Rows, checkpoint

EPOCH = 4
EFFECTS = [
    EffectView(state, effect, honours)
    for state, effect, honours in product(EffectState, (EffectClass.EFFECT, EffectClass.IDEMPOTENT), (False, True))
]
EVERY_LEDGER: list[tuple[EffectView, ...]] = [(), *((effect,) for effect in EFFECTS), (EFFECTS[0], EFFECTS[-1])]
LEDGERS: list[tuple[EffectView, ...]] = [
    (),
    (EffectView(EffectState.SETTLED, EffectClass.EFFECT), EffectView(EffectState.RELEASED, EffectClass.EFFECT)),
    (EffectView(EffectState.RESERVED, EffectClass.EFFECT),),
    (EffectView(EffectState.RESERVED, EffectClass.IDEMPOTENT),),
    (EffectView(EffectState.UNKNOWN, EffectClass.IDEMPOTENT, honours_key=True),),
]
"""One of each kind that the guards tell apart; that they tell them apart alike is held over EVERY_LEDGER."""

Move = Callable[[Connection, UUID, int, UUID], Awaitable[Moved | _Lost]]
BODY = {"status": "completed", "execution": {}}


def _final() -> dict[str, Any]:
    return {"outcome": uuid4(), "body": BODY}


OPEN = {EffectState.RESERVED, EffectState.UNKNOWN}

MOVES: dict[RunEvent, Move] = {
    RunEvent.CLAIM: lambda conn, run, _, me: claim.run_claim(conn, run_id=run, process=me),
    RunEvent.GATE: lambda conn, run, epoch, _: claim.run_gate(conn, run_id=run, epoch=epoch),
    RunEvent.RELEASE: lambda conn, run, epoch, _: claim.run_release(conn, run_id=run, epoch=epoch, why="test"),
    RunEvent.REFUSE: lambda conn, run, epoch, _: claim.run_refuse(
        conn, run_id=run, epoch=epoch, code="attempts_exhausted", **_final()
    ),
    RunEvent.RESUME: lambda conn, run, _, me: claim.run_resume(conn, run_id=run, process=me, format=1),
    RunEvent.PAUSE: lambda conn, run, epoch, _: stops.run_pause(
        conn, run_id=run, epoch=epoch, decisions=0, checkpoint=checkpoint(), questions=[], **_final(),
        expires_at=None, expires_s=60, events=[], reads=[],
    ),
    RunEvent.SUSPEND: lambda conn, run, epoch, _: stops.run_suspend(conn, run_id=run, epoch=epoch, why="test"),
    RunEvent.DECIDE: lambda conn, run, _epoch, _: run_move(conn, RunEvent.DECIDE, pauses._DECIDE, run_id=run),
    RunEvent.SUCCEED: lambda conn, run, epoch, _: stops.run_finish(
        conn, run_id=run, epoch=epoch, code=None, events=[], reads=[], **_final()
    ),
    RunEvent.FAIL: lambda conn, run, epoch, _: stops.run_finish(
        conn, run_id=run, epoch=epoch, code="program_error", events=[], reads=[], **_final()
    ),
    RunEvent.CANCEL: lambda conn, run, _epoch, _: stops.run_cancel(conn, run_id=run, data={}, **_final()),
    RunEvent.CANCEL_CONFIRMED: lambda conn, run, epoch, _: stops.run_cancel_confirmed(
        conn, run_id=run, epoch=epoch, why="test", **_final()
    ),
    RunEvent.DOUBT: lambda conn, run, epoch, _: stops.run_doubt(
        conn, run_id=run, epoch=epoch, code="effect_unknown", why="test", **_final()
    ),
    RunEvent.RESOLVE: lambda conn, run, _epoch, _: resolve.run_resolve(
        conn, run_id=run, target=RunState.FAILED, code="resolved_failed", events=[], data={}, **_final()
    ),
    RunEvent.GO_ON: lambda conn, run, _epoch, _: resolve.run_go_on(conn, run_id=run, events=[], data={}),
}  # fmt: skip


@dataclass(frozen=True)
class Case:
    state: RunState
    kind: RunKind
    cancel_asked: bool
    ledger: tuple[EffectView, ...]

    @property
    def view(self) -> RunView:
        return RunView(
            self.state,
            EPOCH,
            self.cancel_asked,
            self.kind,
            open_calls=any(effect.state in OPEN for effect in self.ledger),
            unknown_effects=any(outcome_unknown(effect) for effect in self.ledger),
        )


GRID = [Case(*case) for case in product(RunState, RunKind, (False, True), LEDGERS)]


def test_every_event_that_moves_a_run_is_walked() -> None:
    assert set(MOVES) == set(RunEvent) - {RunEvent.SUBMIT}
    assert BY_EVENT[RunEvent.SUBMIT].sources == {None}


async def _lay_out(rows: Rows, cases: list[Case]) -> list[UUID]:
    """One run a case, written together."""
    template = await rows.run_columns()
    ids, runs, effects = [], [], []
    by_state = {state: await rows.run_columns(state) for state in RunState}
    for case in cases:
        run_id = uuid4()
        ids.append(run_id)
        columns = by_state[case.state] | {
            "id": run_id, "lineage": run_id, "kind": case.kind.value, "epoch": EPOCH, "inputs": Jsonb({}),
            "cancel_requested_at": template["command_started_at"] if case.cancel_asked else None,
        }  # fmt: skip
        runs.append(tuple(columns[name] for name in template))
        for index, effect in enumerate(case.ledger):
            settled = effect.state is EffectState.SETTLED
            effects.append(
                (
                    uuid4().hex, run_id, EPOCH, index, "demo.x", effect.effect.value, effect.honours_key, Jsonb({}),
                    effect.state.value, template["command_started_at"] if settled else None,
                    Jsonb({"kind": "succeeded", "value": 1}) if settled else None,
                )
            )  # fmt: skip
    async with rows.conn.cursor() as cursor:
        await cursor.execute("SET LOCAL session_replication_role = replica")
        marks = ", ".join(["%s"] * len(template))
        await cursor.executemany(f"INSERT INTO runs_run ({', '.join(template)}) VALUES ({marks})".encode(), runs)
        await cursor.executemany(
            b"INSERT INTO runs_effect (key, run_id, epoch, call_index, tool, effect, honours_key, args, state,"
            b" settled_at, answer) VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)",
            effects,
        )
        await cursor.execute("SET LOCAL session_replication_role = origin")
    return ids


@pytest.mark.parametrize("event", sorted(MOVES), ids=str)
async def test_the_generated_statement_moves_a_run_exactly_where_the_guards_permit_it(
    rows: Rows, event: RunEvent
) -> None:
    me, row, move = await rows.holder(), BY_EVENT[event], MOVES[event]
    wrong: list[str] = []
    async with rows.conn.transaction(force_rollback=True):
        cases = [(case, epoch) for case in GRID for epoch in (EPOCH, EPOCH - 1)]
        ids = await _lay_out(rows, [case for case, _ in cases])
        moved: dict[UUID, Moved] = {}
        for run_id, (case, epoch) in zip(ids, cases, strict=True):
            result = await move(rows.conn, run_id, epoch, me)
            if (result is not Lost) != permits(event, case.view, epoch=epoch):
                wrong.append(f"{case} at epoch {epoch}: {result}")
            if isinstance(result, Moved):
                moved[run_id] = result
                assert result.state in row.targets
                assert result.epoch == EPOCH + row.new_epoch
        assert wrong == []
        assert moved, "the grid holds no run that this event may move"
        happened = await rows.all("SELECT run_id, seq, kind FROM runs_event")
        assert {(h["run_id"], h["seq"]) for h in happened} == {(i, m.event_seq) for i, m in moved.items()}
        assert {h["kind"] for h in happened} == {event.value}
        after = {r["id"]: r for r in await rows.all("SELECT id, state, epoch, process_id FROM runs_run")}
        for run_id, (case, _) in zip(ids, cases, strict=True):
            if run_id in moved:
                assert (after[run_id]["state"], after[run_id]["epoch"]) == (moved[run_id].state, moved[run_id].epoch)
                assert (after[run_id]["process_id"] is not None) == (moved[run_id].state in HELD)
            else:
                assert (after[run_id]["state"], after[run_id]["epoch"]) == (case.state, EPOCH)


async def test_an_unknown_outcome_means_the_same_in_sql_and_in_the_guards(rows: Rows) -> None:
    async with rows.conn.transaction(force_rollback=True):
        cases = [Case(RunState.RUNNING, RunKind.CODE, False, ledger) for ledger in EVERY_LEDGER]
        ids = await _lay_out(rows, cases)
        found = {
            row["id"]: row
            for row in await rows.all(
                f"SELECT r.id, {UNKNOWN_EFFECTS} AS unknown, {OPEN_CALLS} AS open FROM runs_run r"
            )
        }
        assert len(found) == len(cases)
        for run_id, case in zip(ids, cases, strict=True):
            seen = (found[run_id]["unknown"], found[run_id]["open"])
            assert seen == (case.view.unknown_effects, case.view.open_calls), case


# -- the database's own guards ---------------------------------------------------------------------------------


def _made_functions() -> dict[str, str]:
    text = "\n".join(guards.statements())
    return dict(
        re.findall(r"FUNCTION (runs_\w+)\(\) RETURNS trigger LANGUAGE plpgsql AS \$guard\$(.*?)\$guard\$", text, re.S)
    )


def _made_triggers() -> set[tuple[str, str, str]]:
    text = "\n".join(guards.statements())
    found = re.findall(
        r"TRIGGER (\w+) (BEFORE|AFTER) ([A-Z ]+?) ON (\w+)\s+FOR EACH (ROW|STATEMENT) EXECUTE FUNCTION (\w+)", text
    )
    return {
        (name, table, f"{when} {' OR '.join(sorted(events.split(' OR ')))} {level} {function}")
        for name, when, events, table, level, function in found
    }


async def test_the_functions_in_the_database_are_those_the_table_makes(rows: Rows) -> None:
    made = _made_functions()
    found = await rows.all("SELECT proname, prosrc FROM pg_proc WHERE proname LIKE 'runs\\_%%'")
    assert {row["proname"]: row["prosrc"] for row in found} == made
    assert set(made) >= {"runs_guard_run", "runs_guard_event", "runs_guard_effect", "runs_guard_pause"}


async def test_the_triggers_in_the_database_are_those_the_table_makes_and_all_are_armed(rows: Rows) -> None:
    found = await rows.all(
        "SELECT tgname, tgrelid::regclass::text AS name, pg_get_triggerdef(oid) AS text, tgenabled::text AS armed"
        " FROM pg_trigger WHERE NOT tgisinternal AND tgrelid::regclass::text LIKE 'runs\\_%%'"
    )
    seen = set()
    for row in found:
        match = re.search(
            r"(BEFORE|AFTER) ([A-Z ]+?) ON \S+ FOR EACH (ROW|STATEMENT) EXECUTE FUNCTION (\w+)", row["text"]
        )
        assert match is not None, row["text"]
        when, events, level, function = match.groups()
        seen.add((row["tgname"], row["name"], f"{when} {' OR '.join(sorted(events.split(' OR ')))} {level} {function}"))
        assert row["armed"] == "O"
    assert seen == _made_triggers()


@pytest.mark.acceptance_id("O1")
async def test_the_database_knows_the_codes_of_the_registry_and_no_others(rows: Rows) -> None:
    text = await rows.one("SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conname = 'run_code_known'")
    assert sorted(re.findall(r"'(\w+)'", text)) == sorted(RUN_CODES)


async def test_the_database_knows_the_states_of_the_table_and_no_others(rows: Rows) -> None:
    text = await rows.one("SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conname = 'run_state_known'")
    assert sorted(re.findall(r"'(\w+)'", text)) == sorted(RunState)
