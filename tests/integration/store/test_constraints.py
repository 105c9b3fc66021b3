"""Every constraint of the models is refused once, by its name; a constraint without such a case fails the last test."""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from uuid import uuid4

import psycopg
import pytest
from django.apps import apps

from runs.domain.effects import EffectState
from runs.domain.states import RunState
from tests.support.pg import Rows

Violation = Callable[[Rows], Awaitable[object]]
VIOLATIONS: dict[str, Violation] = {}


def violates(name: str) -> Callable[[Violation], Violation]:
    def register(case: Violation) -> Violation:
        assert name not in VIOLATIONS
        VIOLATIONS[name] = case
        return case

    return register


@violates("run_state_known")
async def _(rows: Rows) -> object:
    columns = await rows.run_columns(RunState.PAUSED)
    return await rows.insert("runs_run", **columns | {"state": "dreaming"})


@violates("run_kind_known")
async def _(rows: Rows) -> object:
    return await rows.insert("runs_run", **await rows.run_columns() | {"kind": "cell"})


@violates("run_finished_iff_terminal")
async def _(rows: Rows) -> object:
    return await rows.run(RunState.SUCCEEDED, finished_at=None)


@violates("run_not_started_before_gate")
async def _(rows: Rows) -> object:
    return await rows.run(RunState.QUEUED, command_started_at=await rows.now())


@violates("run_held_iff_leased")
async def _(rows: Rows) -> object:
    return await rows.run(RunState.RUNNING, process_id=None, lease_expires_at=None)


@violates("run_coded_iff_failed_or_unconfirmed")
async def _(rows: Rows) -> object:
    return await rows.run(RunState.FAILED, error_code=None)


@violates("run_code_known")
async def _(rows: Rows) -> object:
    return await rows.run(RunState.FAILED, error_code="bad_luck")


@violates("run_wakes_only_suspended")
async def _(rows: Rows) -> object:
    return await rows.run(RunState.PAUSED, wake_at=await rows.now())


@violates("run_once_per_idempotency_key")
async def _(rows: Rows) -> object:
    await rows.run(idempotency_key="k")
    return await rows.run(idempotency_key="k")


@violates("attempt_once_per_epoch")
async def _(rows: Rows) -> object:
    run_id, process = await rows.run(), await rows.holder()
    ended = {"ended_at": await rows.now(), "ended_by": "suspend"}
    await rows.insert("runs_attempt", run_id=run_id, epoch=1, process_id=process, **ended)
    return await rows.insert("runs_attempt", run_id=run_id, epoch=1, process_id=process, **ended)


@violates("attempt_one_open_per_run")
async def _(rows: Rows) -> object:
    run_id, process = await rows.run(), await rows.holder()
    await rows.insert("runs_attempt", run_id=run_id, epoch=1, process_id=process)
    return await rows.insert("runs_attempt", run_id=run_id, epoch=2, process_id=process)


@violates("effect_settled_iff_answered")
async def _(rows: Rows) -> object:
    return await rows.effect(await rows.run(), EffectState.SETTLED, answer=None)


@violates("effect_state_known")
async def _(rows: Rows) -> object:
    return await rows.insert(
        "runs_effect", key="k", run_id=await rows.run(), epoch=1, call_index=0, tool="demo.x", effect="effect",
        honours_key=False, args={}, state="perhaps",
    )  # fmt: skip


@violates("event_once_per_seq")
async def _(rows: Rows) -> object:
    run_id = await rows.run()
    await rows.insert("runs_event", run_id=run_id, seq=1, kind="submit", data={})
    return await rows.insert("runs_event", run_id=run_id, seq=1, kind="submit", data={})


@violates("output_once_per_name")
async def _(rows: Rows) -> object:
    run_id = await rows.run()
    await rows.insert("runs_output", run_id=run_id, name="logs", text="", total_bytes=0)
    return await rows.insert("runs_output", run_id=run_id, name="logs", text="", total_bytes=0)


@violates("outcome_once_per_stop")
async def _(rows: Rows) -> object:
    run_id = await rows.run()
    await rows.outcome(run_id)
    return await rows.outcome(run_id)


@violates("outcome_body_until_purged")
async def _(rows: Rows) -> object:
    return await rows.outcome(await rows.run(), purged_at=await rows.now())


@violates("pause_one_open_per_call")
async def _(rows: Rows) -> object:
    run_id = await rows.run(RunState.PAUSED)
    await rows.pause(run_id, call_index=4)
    return await rows.pause(run_id, call_index=4)


@violates("pause_decided_whole")
async def _(rows: Rows) -> object:
    return await rows.pause(await rows.run(RunState.PAUSED), decision="expired", decided_via="sweep")


@violates("pause_decided_by_a_person_or_ended")
async def _(rows: Rows) -> object:
    decided = {"decision": "accept", "decided_at": await rows.now(), "decided_via": "api"}
    return await rows.pause(await rows.run(RunState.PAUSED), **decided)


@violates("token_scopes_known")
async def _(rows: Rows) -> object:
    return await rows.token(scopes=("run", "rule"))


async def _source(rows: Rows) -> object:
    return await rows.insert(
        "runs_source", id=uuid4(), name=f"s{uuid4().hex[:8]}", kind="openapi", title="", spec_url="", base_url="",
        module="", honours_key=False, security={}, skipped={},
    )  # fmt: skip


@violates("tool_once_per_source")
async def _(rows: Rows) -> object:
    tool = {
        "source_id": await _source(rows), "name": "t", "description": "", "input_schema": {}, "effect": "read",
        "binding": {}, "sensitive": {}, "granted": True,
    }  # fmt: skip
    await rows.insert("runs_tool", **tool)
    return await rows.insert("runs_tool", **tool)


@violates("connection_one_shared_per_source")
async def _(rows: Rows) -> object:
    shared = {"source_id": await _source(rows), "name": "default", "ciphertext": b"", "schemes": {}}
    await rows.insert("runs_connection", id=uuid4(), **shared)
    return await rows.insert("runs_connection", id=uuid4(), **shared)


@violates("connection_one_per_owner")
async def _(rows: Rows) -> object:
    own = {"source_id": await _source(rows), "owner_id": await rows.owner(), "ciphertext": b"", "schemes": {}}
    await rows.insert("runs_connection", id=uuid4(), name="a", **own)
    return await rows.insert("runs_connection", id=uuid4(), name="b", **own)


@violates("catalog_version_single")
async def _(rows: Rows) -> object:
    return await rows.insert("runs_catalogversion", id=2, version=1)


@pytest.mark.parametrize("name", sorted(VIOLATIONS))
async def test_a_constraint_refuses_what_it_names(rows: Rows, name: str) -> None:
    with pytest.raises(psycopg.errors.IntegrityError) as refused:
        await VIOLATIONS[name](rows)
    assert refused.value.diag.constraint_name == name


def test_every_constraint_of_the_models_has_its_case() -> None:
    declared = {
        constraint.name for model in apps.get_app_config("runs").get_models() for constraint in model._meta.constraints
    }
    assert declared == set(VIOLATIONS)


async def test_keys_and_pauses_of_the_past_do_not_count_as_open(rows: Rows) -> None:
    """The partial constraints refuse only what they are about."""
    run_id, process = await rows.run(RunState.PAUSED), await rows.holder()
    now = await rows.now()
    decided = {"decision": "expired", "decided_at": now, "decided_via": "sweep"}
    await rows.pause(run_id, **decided)
    await rows.pause(run_id)
    await rows.insert("runs_attempt", run_id=run_id, epoch=1, process_id=process, ended_at=now - timedelta(1))
    await rows.insert("runs_attempt", run_id=run_id, epoch=2, process_id=process)
    await rows.run(idempotency_key=None)
    await rows.run(idempotency_key=None)
    await rows.run(idempotency_key="k")
    await rows.run(idempotency_key="k", owner_id=await rows.user())
