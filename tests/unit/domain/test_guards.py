"""The guards decide as the table's flags and section 6 of the design say, case by case."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runs.domain.effects import EffectClass, EffectState
from runs.domain.guards import (
    EffectView,
    RunView,
    Verdict,
    may_reserve,
    may_send,
    outcome_unknown,
    permits,
    verdict,
)
from runs.domain.limits import CALL_TIMEOUT_S, HOUSEKEEPING_S, LEASE_S, SEND_WITHIN_S
from runs.domain.states import BY_EVENT, TRANSITIONS, Actor, RunEvent, RunKind, RunState, Transition

EPOCH = 3
VIOLATIONS = {
    "no_cancel_asked": {"cancel_asked": True},
    "replayable_only": {"kind": RunKind.WORKER},
    "no_unknown_effect": {"unknown_effects": True, "open_calls": True},
    "calls_settled": {"open_calls": True},
}


def _rows_and_sources() -> list[tuple[Transition, RunState]]:
    return [(row, source) for row in TRANSITIONS for source in sorted(row.sources - {None}, key=str)]


@pytest.mark.parametrize(("event", "state"), list(product(RunEvent, RunState)))
def test_an_event_is_refused_from_every_state_that_its_row_does_not_list(event: RunEvent, state: RunState) -> None:
    assert permits(event, RunView(state, EPOCH), epoch=EPOCH) == (state in BY_EVENT[event].sources)


@pytest.mark.parametrize(("row", "source"), _rows_and_sources(), ids=str)
def test_each_guard_of_a_row_refuses_alone_and_no_other_does(row: Transition, source: RunState) -> None:
    clean = RunView(source, EPOCH)
    assert permits(row.event, clean, epoch=EPOCH)
    assert permits(row.event, clean, epoch=EPOCH - 1) == (not row.own_epoch)
    for flag, change in VIOLATIONS.items():
        refused = not permits(row.event, replace(clean, **change), epoch=EPOCH)
        asked = getattr(row, flag) or (flag == "no_unknown_effect" and row.calls_settled)
        assert refused == asked, flag


@pytest.mark.parametrize(("row", "source"), _rows_and_sources(), ids=str)
def test_an_event_leads_only_to_the_targets_of_its_row(row: Transition, source: RunState) -> None:
    permitted = {
        target for target in RunState if permits(row.event, RunView(source, EPOCH), epoch=EPOCH, target=target)
    }
    assert permitted == row.targets


@given(
    st.builds(RunView, st.sampled_from(RunState), st.integers(0, 3), st.booleans(), st.sampled_from(RunKind)),
    st.integers(0, 3),
)
def test_only_the_holder_of_a_running_run_that_nobody_asked_to_stop_reserves(run: RunView, epoch: int) -> None:
    expected = run.state is RunState.RUNNING and epoch == run.epoch and not run.cancel_asked
    assert may_reserve(run, epoch=epoch) == expected


def test_a_call_is_not_sent_once_its_time_is_over() -> None:
    assert may_send(reserved_for_s=0.0, send_within_s=SEND_WITHIN_S)
    assert not may_send(reserved_for_s=SEND_WITHIN_S, send_within_s=SEND_WITHIN_S)
    assert not may_send(reserved_for_s=LEASE_S, send_within_s=SEND_WITHIN_S)


def test_the_time_to_send_ends_before_the_lease_that_the_reserve_renewed() -> None:
    assert SEND_WITHIN_S <= LEASE_S / 2
    assert HOUSEKEEPING_S * 4 <= LEASE_S < CALL_TIMEOUT_S


@pytest.mark.parametrize(("state", "effect", "honours"), list(product(EffectState, EffectClass, (False, True))))
def test_a_call_is_unknown_unless_it_was_answered_or_may_be_sent_again(
    state: EffectState, effect: EffectClass, honours: bool
) -> None:
    unknown = outcome_unknown(EffectView(state, effect, honours))
    if state in (EffectState.SETTLED, EffectState.RELEASED):
        assert not unknown
    elif state is EffectState.UNKNOWN:
        assert unknown
    else:
        assert unknown == (effect is EffectClass.EFFECT and not honours)


SETTLED = EffectView(EffectState.SETTLED, EffectClass.EFFECT)
REPEATABLE = EffectView(EffectState.RESERVED, EffectClass.IDEMPOTENT)
KEYED = EffectView(EffectState.RESERVED, EffectClass.EFFECT, honours_key=True)
LOST = EffectView(EffectState.RESERVED, EffectClass.EFFECT)
UNKNOWN = EffectView(EffectState.UNKNOWN, EffectClass.IDEMPOTENT)
LEDGERS = {
    "no call": (),
    "settled": (SETTLED,),
    "repeatable": (SETTLED, REPEATABLE),
    "keyed": (KEYED,),
    "lost": (SETTLED, REPEATABLE, LOST),
    "unknown": (UNKNOWN,),
}
BEFORE_GATE, AFTER_CRASH = 2, 4


def _cases() -> Iterator[tuple[RunKind, RunState, bool, str, int, Verdict]]:
    """The whole truth table: kind, state, cancel asked, ledger, attempts, and what the reaper does."""
    for kind, cancel, attempts in product(RunKind, (False, True), (1, BEFORE_GATE, AFTER_CRASH)):
        before = Verdict.REFUSE if attempts >= BEFORE_GATE else Verdict.RELEASE
        yield kind, RunState.CLAIMED, cancel, "no call", attempts, Verdict.CANCEL if cancel else before
        for name in LEDGERS:
            if kind is RunKind.WORKER or name in ("lost", "unknown"):
                wanted = Verdict.DOUBT
            elif cancel or attempts >= AFTER_CRASH:
                # It ends here, so nobody will send the open call again and its outcome stays unknown.
                ended = Verdict.CANCEL if cancel else Verdict.GIVE_UP
                wanted = Verdict.DOUBT if name in ("repeatable", "keyed") else ended
            else:
                wanted = Verdict.SUSPEND
            yield kind, RunState.RUNNING, cancel, name, attempts, wanted


def _judge(kind: RunKind, state: RunState, cancel: bool, ledger: str, attempts: int) -> tuple[RunView, Verdict]:
    effects = LEDGERS[ledger]
    run = RunView(
        state,
        EPOCH,
        cancel,
        kind,
        open_calls=any(e.state is not EffectState.SETTLED for e in effects),
        unknown_effects=any(outcome_unknown(e) for e in effects),
    )
    limits = {"attempts_before_gate": BEFORE_GATE, "attempts_after_crash": AFTER_CRASH}
    return run, verdict(run, effects, attempts=attempts, **limits)


@pytest.mark.parametrize(("kind", "state", "cancel", "ledger", "attempts", "wanted"), list(_cases()))
def test_the_reaper_judges_a_run_whose_holder_is_gone(
    kind: RunKind, state: RunState, cancel: bool, ledger: str, attempts: int, wanted: Verdict
) -> None:
    assert _judge(kind, state, cancel, ledger, attempts)[1] is wanted


EVENT_OF = {
    Verdict.RELEASE: RunEvent.RELEASE,
    Verdict.REFUSE: RunEvent.REFUSE,
    Verdict.SUSPEND: RunEvent.SUSPEND,
    Verdict.GIVE_UP: RunEvent.FAIL,
    Verdict.DOUBT: RunEvent.DOUBT,
}


@pytest.mark.parametrize(("kind", "state", "cancel", "ledger", "attempts", "wanted"), list(_cases()))
def test_the_table_lets_the_reaper_do_what_it_concludes(
    kind: RunKind, state: RunState, cancel: bool, ledger: str, attempts: int, wanted: Verdict
) -> None:
    """A verdict that the table refuses leaves the run running with nobody in it, for ever."""
    run, judged = _judge(kind, state, cancel, ledger, attempts)
    cancels = RunEvent.CANCEL if state is RunState.CLAIMED else RunEvent.CANCEL_CONFIRMED
    event = cancels if judged is Verdict.CANCEL else EVENT_OF[judged]
    assert permits(event, run, epoch=EPOCH)
    assert Actor.REAPER in BY_EVENT[event].actors


def test_an_operator_lets_only_a_replayable_run_go_on_and_only_when_every_call_is_answered() -> None:
    def goes_on(run: RunView) -> bool:
        rows = [row for row in TRANSITIONS if Actor.OPERATOR in row.actors]
        return any(permits(row.event, run, epoch=EPOCH, target=RunState.SUSPENDED) for row in rows)

    clean = RunView(RunState.UNCONFIRMED, EPOCH)
    assert goes_on(clean)
    assert not goes_on(replace(clean, kind=RunKind.WORKER))
    assert not goes_on(replace(clean, unknown_effects=True, open_calls=True))
