"""A code run: two hosts, a reaper, a person who decides, a canceller, an operator; any of them may be late or dead.

The program reads, makes a call, makes a call that a person must approve, and ends. What the model itself supplies
is physics and the store's row rules (unique key, settle once, decide once); all else is asked of `table.Rules`.
Time is abstract: a host is on time or has slept past its lease, and an operator's answer takes longer than a lease.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from runs.domain import guards
from runs.domain.effects import EffectClass
from runs.domain.limits import LEASE_S, SEND_WITHIN_S
from runs.domain.states import RunKind
from tests.model.code_promises import CodePromises
from tests.model.code_state import (
    ANSWERED,
    CHARGE,
    END,
    FINAL,
    GATED,
    IDLE,
    NO_CALL,
    OPEN,
    READ,
    Call,
    S,
    all_unknown,
    at_line,
    authorised_again,
    landed_once,
    may_leave,
    tidy,
    with_call,
    with_host,
)
from tests.model.explore import Step
from tests.model.table import Calls, Place, Rules


@dataclass
class CodeRun(CodePromises):
    effect: EffectClass = EffectClass.EFFECT
    inline: bool = True
    """Submitted straight to running on a web host; otherwise queued, claimed and gated by a worker."""
    faults: int = 2
    scope_ends: int = 1
    resolves: int = 1
    before_gate: int = 2
    after_crash: int = 4
    flaws: frozenset[str] = frozenset()
    """Row rules of the store that a mutant switches off."""
    rules: Rules = field(init=False)

    def __post_init__(self) -> None:
        self.rules = Rules(RunKind.CODE, before_gate=self.before_gate, after_crash=self.after_crash)
        self._calls: dict[tuple[Call, Call], Calls] = {}
        self._send_on_time = guards.may_send(reserved_for_s=0.0, send_within_s=SEND_WITHIN_S)
        self._send_late = guards.may_send(reserved_for_s=LEASE_S, send_within_s=SEND_WITHIN_S)

    def initial(self) -> list[S]:
        place, hosts = ("queued", 0), (IDLE, IDLE)
        if self.inline:
            place, hosts = ("running", 1), (IDLE, (at_line(READ), 1))
        none = (NO_CALL, NO_CALL)
        return [S(place, False, READ, "", none, (0, 0), hosts, None, self.faults, self.scope_ends, self.resolves)]

    # -- steps -------------------------------------------------------------------------------------------

    def steps(self, s: S) -> Iterator[tuple[Step, S]]:
        for i, host in enumerate(s.hosts):
            who = f"host {i}"
            moves = self._idle(s, i) if host == IDLE else self._host(s, i)
            for what, after in moves:
                yield (who, f"{what} (epoch {host[1]})"), tidy(after)
            if host != IDLE:
                yield from self._faults(s, i)
        for who, what, after in (*self._reaper(s), *self._people(s)):
            yield (who, what), tidy(after)

    def _move(self, s: S, event: str, actor: str, believes: int, target: str = "") -> Place | None:
        return self.rules.move(event, actor, s.place, s.cancel, self._ledger(s), believes, target)

    def _ledger(self, s: S) -> Calls:
        calls = self._calls.get(s.ledger)
        if calls is None:
            calls = self._calls[s.ledger] = tuple(
                (state if state in OPEN else "settled", self.effect.value) for state, _ in s.ledger if state
            )
        return calls

    def _idle(self, s: S, i: int) -> Iterator[tuple[str, S]]:
        if claimed := self._move(s, "claim", "worker", 0):
            yield "claim", with_host(s, i, "claimed", claimed[1])._replace(place=claimed)
        if resumed := self._move(s, "resume", "worker", 0):
            yield "resume", with_host(s, i, at_line(s.checkpoint), resumed[1])._replace(place=resumed)
        for decision in ("accept", "decline"):
            decided = self._decide(s, decision, "person")
            if decided is not None and (resumed := self._move(decided, "resume", "edge", 0)):
                after = with_host(decided, i, at_line(s.checkpoint), resumed[1])._replace(place=resumed)
                yield f"decide {decision} and resume in one commit", after

    def _host(self, s: S, i: int) -> Iterator[tuple[str, S]]:
        pc, epoch = s.hosts[i]
        idle = with_host(s, i, "", 0)
        if pc == "claimed":
            yield from self._claimed(s, i, epoch)
        elif pc == "doubting":
            place = self._move(s, "doubt", "engine", epoch)
            yield "doubt", all_unknown(idle)._replace(place=place) if place else idle
        else:
            in_flight = not pc.startswith("at")
            yield from self._call_in_flight(s, i, pc, epoch) if in_flight else self._program(s, i, pc, epoch)
            yield from self._ends(s, i, pc, epoch)
        if (s.place[1] != epoch or s.place[0] not in ("claimed", "running")) and may_leave(pc):
            yield "see that it is superseded", idle

    def _claimed(self, s: S, i: int, epoch: int) -> Iterator[tuple[str, S]]:
        idle = with_host(s, i, "", 0)
        if place := self._move(s, "gate", "worker", epoch):
            yield "gate", with_host(s, i, at_line(READ), epoch)._replace(place=place)
        else:
            yield "lose the gate", idle
        if s.scope_ends and (place := self._move(s, "release", "worker", epoch)):
            yield "release on shutdown", idle._replace(place=place, scope_ends=s.scope_ends - 1)
        if place := self._move(s, "refuse", "worker", epoch):
            yield "refuse by policy", idle._replace(place=place)

    def _program(self, s: S, i: int, pc: str, epoch: int) -> Iterator[tuple[str, S]]:
        line = int(pc[2:])
        if line == READ:
            yield "read", with_host(s, i, at_line(CHARGE), epoch)
        elif line == END:
            if place := self._move(s, "succeed", "engine", epoch):
                yield "succeed", with_host(s, i, "", 0)._replace(place=place)
        elif line == GATED and s.pause in ("", "?") and "no_question" not in self.flaws:
            if place := self._move(s, "pause", "engine", epoch):
                asked = s._replace(place=place, pause="?", checkpoint=GATED)
                yield "pause and ask a person", with_host(asked, i, "", 0)
        elif line == GATED and s.pause == "decline":
            yield "see PermissionError", with_host(s, i, at_line(END), epoch)
        else:
            yield from self._reserve(s, i, line, epoch)

    def _reserve(self, s: S, i: int, line: int, epoch: int) -> Iterator[tuple[str, S]]:
        found = s.ledger[line - 1][0]
        if found in ANSWERED and "ledger_not_read" not in self.flaws:
            yield "use the stored answer", with_host(s, i, at_line(line + 1), epoch)
        elif found in OPEN and (s.cancel or self.rules.unknown(found, self.effect.value)):
            yield "find a call that must not be sent again", with_host(s, i, "doubting", epoch)
        elif "reserve_after_send" in self.flaws and not found:
            yield f"send {line} without a reserve", landed_once(with_host(s, i, f"ans{line}", epoch), line)
        elif self.rules.may_reserve(s.place, s.cancel, epoch):
            reserved = with_call(s, line, "reserved", epoch)._replace(checkpoint=line)
            if "judgement_outlives_reserve" not in self.flaws:
                reserved = reserved._replace(reaper=None)  # the reserve renews the lease, the write reads it again
            yield f"reserve {line}", with_host(reserved, i, f"res{line}", epoch)

    def _call_in_flight(self, s: S, i: int, pc: str, epoch: int) -> Iterator[tuple[str, S]]:
        stage, line = pc[:3], int(pc[3:])
        row = s.ledger[line - 1]
        settled = s
        own = row[1] == epoch or "settle_of_any_epoch" in self.flaws
        if (row[0] in OPEN and own) or "settle_anything" in self.flaws:
            settled = with_call(s, line, "settled", 0)
        if "reserve_after_send" in self.flaws and row == NO_CALL:
            settled = with_call(s, line, "settled", 0)
        if stage == "ans":
            yield f"settle {line}", with_host(settled, i, at_line(line + 1), epoch)
            if self.effect is EffectClass.EFFECT:
                unknown = with_call(s, line, "unknown", epoch) if row == ("reserved", epoch) else s
                yield f"lose the answer of {line}", with_host(unknown, i, "doubting", epoch)
        elif self._send_on_time if stage == "res" else self._send_late:
            yield f"send {line}", landed_once(with_host(s, i, f"ans{line}", epoch), line)
        else:
            yield f"settle {line} as not sent", with_host(settled, i, at_line(line + 1), epoch)

    def _ends(self, s: S, i: int, pc: str, epoch: int) -> Iterator[tuple[str, S]]:
        """What ends a program at any point. A call in flight is the broker's and goes on without it."""
        in_flight = not pc.startswith("at")
        after = s if in_flight else with_host(s, i, "", 0)
        if s.cancel and (place := self._move(s, "cancel_confirmed", "engine", epoch)):
            yield "kill the sandbox and confirm the cancel", after._replace(place=place)
        if place := self._move(s, "fail", "engine", epoch):
            yield "fail", after._replace(place=place)
        if s.scope_ends and (place := self._move(s, "suspend", "engine", epoch)):
            checkpoint = s.checkpoint if in_flight else int(pc[2:])
            unwound = after if "shutdown_does_not_wait" in self.flaws else with_host(s, i, "", 0)
            handed_on = unwound._replace(place=place, checkpoint=checkpoint, scope_ends=s.scope_ends - 1)
            yield "unwind and hand on when the scope ends", handed_on
        if in_flight:  # a program that does not await its call, or asks a person beside it
            if place := self._move(s, "succeed", "engine", epoch):
                yield "succeed beside a call", after._replace(place=place)
            if s.pause == "" and (place := self._move(s, "pause", "engine", epoch)):
                yield "pause beside a call", after._replace(place=place, pause="?")

    def _faults(self, s: S, i: int) -> Iterator[tuple[Step, S]]:
        if not s.faults:
            return
        pc, epoch = s.hosts[i]
        yield ("fault", f"kill -9 host {i}"), tidy(with_host(s, i, "", 0)._replace(faults=s.faults - 1))
        if pc.startswith("res"):
            # A reserve renews the lease, so whoever holds one and looks dead has slept past SEND_WITHIN_S.
            stopped = with_host(s, i, "slp" + pc[3:], epoch)
            yield ("fault", f"SIGSTOP host {i} past its lease"), tidy(stopped._replace(faults=s.faults - 1))

    def _reaper(self, s: S) -> Iterator[tuple[str, str, S]]:
        if s.reaper is not None:
            event, judged = s.reaper
            place = self._move(s, event, "reaper", judged)
            if place is None:
                yield "reaper", f"write {event}: no row", s._replace(reaper=None)
            else:
                written = all_unknown(s) if event == "doubt" else s
                yield "reaper", f"write {event}", written._replace(place=place, reaper=None)
        elif s.place[0] in ("claimed", "running"):
            holder = next((pc for pc, epoch in s.hosts if epoch == s.place[1] and pc), None)
            judged = s._replace(reaper=(self.rules.verdict(s.place, s.cancel, self._ledger(s)), s.place[1]))
            if holder is None or holder.startswith("slp"):
                yield "reaper", "judge", judged
            elif s.faults and (not holder.startswith("res") or "reserve_keeps_an_old_lease" in self.flaws):
                yield "fault", "a live lease looks expired", judged._replace(faults=s.faults - 1)

    def _people(self, s: S) -> Iterator[tuple[str, str, S]]:
        final = s.place[0] in FINAL
        if not s.cancel and not final:
            yield "canceller", "ask to stop", s._replace(cancel=True)
        if s.cancel and (place := self._move(s, "cancel", "reaper", s.place[1])):
            yield "sweep", "cancel what nothing works on", s._replace(place=place)
        elif s.cancel and s.place[0] == "suspended" and (place := self._move(s, "doubt", "reaper", s.place[1])):
            yield "sweep", "doubt what cannot be cancelled", all_unknown(s)._replace(place=place)
        for decision in ("accept", "decline"):
            decided = self._decide(s, decision, "person")
            if decided is not None:
                yield "person", f"decide {decision}", decided
        if expired := self._decide(s, "decline", "reaper"):
            yield "sweep (its hour is not ours)", "expire the question", expired
        if s.place[0] == "unconfirmed" and s.resolves:
            yield from self._operator(s)

    def _decide(self, s: S, decision: str, actor: str) -> S | None:
        """One UPDATE: the decision where none is stored, and the run's move where it is paused."""
        if s.pause == "" or s.place[0] in FINAL:
            return None
        if s.pause != "?" and "decide_twice" not in self.flaws:
            return None
        place = self._move(s, "decide", actor, s.place[1])
        if "decision_not_stored" in self.flaws:
            return s._replace(place=place or s.place)
        return s._replace(pause=decision, place=place or s.place)

    def _operator(self, s: S) -> Iterator[tuple[str, str, S]]:
        """Every unknown call answered, or none; then each ending that the table grants."""
        # Whoever was about to send has slept past SEND_WITHIN_S when a person has looked into it.
        late = tuple((f"slp{pc[3:]}", epoch) if pc.startswith("res") else (pc, epoch) for pc, epoch in s.hosts)
        base = s._replace(hosts=late, resolves=s.resolves - 1)
        answers = [("answers nothing", base)]
        lines = [n for n in (CHARGE, GATED) if s.ledger[n - 1][0] in OPEN]
        for line in lines:
            happened = [(f"{what}, {line} happened", with_call(n, line, "happened", 0)) for what, n in answers]
            not_happened = [(f"{what}, {line} did not happen", authorised_again(n, line)) for what, n in answers]
            answers = happened + not_happened
        if lines:
            answers.append(("answers nothing", base))
        for what, answered in answers:
            for place in self.rules.endings(s.place, s.cancel, self._ledger(answered)):
                yield "operator", f"{what}: {place[0]}", answered._replace(place=place)
