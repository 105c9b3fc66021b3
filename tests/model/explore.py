"""Breadth-first search over every order of a model's atomic steps; the first broken promise comes with its trace.

A step is one committed transaction or one external call. Nothing here knows what a run is.
"""

import gc
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

State: TypeAlias = Any
"""A NamedTuple of the model's own."""
Step: TypeAlias = tuple[str, str]
"""Who did it, and what: `("host 0", "reserve the charge")`."""


class Model(Protocol):
    machine: frozenset[str]
    """Who acts by himself: liveness counts on these steps alone, never on a fault or on a person."""

    def initial(self) -> list[State]: ...
    def steps(self, state: State) -> Iterator[tuple[Step, State]]: ...
    def broken_by(self, before: State, step: Step, after: State) -> str | None:
        """The promise that this step breaks, if any."""

    def at_rest(self, state: State) -> bool:
        """Whether the machine may stop here: final, or it is a person's turn."""


@dataclass(frozen=True, slots=True)
class Report:
    states: int
    edges: int
    broken: str | None = None
    trace: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.broken is None:
            return f"holds in {self.states} states, {self.edges} steps"
        return f"{self.broken} ({self.states} states looked at)\n  " + "\n  ".join(self.trace)


def explore(model: Model) -> Report:
    """Visit every reachable state; then check that from each the machine alone can come to rest."""
    collecting = gc.isenabled()
    gc.disable()  # only tuples that live until the end: the collector would walk them all again and again
    try:
        return _search(model)
    finally:
        if collecting:
            gc.enable()


def _search(model: Model) -> Report:
    parents: dict[State, tuple[Step, State] | None] = dict.fromkeys(model.initial())
    queue = deque(parents)
    came_from: dict[State, list[State]] = {}
    edges = 0
    while queue:
        state = queue.popleft()
        for step, after in model.steps(state):
            edges += 1
            if after not in parents:
                parents[after] = (step, state)
                queue.append(after)
            broken = model.broken_by(state, step, after)
            if broken is not None:
                return Report(len(parents), edges, broken, (*_trace(parents, state), _line(step, state, after)))
            if step[0] in model.machine and after != state:
                came_from.setdefault(after, []).append(state)
    stuck = _first_stuck(model, parents, came_from)
    if stuck is not None:
        return Report(
            len(parents),
            edges,
            "the machine can never come to rest",
            (*_trace(parents, stuck), f"stays with {_fields(stuck)}"),
        )
    return Report(len(parents), edges)


def _first_stuck(
    model: Model,
    parents: dict[State, tuple[Step, State] | None],
    came_from: dict[State, list[State]],
) -> State | None:
    live = {state for state in parents if model.at_rest(state)}
    pending = list(live)
    while pending:
        for before in came_from.get(pending.pop(), ()):
            if before not in live:
                live.add(before)
                pending.append(before)
    return next((state for state in parents if state not in live), None)


def _trace(parents: dict[State, tuple[Step, State] | None], state: State) -> list[str]:
    lines: list[str] = []
    while (parent := parents[state]) is not None:
        step, before = parent
        lines.append(_line(step, before, state))
        state = before
    return [f"begins with {_fields(state)}", *reversed(lines)]


def _line(step: Step, before: State, after: State) -> str:
    old, new = _fields(before), _fields(after)
    changes = ", ".join(f"{name} {new[name]}" for name in new if new[name] != old[name])
    return f"{step[0]}: {step[1]}  →  {changes}"


def _fields(state: State) -> dict[str, object]:
    return state._asdict()
