"""Every guard switched off, one at a time: of the table row by row, of the guard functions, of the store's row rules.

A mutant that no search catches says that its guard protects nothing, or that the models cannot see what it protects.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace

import pytest

from runs.domain import guards
from runs.domain.effects import EffectClass
from runs.domain.guards import EffectView, RunView, Verdict
from runs.domain.states import BY_EVENT, RunEvent, RunKind, RunState, Transition
from tests.model.code_run import CodeRun
from tests.model.explore import Model
from tests.model.questions import Questions
from tests.model.worker_run import WorkerRun

Flaws = frozenset[str]


@dataclass(frozen=True, slots=True)
class Mutant:
    name: str
    apply: Callable[[pytest.MonkeyPatch], None]
    flaws: Flaws = frozenset()
    guard: str | None = None
    """The boolean field of `Transition` that it switches off."""

    def __str__(self) -> str:
        return self.name


def hunting_grounds(flaws: Flaws = frozenset()) -> list[Callable[[], Model]]:
    """Small searches, the quickest first; together they reach every guard."""
    return [
        lambda: WorkerRun(faults=1, flaws=flaws),
        lambda: CodeRun(faults=1, flaws=flaws),
        lambda: CodeRun(faults=1, inline=False, flaws=flaws),
        lambda: CodeRun(faults=1, effect=EffectClass.IDEMPOTENT, flaws=flaws),
        lambda: Questions(faults=1, flaws=flaws),
        lambda: WorkerRun(faults=2, flaws=flaws),
    ]


GUARD_FIELDS = tuple(f.name for f in fields(Transition) if f.type in (bool, "bool"))


def _nothing(patch: pytest.MonkeyPatch) -> None:
    """The flaw is in the model's store, not in the domain."""


def _without(event: RunEvent, flag: str) -> Callable[[pytest.MonkeyPatch], None]:
    def apply(patch: pytest.MonkeyPatch) -> None:
        patch.setitem(BY_EVENT, event, replace(BY_EVENT[event], **{flag: False}))

    return apply


def _also_from(event: RunEvent, *sources: RunState) -> Callable[[pytest.MonkeyPatch], None]:
    def apply(patch: pytest.MonkeyPatch) -> None:
        row = BY_EVENT[event]
        patch.setitem(BY_EVENT, event, replace(row, sources=row.sources | set(sources)))

    return apply


def _guard(name: str, instead: Callable[..., object]) -> Callable[[pytest.MonkeyPatch], None]:
    return lambda patch: patch.setattr(guards, name, instead)


def _verdict(
    wrong: Callable[[RunView, tuple[EffectView, ...], Verdict], Verdict],
) -> Callable[[pytest.MonkeyPatch], None]:
    """The real verdict, bent where `wrong` says so."""
    real = guards.verdict

    def instead(run: RunView, effects: tuple[EffectView, ...], **limits: int) -> Verdict:
        return wrong(run, effects, real(run, effects, **limits))

    return _guard("verdict", instead)


def _reserve_without(**same: object) -> Callable[[pytest.MonkeyPatch], None]:
    """`may_reserve` on a run that looks right in one respect, whatever it is."""
    real = guards.may_reserve

    def instead(run: RunView, *, epoch: int) -> bool:
        believed = run.epoch if "epoch" in same else epoch
        return real(replace(run, **{k: v for k, v in same.items() if k != "epoch"}), epoch=believed)

    return _guard("may_reserve", instead)


def _retry_a_started_command(patch: pytest.MonkeyPatch) -> None:
    """Dead for sure, so start it again: the retry that must not exist."""
    _also_from(RunEvent.RELEASE, RunState.RUNNING)(patch)
    _verdict(lambda run, _, real: Verdict.RELEASE if run.kind is RunKind.WORKER else real)(patch)


def _flag_mutants() -> list[Mutant]:
    return [
        Mutant(f"{row.event.value} without {flag}", _without(row.event, flag), guard=flag)
        for row in BY_EVENT.values()
        for flag in GUARD_FIELDS
        if getattr(row, flag)
    ]


_FUNCTIONS = [
    Mutant("may_reserve ignores the epoch", _reserve_without(epoch=None)),
    Mutant("may_reserve ignores the cancel", _reserve_without(cancel_asked=False)),
    Mutant("may_reserve ignores the state", _reserve_without(state=RunState.RUNNING)),
    Mutant("may_send is always true", _guard("may_send", lambda **_: True)),
    Mutant("outcome_unknown is always false", _guard("outcome_unknown", lambda _: False)),
    Mutant("every lost call is sent again", _guard("sent_again_after_loss", lambda *_: True)),
    Mutant(
        "verdict suspends despite an unknown effect",
        _verdict(lambda run, _, real: Verdict.SUSPEND if real is Verdict.DOUBT and run.unknown_effects else real),
    ),
    Mutant(
        "verdict suspends an opaque run",
        _verdict(lambda run, _, real: Verdict.SUSPEND if real is Verdict.DOUBT and not run.unknown_effects else real),
    ),
    Mutant(
        "verdict goes on despite a cancel",
        _verdict(
            lambda run, _, real: Verdict.SUSPEND if real is Verdict.CANCEL and run.state is RunState.RUNNING else real
        ),
    ),
    Mutant("a started command is retried when confirmed dead", _retry_a_started_command),
    Mutant("cancel does not wait for the kill", _also_from(RunEvent.CANCEL, RunState.RUNNING)),
    Mutant("a held run is resumed", _also_from(RunEvent.RESUME, RunState.RUNNING)),
    Mutant("a started run is claimed again", _also_from(RunEvent.CLAIM, RunState.RUNNING)),
    Mutant("an unconfirmed run is resumed", _also_from(RunEvent.RESUME, RunState.UNCONFIRMED)),
]
_STORE = [
    Mutant(flaw.replace("_", " "), _nothing, frozenset({flaw}))
    for flaw in (
        "reserve_after_send",
        "ledger_not_read",
        "settle_anything",
        "settle_of_any_epoch",
        "decide_twice",
        "decision_not_stored",
        "decide_only_where_paused",
        "pause_past_a_decision",
        "no_question",
        "judgement_outlives_reserve",
        "reserve_keeps_an_old_lease",
        "shutdown_does_not_wait",
        "tell_before_gate",
        "gate_not_asked",
        "cancel_without_kill",
        "no_sweep",
    )
]
MUTANTS = [*_flag_mutants(), *_FUNCTIONS, *_STORE]
