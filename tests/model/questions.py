"""A code run that asks two questions at once: answerable in any order, also while a host works on the first answer.

What is looked for is the lost wake-up: a host that pauses past a decision it has not seen leaves a run that waits
for nobody. The store's rule against it is the row's count of decisions.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from runs.domain.states import TERMINAL, RunKind
from tests.model.explore import Step
from tests.model.table import Place, Rules

_TERMINAL = frozenset(state.value for state in TERMINAL)
IDLE = (0, 0)
OPEN = ("", "?")


class S(NamedTuple):
    place: Place
    cancel: bool
    questions: tuple[str, str]
    """"" not asked, "?" open, else the stored decision."""
    hosts: tuple[tuple[int, int], tuple[int, int]]
    """(epoch it believes in, decisions it has seen)."""
    reaper: tuple[str, int] | None
    faults: int


@dataclass
class Questions:
    faults: int = 2
    flaws: frozenset[str] = frozenset()
    machine = frozenset({"host 0", "host 1", "reaper", "sweep"})
    rules: Rules = field(init=False)

    def __post_init__(self) -> None:
        self.rules = Rules(RunKind.CODE, before_gate=2, after_crash=6)

    def initial(self) -> list[S]:
        return [S(("running", 1), False, ("", ""), (IDLE, (1, 0)), None, self.faults)]

    def steps(self, s: S) -> Iterator[tuple[Step, S]]:
        for i, host in enumerate(s.hosts):
            for what, after in self._idle(s, i) if host == IDLE else self._works(s, i):
                yield (f"host {i}", f"{what} (epoch {host[0]})"), after
            if host != IDLE and s.faults:
                yield ("fault", f"kill -9 host {i}"), _host(s, i, IDLE)._replace(faults=s.faults - 1)
        for who, what, after in (*self._reaper(s), *self._people(s)):
            yield (who, what), after

    def _move(self, s: S, event: str, actor: str, believes: int) -> Place | None:
        return self.rules.move(event, actor, s.place, s.cancel, (), believes)

    def _idle(self, s: S, i: int) -> Iterator[tuple[str, S]]:
        if place := self._move(s, "resume", "worker", 0):
            yield "resume", _host(s, i, (place[1], _decided(s)))._replace(place=place)

    def _works(self, s: S, i: int) -> Iterator[tuple[str, S]]:
        epoch, seen = s.hosts[i]
        idle = _host(s, i, IDLE)
        if seen < _decided(s):
            yield "look at the decisions", _host(s, i, (epoch, _decided(s)))
        if seen == len(s.questions):
            if place := self._move(s, "succeed", "engine", epoch):
                yield "succeed", idle._replace(place=place)
        elif (seen == _decided(s) or "pause_past_a_decision" in self.flaws) and (
            place := self._move(s, "pause", "engine", epoch)
        ):
            first, second = (q or "?" for q in s.questions)
            yield "pause", idle._replace(place=place, questions=(first, second))
        if s.cancel and (place := self._move(s, "cancel_confirmed", "engine", epoch)):
            yield "confirm the cancel", idle._replace(place=place)
        if s.place != ("running", epoch):
            yield "see that it is superseded", idle

    def _reaper(self, s: S) -> Iterator[tuple[str, str, S]]:
        if s.reaper is not None:
            place = self._move(s, s.reaper[0], "reaper", s.reaper[1])
            yield "reaper", f"write {s.reaper[0]}", s._replace(place=place or s.place, reaper=None)
        elif s.place[0] == "running":
            dead = not any(epoch == s.place[1] for epoch, _ in s.hosts)
            judged = s._replace(reaper=(self.rules.verdict(s.place, s.cancel, ()), s.place[1]))
            if dead:
                yield "reaper", "judge", judged
            elif s.faults:
                yield "fault", "a live lease looks expired", judged._replace(faults=s.faults - 1)

    def _people(self, s: S) -> Iterator[tuple[str, str, S]]:
        if not s.cancel and s.place[0] not in _TERMINAL:
            yield "canceller", "ask to stop", s._replace(cancel=True)
        if s.cancel and (place := self._move(s, "cancel", "reaper", s.place[1])):
            yield "sweep", "cancel what nothing works on", s._replace(place=place)
        if s.place[0] in _TERMINAL:
            return
        for n, question in enumerate(s.questions):
            if question == "?" or (question and "decide_twice" in self.flaws):
                for decision in ("accept", "decline"):
                    place = self._move(s, "decide", "person", s.place[1])
                    stored = s if place is None and "decide_only_where_paused" in self.flaws else _say(s, n, decision)
                    yield f"person on {n}", decision, stored._replace(place=place or s.place)

    def at_rest(self, s: S) -> bool:
        return s.place[0] in _TERMINAL or (s.place[0] == "paused" and "?" in s.questions)

    def broken_by(self, s: S, step: Step, n: S) -> str | None:
        for before, after in zip(s.questions, n.questions, strict=True):
            if before not in OPEN and after != before:
                return "a stored decision changed"
        if step[0].startswith("person on") and n.questions[int(step[0][-1])] in OPEN:
            return "a decision was acknowledged and not stored"
        if s.place[0] in _TERMINAL and n.place != s.place:
            return f"{s.place[0]} was final and became {n.place[0]}"
        if n.place[0] == "succeeded" and not all(q not in OPEN for q in n.questions):
            return "the run succeeded without an answer to each of its questions"
        if step[0].startswith("host"):
            believes = s.hosts[int(step[0][-1])][0]
            if believes and believes < s.place[1] and (s.place, s.questions) != (n.place, n.questions):
                return "a superseded host changed the run"
        return None


def _decided(s: S) -> int:
    return sum(q not in OPEN for q in s.questions)


def _host(s: S, i: int, host: tuple[int, int]) -> S:
    return s._replace(hosts=(host, s.hosts[1]) if i == 0 else (s.hosts[0], host))


def _say(s: S, n: int, decision: str) -> S:
    return s._replace(questions=(decision, s.questions[1]) if n == 0 else (s.questions[0], decision))
