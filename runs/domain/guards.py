"""The guards as functions: who may move a run, what a reaper concludes, whether a call may be sent.

The store's SQL is generated from the same flags of the same table, and a test walks both side by side;
the interleaving model imports these very functions. Pure.
"""

from dataclasses import dataclass
from enum import StrEnum

from runs.domain.effects import EffectClass, EffectState, sent_again_after_loss
from runs.domain.states import BY_EVENT, RunEvent, RunKind, RunState


@dataclass(frozen=True, slots=True)
class RunView:
    """What the guards look at: one run as its row says."""

    state: RunState
    epoch: int
    cancel_asked: bool = False
    kind: RunKind = RunKind.CODE
    open_calls: bool = False
    """Whether any call of the run is reserved or unknown."""
    unknown_effects: bool = False
    """Whether nobody can say of some call if it happened: `outcome_unknown` holds for one of them."""


def permits(event: RunEvent, run: RunView, *, epoch: int, target: RunState | None = None) -> bool:
    """Whether `event` may move `run`, asked by a holder who believes in `epoch`."""
    row = BY_EVENT[event]
    return (
        run.state in row.sources
        and (target is None or target in row.targets)
        and (not row.own_epoch or run.epoch == epoch)
        and (not row.no_cancel_asked or not run.cancel_asked)
        and (not row.replayable_only or run.kind is RunKind.CODE)
        and (not row.no_unknown_effect or not run.unknown_effects)
        and (not row.calls_settled or not run.open_calls)
    )


def may_reserve(run: RunView, *, epoch: int) -> bool:
    """Whether an effect may be reserved: only by the holder of a running run that nobody asked to stop."""
    return run.state is RunState.RUNNING and run.epoch == epoch and not run.cancel_asked


def may_send(*, reserved_for_s: float, send_within_s: float) -> bool:
    """Whether a reserved call may still leave: a process that slept past its lease must not send."""
    return reserved_for_s < send_within_s


@dataclass(frozen=True, slots=True)
class EffectView:
    state: EffectState
    effect: EffectClass
    honours_key: bool = False


def outcome_unknown(effect: EffectView) -> bool:
    """Whether nobody can say if this call happened, and the machine must not repeat it."""
    if effect.state in (EffectState.SETTLED, EffectState.RELEASED):
        return False
    return effect.state is EffectState.UNKNOWN or not sent_again_after_loss(effect.effect, effect.honours_key)


class Verdict(StrEnum):
    """What a reaper does with a run whose holder is gone."""

    RELEASE = "release"
    REFUSE = "refuse"
    CANCEL = "cancel"
    SUSPEND = "suspend"
    GIVE_UP = "give_up"
    DOUBT = "doubt"


def verdict(
    run: RunView,
    effects: tuple[EffectView, ...],
    *,
    attempts: int,
    attempts_before_gate: int,
    attempts_after_crash: int,
) -> Verdict:
    """Judge a claimed or running run whose holder is gone (spec/design.md, section 6).

    Replayable and clean: goes on from its checkpoint. An unknown effect, or an opaque program: a person's work.
    """
    if run.state is RunState.CLAIMED:
        if run.cancel_asked:
            return Verdict.CANCEL
        return Verdict.REFUSE if attempts >= attempts_before_gate else Verdict.RELEASE
    if run.kind is not RunKind.CODE or any(outcome_unknown(e) for e in effects):
        return Verdict.DOUBT
    if run.cancel_asked or attempts >= attempts_after_crash:
        # Nothing will repeat a call that is still open, so nobody will ever know of it: no final state but doubt.
        if any(e.state in (EffectState.RESERVED, EffectState.UNKNOWN) for e in effects):
            return Verdict.DOUBT
        return Verdict.CANCEL if run.cancel_asked else Verdict.GIVE_UP
    return Verdict.SUSPEND
