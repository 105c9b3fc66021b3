"""What the model of a code run remembers, and the small changes that its steps are made of."""

from typing import NamedTuple

from runs.domain.states import TERMINAL
from tests.model.table import Place

Host = tuple[str, int]
"""What a host is about to do (pc), and the epoch it believes in."""
Call = tuple[str, int]
"""A ledger row: its state, and the epoch that reserved it. Answered rows carry who answered instead."""

IDLE: Host = ("", 0)
NO_CALL: Call = ("", 0)
OPEN = ("reserved", "unknown")
ANSWERED = ("settled", "happened")
READ, CHARGE, GATED, END = range(4)
FINAL = frozenset(state.value for state in TERMINAL)


class S(NamedTuple):
    place: Place
    cancel: bool
    checkpoint: int
    pause: str
    """"" none, "?" open, "accept" or "decline" as stored."""
    ledger: tuple[Call, Call]
    landed: tuple[int, int]
    """Per call what the key-blind sink received, less what an operator authorised again."""
    hosts: tuple[Host, Host]
    reaper: tuple[str, int] | None
    """What the reaper has judged and not yet written, and the epoch it judged."""
    faults: int
    scope_ends: int
    resolves: int


def at_line(line: int) -> str:
    return f"at{line}"


def may_leave(pc: str) -> bool:
    return pc == "claimed" or pc.startswith("at")


def with_host(s: S, i: int, pc: str, epoch: int) -> S:
    host = (pc, epoch)
    return s._replace(hosts=(host, s.hosts[1]) if i == 0 else (s.hosts[0], host))


def tidy(s: S) -> S:
    """Two hosts are alike: one order of them stands for both."""
    return s if s.hosts[0] <= s.hosts[1] else s._replace(hosts=(s.hosts[1], s.hosts[0]))


def with_call(s: S, line: int, state: str, epoch: int) -> S:
    row = (state, epoch)
    return s._replace(ledger=(row, s.ledger[1]) if line == CHARGE else (s.ledger[0], row))


def landed_once(s: S, line: int) -> S:
    a, b = s.landed
    return s._replace(landed=(min(a + 1, 2), b) if line == CHARGE else (a, min(b + 1, 2)))


def authorised_again(s: S, line: int) -> S:
    """A named person says that it did not happen: the call may be made once more, whatever the sink has."""
    a, b = s.landed
    cleared = with_call(s, line, "", 0)
    return cleared._replace(landed=(0, b) if line == CHARGE else (a, 0))


def all_unknown(s: S) -> S:
    """Doubt writes down, in its own commit, that a call found reserved is unknown."""
    first, second = (("unknown", e) if state == "reserved" else (state, e) for state, e in s.ledger)
    return s._replace(ledger=(first, second))
