"""The table of transitions says what the design says, and nothing more."""

from itertools import product

import pytest

from runs.domain.states import (
    BY_EVENT,
    HELD,
    NOT_STARTED,
    TERMINAL,
    TRANSITIONS,
    Actor,
    RunEvent,
    RunState,
    allowed,
    arrows,
)

DESIGN: dict[RunState | None, set[str]] = {
    None: {"queued", "running"},
    RunState.QUEUED: {"claimed", "failed", "cancelled"},
    RunState.CLAIMED: {"queued", "running", "failed", "cancelled"},
    RunState.RUNNING: {"paused", "suspended", "succeeded", "failed", "cancelled", "unconfirmed"},
    RunState.PAUSED: {"suspended", "cancelled"},
    RunState.SUSPENDED: {"running", "cancelled", "unconfirmed"},
    RunState.SUCCEEDED: set(),
    RunState.FAILED: set(),
    RunState.CANCELLED: set(),
    RunState.UNCONFIRMED: {"succeeded", "failed", "suspended"},
}
"""Section 4 of the design, read by hand: the second, independent writing that a slip in the table meets."""


@pytest.mark.parametrize(("source", "target"), list(product([None, *RunState], RunState)))
def test_every_pair_of_states_is_allowed_exactly_where_the_design_draws_an_arrow(
    source: RunState | None, target: RunState
) -> None:
    assert allowed(source, target) == (target.value in DESIGN[source])


def test_every_event_has_one_row_and_every_row_a_meaning_and_an_actor() -> None:
    assert [row.event for row in TRANSITIONS] == list(BY_EVENT)
    assert set(BY_EVENT) == set(RunEvent)
    assert all(row.meaning and row.actors and row.sources and row.targets for row in TRANSITIONS)


def test_the_arrows_are_those_that_some_row_lists() -> None:
    assert arrows() == {(a, b) for a, b in product(RunState, RunState) if allowed(a, b)}


def test_only_an_operator_moves_a_final_run_and_only_an_unconfirmed_one() -> None:
    for row in TRANSITIONS:
        if row.sources & TERMINAL:
            assert row.sources == {RunState.UNCONFIRMED}
            assert row.actors == {Actor.OPERATOR}


def test_nothing_leads_from_a_started_run_back_before_the_gate() -> None:
    started = set(RunState) - NOT_STARTED
    assert not [(a, b) for a, b in arrows() if a in started and b in NOT_STARTED]


def test_every_state_can_be_reached_and_every_unfinished_one_left() -> None:
    assert {b for row in TRANSITIONS for b in row.targets} == set(RunState)
    assert all(any(a is state for a, _ in arrows()) for state in set(RunState) - TERMINAL)


def test_whoever_takes_hold_of_a_run_that_existed_fences_the_one_before() -> None:
    for row in TRANSITIONS:
        takes_hold = bool(row.targets & HELD) and None not in row.sources and not row.sources & HELD
        assert row.new_epoch == takes_hold, row.event


def test_whoever_moves_a_held_run_names_its_epoch_but_for_a_person_who_cancels() -> None:
    """A superseded worker, or a sweep that judged an earlier holder, must not move what another one holds."""
    lax = {row.event for row in TRANSITIONS if row.sources & HELD and not row.own_epoch}
    assert lax == {RunEvent.CANCEL}


def test_an_opaque_run_never_comes_to_wait_or_to_go_on() -> None:
    """Whatever leads a started run to a state from which it goes on is for replayable runs alone."""
    started = {RunState.RUNNING, RunState.UNCONFIRMED}
    for row in TRANSITIONS:
        if row.sources & started and row.targets & {RunState.PAUSED, RunState.SUSPENDED}:
            assert row.replayable_only, row.event


def test_a_machine_ends_a_run_only_when_its_calls_are_settled() -> None:
    for row in TRANSITIONS:
        may_have_calls = bool(row.sources & {RunState.RUNNING, RunState.SUSPENDED})
        ends = bool(row.targets & (TERMINAL - {RunState.UNCONFIRMED}))
        if may_have_calls and ends:
            assert row.calls_settled, row.event
