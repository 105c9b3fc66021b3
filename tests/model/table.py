"""The models' only door to the rules: every change of a run's state asks the real table and the real guards.

The guards are looked up in their module at each call, so a mutant put there is what the model meets. Nothing here
says when a move is allowed. States and events travel as plain text, which hashes ten times faster than an enum.
"""

from collections.abc import Callable
from functools import cache

from runs.domain import guards
from runs.domain.effects import EffectClass, EffectState
from runs.domain.guards import EffectView, RunView, Verdict
from runs.domain.states import BY_EVENT, Actor, RunEvent, RunKind, RunState

OF_VERDICT: dict[tuple[Verdict, RunState], RunEvent] = {
    (Verdict.RELEASE, RunState.CLAIMED): RunEvent.RELEASE,
    (Verdict.REFUSE, RunState.CLAIMED): RunEvent.REFUSE,
    (Verdict.CANCEL, RunState.CLAIMED): RunEvent.CANCEL,
    (Verdict.CANCEL, RunState.RUNNING): RunEvent.CANCEL_CONFIRMED,
    (Verdict.SUSPEND, RunState.RUNNING): RunEvent.SUSPEND,
    (Verdict.GIVE_UP, RunState.RUNNING): RunEvent.FAIL,
    (Verdict.DOUBT, RunState.RUNNING): RunEvent.DOUBT,
    (Verdict.RELEASE, RunState.RUNNING): RunEvent.RELEASE,
}
"""The move a reaper asks for; whether it may is the table's to say (the last one only a mutant's verdict asks for)."""

Calls = tuple[tuple[str, str], ...]
"""The ledger of a run: (effect state, effect class) of each call."""
Place = tuple[str, int]
"""A run's state and epoch."""


class Rules:
    """The guards for one kind of run, memoised for one search."""

    def __init__(self, kind: RunKind, *, before_gate: int, after_crash: int) -> None:
        self._kind = kind
        self._before_gate = before_gate
        self._after_crash = after_crash
        self.move: Callable[..., Place | None] = cache(self._move)
        self.may_reserve: Callable[..., bool] = cache(self._may_reserve)
        self.verdict: Callable[..., str] = cache(self._verdict)
        self.unknown: Callable[..., bool] = cache(self._unknown)

    def _view(self, place: Place, cancel: bool, calls: Calls) -> RunView:
        return RunView(
            RunState(place[0]),
            place[1],
            cancel,
            self._kind,
            open_calls=any(state != EffectState.SETTLED for state, _ in calls),
            unknown_effects=any(self._unknown(state, effect) for state, effect in calls),
        )

    def _move(
        self, event: str, actor: str, place: Place, cancel: bool, calls: Calls, believes: int, target: str = ""
    ) -> Place | None:
        """Where `event` takes the run, or None where the table refuses it to this actor."""
        row = BY_EVENT[RunEvent(event)]
        aim = RunState(target) if target else None
        view = self._view(place, cancel, calls)
        if Actor(actor) not in row.actors or not guards.permits(row.event, view, epoch=believes, target=aim):
            return None
        if aim is None:
            (aim,) = row.targets
        return aim.value, place[1] + row.new_epoch

    def endings(self, place: Place, cancel: bool, calls: Calls) -> list[Place]:
        """Everywhere an operator may take the run from here."""
        rows = [row for row in BY_EVENT.values() if Actor.OPERATOR in row.actors]
        places = [
            self.move(row.event.value, Actor.OPERATOR.value, place, cancel, calls, place[1], target.value)
            for row in rows
            for target in sorted(row.targets)
        ]
        return [place for place in places if place is not None]

    def _may_reserve(self, place: Place, cancel: bool, believes: int) -> bool:
        return guards.may_reserve(self._view(place, cancel, ()), epoch=believes)

    def _unknown(self, state: str, effect: str) -> bool:
        return guards.outcome_unknown(EffectView(EffectState(state), EffectClass(effect)))

    def _verdict(self, place: Place, cancel: bool, calls: Calls) -> str:
        """The event that a reaper asks for when the holder is gone."""
        verdict = guards.verdict(
            self._view(place, cancel, calls),
            tuple(EffectView(EffectState(state), EffectClass(effect)) for state, effect in calls),
            attempts=place[1],
            attempts_before_gate=self._before_gate,
            attempts_after_crash=self._after_crash,
        )
        return OF_VERDICT[verdict, RunState(place[0])].value
