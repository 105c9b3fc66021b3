"""A worker run, which is opaque: two workers, a reaper that kills before it judges, a canceller, a sweep, sandboxes.

A sandbox, once told to go, acts on its own whatever becomes of its worker. It is named `run:epoch` before it
exists, so that a sweep can tell an orphan by its name. A kill either is proof (the sandbox can do nothing more)
or, as a fault, proves nothing. Every change of the run's state is asked of `table.Rules`.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from runs.domain.states import TERMINAL, RunKind
from tests.model.explore import Step
from tests.model.table import Place, Rules

Worker = tuple[str, int]
"""What it is about to do, and the epoch it believes in."""
IDLE: Worker = ("", 0)
NONE, CREATED, ACTING, DONE, DEAD = "none", "created", "acting", "done", "dead"
ALIVE = (CREATED, ACTING, DONE)
EPOCHS = 5
_TERMINAL = frozenset(state.value for state in TERMINAL)


class S(NamedTuple):
    place: Place
    cancel: bool
    boxes: tuple[str, ...]
    """Per epoch, the sandbox of that name."""
    commands: int
    """How often the command took effect, counted where it does."""
    workers: tuple[Worker, Worker]
    reaper: tuple[str, int] | None
    faults: int
    stops: int
    """Graceful stops of a worker that may still come."""
    resolves: int


@dataclass
class WorkerRun:
    faults: int = 2
    stops: int = 1
    resolves: int = 1
    before_gate: int = 3
    flaws: frozenset[str] = frozenset()
    machine = frozenset({"worker 0", "worker 1", "reaper", "sweep", "sandbox"})
    rules: Rules = field(init=False)

    def __post_init__(self) -> None:
        self.rules = Rules(RunKind.WORKER, before_gate=self.before_gate, after_crash=3)

    def initial(self) -> list[S]:
        boxes = (NONE,) * EPOCHS
        return [S(("queued", 0), False, boxes, 0, (IDLE, IDLE), None, self.faults, self.stops, self.resolves)]

    # -- steps -------------------------------------------------------------------------------------------

    def steps(self, s: S) -> Iterator[tuple[Step, S]]:
        for i, worker in enumerate(s.workers):
            moves = self._idle(s, i) if worker == IDLE else self._works(s, i)
            for what, after in moves:
                yield (f"worker {i}", f"{what} (epoch {worker[1]})"), _tidy(after)
            if worker != IDLE and s.faults:
                yield ("fault", f"kill -9 worker {i}"), _tidy(_to(s, i, "")._replace(faults=s.faults - 1))
        for epoch, box in enumerate(s.boxes, 1):
            if box == ACTING:
                yield ("sandbox", f"{epoch} acts"), _box(s, epoch, DONE)._replace(commands=s.commands + 1)
        for who, what, after in (*self._reaper(s), *self._sweep(s), *self._people(s)):
            yield (who, what), after

    def _move(self, s: S, event: str, actor: str, believes: int) -> Place | None:
        return self.rules.move(event, actor, s.place, s.cancel, (), believes)

    def _idle(self, s: S, i: int) -> Iterator[tuple[str, S]]:
        if s.place[1] == EPOCHS:
            return
        if place := self._move(s, "claim", "worker", 0):
            yield "claim", _to(s, i, "claimed", place[1])._replace(place=place)
        if place := self._move(s, "resume", "worker", 0):
            yield "resume", _to(s, i, "resumed", place[1])._replace(place=place)

    def _works(self, s: S, i: int) -> Iterator[tuple[str, S]]:
        pc, epoch = s.workers[i]
        if pc in ("claimed", "resumed"):
            created = s if s.boxes[epoch - 1] == DEAD else _box(s, epoch, CREATED)
            yield "create the sandbox", _to(created, i, "gated" if pc == "resumed" else "created", epoch)
        elif pc == "created":
            yield from self._gate(s, i, epoch)
        elif pc == "gated":
            told = _box(s, epoch, ACTING) if s.boxes[epoch - 1] == CREATED else s
            yield "tell it to go", _to(told, i, "spawned", epoch)
        elif pc == "told before the gate":
            place = self._move(s, "gate", "worker", epoch)
            yield "gate afterwards", _to(s, i, "spawned", epoch)._replace(place=place or s.place)
        elif pc == "spawned":
            yield from self._watch(s, i, epoch)
        if s.stops and pc in ("claimed", "created") and (place := self._move(s, "release", "worker", epoch)):
            yield "stop: release", _to(_kill(s, epoch), i, "")._replace(place=place, stops=s.stops - 1)
        if pc in ("claimed", "created") and (place := self._move(s, "refuse", "worker", epoch)):
            yield "refuse by policy", _to(_kill(s, epoch), i, "")._replace(place=place)

    def _gate(self, s: S, i: int, epoch: int) -> Iterator[tuple[str, S]]:
        if "tell_before_gate" in self.flaws:
            told = _box(s, epoch, ACTING) if s.boxes[epoch - 1] == CREATED else s
            yield "tell it to go before the gate", _to(told, i, "told before the gate", epoch)
        elif place := self._move(s, "gate", "worker", epoch):
            yield "gate", _to(s, i, "gated", epoch)._replace(place=place)
        elif "gate_not_asked" in self.flaws:
            yield "go on without the gate", _to(s, i, "gated", epoch)
        else:
            yield "lose the gate and kill", _to(_kill(s, epoch), i, "")

    def _watch(self, s: S, i: int, epoch: int) -> Iterator[tuple[str, S]]:
        """What a worker does beside a command: sees its end, is asked to stop, sees a time-out, is shut down."""
        box = s.boxes[epoch - 1]
        gone = _to(_kill(s, epoch), i, "")
        if box == DONE and (place := self._move(s, "succeed", "worker", epoch)):
            yield "see it end, clean up, succeed", gone._replace(place=place)
        if box == DEAD:
            place = self._move(s, "doubt", "engine", epoch)
            yield "see it dead", _to(s, i, "")._replace(place=place or s.place)
        if place := self._move(s, "fail", "worker", epoch):
            yield "time out with a confirmed kill", gone._replace(place=place)
        if s.cancel and (place := self._move(s, "cancel_confirmed", "engine", epoch)):
            stopped = _to(s, i, "") if "cancel_without_kill" in self.flaws else gone
            yield "kill, confirmed, and cancel", stopped._replace(place=place)
        if s.stops:
            for event, what in (("suspend", "stop: hand on"), ("pause", "ask a person")):
                if place := self._move(s, event, "engine", epoch):
                    yield what, gone._replace(place=place, stops=s.stops - 1)
            if place := self._move(s, "doubt", "engine", epoch):
                unproven = _to(s, i, "")._replace(place=place, stops=s.stops - 1)
                yield "stop: the kill proves nothing, doubt", unproven
        if s.place != ("running", epoch):
            yield "see that it is superseded and kill", gone

    def _reaper(self, s: S) -> Iterator[tuple[str, str, S]]:
        if s.reaper is not None:
            event, judged = s.reaper
            place = self._move(s, event, "reaper", judged)
            yield "reaper", f"write {event}", s._replace(place=place or s.place, reaper=None)
        elif s.place[0] in ("claimed", "running"):
            epoch = s.place[1]
            dead = not any(e == epoch for _, e in s.workers)
            if not dead and not s.faults:
                return
            who, less = ("reaper", 0) if dead else ("fault", 1)
            judgement = (self.rules.verdict(s.place, s.cancel, ()), epoch)
            judged = s._replace(reaper=judgement, faults=s.faults - less)
            yield who, "judge the holder dead; the kill is proof", _kill(judged, epoch)
            if judged.faults and s.boxes[epoch - 1] in ALIVE:
                unproven = judged._replace(faults=judged.faults - 1)
                yield who, "judge the holder dead; the kill proves nothing", unproven

    def _sweep(self, s: S) -> Iterator[tuple[str, str, S]]:
        for epoch, box in enumerate(s.boxes, 1):
            in_use = s.place[0] in ("claimed", "running") and s.place[1] == epoch
            if box in ALIVE and not in_use and "no_sweep" not in self.flaws:
                yield "sweep", f"kill the orphan {epoch}", _kill(s, epoch)
        if s.cancel and (place := self._move(s, "cancel", "reaper", s.place[1])):
            yield "sweep", "cancel what nothing works on", s._replace(place=place)

    def _people(self, s: S) -> Iterator[tuple[str, str, S]]:
        if not s.cancel and s.place[0] not in _TERMINAL:
            yield "canceller", "ask to stop", s._replace(cancel=True)
        if place := self._move(s, "decide", "person", s.place[1]):
            yield "person", "decide", s._replace(place=place)
        if s.place[0] == "unconfirmed" and s.resolves:
            for place in self.rules.endings(s.place, s.cancel, ()):
                yield "operator", f"resolve: {place[0]}", s._replace(place=place, resolves=s.resolves - 1)

    # -- promises ----------------------------------------------------------------------------------------

    def at_rest(self, s: S) -> bool:
        """Final, and no sandbox is left: a person may be waited for, a sandbox may not."""
        return s.place[0] in _TERMINAL and not any(box in ALIVE for box in s.boxes)

    def broken_by(self, s: S, step: Step, n: S) -> str | None:
        who = step[0]
        before, after = s.place[0], n.place[0]
        if n.commands > 1:
            return "the command took effect twice"
        reported = after in ("cancelled", "failed", "succeeded")
        by_operator = s.resolves < self.resolves  # who had been told that it may still be alive
        if n.commands > s.commands and reported and not by_operator:
            return f"the command took effect after the run was reported {after}"
        if before in _TERMINAL and after != before and not (before == "unconfirmed" and who == "operator"):
            return f"{before} was final and became {after}"
        begins = after in ("claimed", "paused", "suspended") or (before, after) == ("claimed", "running")
        if s.cancel and who in self.machine and after != before and begins:
            return f"work began or was handed on after a cancel was asked: {before} to {after}"
        if reported and after != before and who != "operator" and ACTING in n.boxes:
            return f"the run is reported {after} while its command is at work"
        if who.startswith("worker"):
            believes = s.workers[int(who[-1])][1]
            if believes and believes < s.place[1] and s.place != n.place:
                return "a superseded worker changed the run"
        if after in ("claimed", "running") and sum(w[1] == n.place[1] for w in n.workers) > 1:
            return "two workers hold the run in one epoch"
        return None


def _to(s: S, i: int, pc: str, epoch: int = 0) -> S:
    worker = (pc, epoch) if pc else IDLE
    return s._replace(workers=(worker, s.workers[1]) if i == 0 else (s.workers[0], worker))


def _tidy(s: S) -> S:
    """Two workers are alike: one order of them stands for both."""
    return s if s.workers[0] <= s.workers[1] else s._replace(workers=(s.workers[1], s.workers[0]))


def _box(s: S, epoch: int, box: str) -> S:
    return s._replace(boxes=(*s.boxes[: epoch - 1], box, *s.boxes[epoch:]))


def _kill(s: S, epoch: int) -> S:
    """By name, so it also finds a sandbox that nobody had registered; one that is not there stays not there."""
    return _box(s, epoch, DEAD) if s.boxes[epoch - 1] in ALIVE else s
