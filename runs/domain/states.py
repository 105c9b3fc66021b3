"""The run's states and the table of transitions: the one place that says which arrow exists, and its guards.

The SQL guards, the CHECK constraints, the trigger, the admin's buttons, the documentation's diagram and the
model checker's moves are derived from TRANSITIONS. Pure: no Django, no clock, no I/O.
Rule: spec/design.md, section 4.
"""

from dataclasses import dataclass
from enum import StrEnum


class RunKind(StrEnum):
    CODE = "code"
    """Python in Monty. Replayable: its state is a checkpoint, so any host may go on."""
    WORKER = "worker"
    """A command in a process sandbox. Opaque: once started, nothing ever starts it again."""


class RunState(StrEnum):
    QUEUED = "queued"
    """Waits for a worker. A crash changes nothing; the dispatcher or its sweep finds it."""
    CLAIMED = "claimed"
    """A worker holds it and nothing has started. A crash: the reaper releases it."""
    RUNNING = "running"
    """Its program works under a lease. A crash: the reaper suspends it (replayable, clean) or doubts it."""
    PAUSED = "paused"
    """A row waits for a person. Nothing holds it; a crash changes nothing."""
    SUSPENDED = "suspended"
    """Can go on from its checkpoint; nothing holds it. The dispatcher or its sweep finds it."""
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    UNCONFIRMED = "unconfirmed"
    """Liveness or an effect is unknown. Final for the machine, work for the operator."""


TERMINAL = frozenset({RunState.SUCCEEDED, RunState.FAILED, RunState.CANCELLED, RunState.UNCONFIRMED})
HELD = frozenset({RunState.CLAIMED, RunState.RUNNING})
"""States in which exactly one process holds the run, under a lease."""
NOT_STARTED = frozenset({RunState.QUEUED, RunState.CLAIMED})
CODED = frozenset({RunState.FAILED, RunState.UNCONFIRMED})
"""States that carry a code of the error registry."""


class RunEvent(StrEnum):
    SUBMIT = "submit"
    CLAIM = "claim"
    RELEASE = "release"
    GATE = "gate"
    PAUSE = "pause"
    SUSPEND = "suspend"
    DECIDE = "decide"
    RESUME = "resume"
    SUCCEED = "succeed"
    FAIL = "fail"
    REFUSE = "refuse"
    CANCEL = "cancel"
    CANCEL_CONFIRMED = "cancel_confirmed"
    DOUBT = "doubt"
    RESOLVE = "resolve"
    GO_ON = "go_on"


class Actor(StrEnum):
    EDGE = "edge"
    WORKER = "worker"
    ENGINE = "engine"
    REAPER = "reaper"
    PERSON = "person"
    OPERATOR = "operator"


@dataclass(frozen=True, slots=True)
class Transition:
    """One row of the table. The booleans are the guards that the SQL, the trigger and the model share."""

    event: RunEvent
    sources: frozenset[RunState | None]
    targets: frozenset[RunState]
    actors: frozenset[Actor]
    meaning: str
    own_epoch: bool = False
    """Only the holder of the current epoch may: a superseded attempt loses."""
    new_epoch: bool = False
    """Epoch + 1 and a new lease: whoever held the run before is fenced off."""
    no_cancel_asked: bool = False
    replayable_only: bool = False
    no_unknown_effect: bool = False
    """Refused while nobody can say whether some call happened (one that may be sent again does not count)."""
    calls_settled: bool = False
    """Refused while any call of the run is reserved or unknown."""


def _rows() -> tuple[Transition, ...]:
    s, e, a = RunState, RunEvent, Actor

    def row(
        event: RunEvent,
        sources: set[RunState | None],
        targets: set[RunState],
        actors: set[Actor],
        meaning: str,
        *guards: str,
    ) -> Transition:
        flags = dict.fromkeys(guards, True)
        return Transition(event, frozenset(sources), frozenset(targets), frozenset(actors), meaning, **flags)

    return (
        row(
            e.SUBMIT,
            {None},
            {s.QUEUED, s.RUNNING},
            {a.EDGE},
            "idempotency key new; a repeat gets the same run",
        ),
        row(
            e.CLAIM,
            {s.QUEUED},
            {s.CLAIMED},
            {a.WORKER},
            "one worker takes it, under a lease",
            "new_epoch",
            "no_cancel_asked",
        ),
        row(
            e.RELEASE,
            {s.CLAIMED},
            {s.QUEUED},
            {a.REAPER, a.WORKER},
            "nothing has started: the only way back",
            "own_epoch",
        ),
        row(
            e.GATE,
            {s.CLAIMED},
            {s.RUNNING},
            {a.WORKER},
            "the point of no return: command_started_at is committed before the sandbox is told to go",
            "own_epoch",
            "no_cancel_asked",
        ),
        row(
            e.PAUSE,
            {s.RUNNING},
            {s.PAUSED},
            {a.ENGINE},
            "waits for a person; checkpoint and pause in one commit",
            "own_epoch",
            "no_cancel_asked",
            "replayable_only",
            "calls_settled",
        ),
        row(
            e.SUSPEND,
            {s.RUNNING},
            {s.SUSPENDED},
            {a.ENGINE, a.REAPER},
            "its scope ends or its host is lost; any host may go on from the checkpoint",
            "own_epoch",
            "no_cancel_asked",
            "replayable_only",
            "no_unknown_effect",
        ),
        row(e.DECIDE, {s.PAUSED}, {s.SUSPENDED}, {a.PERSON, a.REAPER}, "a question is decided, once"),
        row(
            e.RESUME,
            {s.SUSPENDED},
            {s.RUNNING},
            {a.EDGE, a.WORKER},
            "goes on from its checkpoint",
            "new_epoch",
        ),
        row(
            e.SUCCEED,
            {s.RUNNING},
            {s.SUCCEEDED},
            {a.ENGINE, a.WORKER},
            "every call settled",
            "own_epoch",
            "calls_settled",
        ),
        row(
            e.FAIL,
            {s.RUNNING},
            {s.FAILED},
            {a.ENGINE, a.WORKER, a.REAPER},
            "with a code; every call settled",
            "own_epoch",
            "calls_settled",
        ),
        row(
            e.REFUSE,
            {s.QUEUED, s.CLAIMED},
            {s.FAILED},
            {a.WORKER, a.REAPER},
            "attempts or policy exhausted; nothing has started",
            "own_epoch",
        ),
        row(
            e.CANCEL,
            {s.QUEUED, s.CLAIMED, s.PAUSED, s.SUSPENDED},
            {s.CANCELLED},
            {a.PERSON, a.REAPER},
            "nothing works on it",
            "calls_settled",
        ),
        row(
            e.CANCEL_CONFIRMED,
            {s.RUNNING},
            {s.CANCELLED},
            {a.ENGINE, a.REAPER},
            "only when the kill is confirmed and every call is settled; until then it is shown as stopping",
            "own_epoch",
            "calls_settled",
        ),
        row(
            e.DOUBT,
            {s.RUNNING, s.SUSPENDED},
            {s.UNCONFIRMED},
            {a.REAPER, a.ENGINE},
            "liveness or an effect is unknown",
            "own_epoch",
        ),
        row(
            e.RESOLVE,
            {s.UNCONFIRMED},
            {s.SUCCEEDED, s.FAILED},
            {a.OPERATOR},
            "a named operator decides, with a reason",
        ),
        row(
            e.GO_ON,
            {s.UNCONFIRMED},
            {s.SUSPENDED},
            {a.OPERATOR},
            "the operator has answered every unknown call",
            "replayable_only",
            "no_unknown_effect",
        ),
    )


TRANSITIONS: tuple[Transition, ...] = _rows()
BY_EVENT: dict[RunEvent, Transition] = {t.event: t for t in TRANSITIONS}


def arrows() -> frozenset[tuple[RunState, RunState]]:
    """Every pair (from, to) that the table lists, creation excluded."""
    return frozenset((s, t) for row in TRANSITIONS for s in row.sources if s is not None for t in row.targets)


def allowed(source: RunState | None, target: RunState) -> bool:
    """Whether some transition leads from `source` to `target` (None: the run is being created)."""
    return any(source in row.sources and target in row.targets for row in TRANSITIONS)
