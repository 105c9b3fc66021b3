"""What every order of steps of a code run must keep, whatever dies: checked on each step, before and after."""

from runs.domain.effects import EffectClass
from tests.model.code_state import ANSWERED, FINAL, IDLE, OPEN, S
from tests.model.explore import Step

MACHINE = frozenset({"host 0", "host 1", "reaper", "sweep"})


class CodePromises:
    effect: EffectClass
    machine = MACHINE

    def at_rest(self, s: S) -> bool:
        return s.place[0] in FINAL or (s.place[0] == "paused" and s.pause == "?")

    def broken_by(self, s: S, step: Step, n: S) -> str | None:
        who, what = step
        broken = self._broken_effects(s, what, n) or self._broken_rest(s, who, n)
        if broken is None and n.place != s.place:
            broken = self._broken_move(s, who, n)
        if broken is None and who.startswith("host") and s.hosts[int(who[-1])] != IDLE:
            broken = self._broken_fence(s, s.hosts[int(who[-1])][1], n)
        return broken

    def _broken_effects(self, s: S, what: str, n: S) -> str | None:
        if n.landed == s.landed and not what.startswith("send"):
            return None
        if self.effect is EffectClass.EFFECT and max(n.landed) > 1:
            return "an effect reached the sink twice, and nobody had said that it did not happen"
        if s.place[0] == "cancelled" and what.startswith("send"):
            return "an effect reached the sink after the cancel was reported"
        if n.landed[1] > s.landed[1] and s.pause != "accept":
            return "a gated call reached the sink without a person's yes"
        return None

    def _broken_rest(self, s: S, who: str, n: S) -> str | None:
        state = n.place[0]
        for before, after in zip(s.ledger, n.ledger, strict=True):
            if before[0] in ANSWERED and after != before:
                return "an answer in the ledger was lost"
            if after[0] == "reserved" and before[0] != "reserved" and s.cancel:
                return "a call was reserved after a cancel was asked"
            left_open = after[0] in OPEN and state in FINAL and state != "unconfirmed"
            is_new = s.place != n.place or after != before
            # An operator may close a run whose call stays unknown; nobody may while one is reserved.
            if left_open and is_new and (after[0] == "reserved" or who != "operator"):
                return f"the run is {state} while a call is {after[0]}"
            if after[0] == "unknown" and state not in ("running", "unconfirmed", *FINAL):
                return f"a call is unknown and in nobody's hands: the run is {state}"
            if after[0] == "reserved" and self.effect is EffectClass.EFFECT and state not in ("running", "unconfirmed"):
                return f"a call that must not be repeated is reserved while the run is {state}"
        if s.pause not in ("", "?") and n.pause != s.pause:
            return "a stored decision changed"
        if who == "person" and n.pause == "?":
            return "a decision was acknowledged and not stored"
        if state in ("claimed", "running") and sum(h[1] == n.place[1] for h in n.hosts if h != IDLE) > 1:
            return "two hosts hold the run in one epoch"
        return None

    def _broken_move(self, s: S, who: str, n: S) -> str | None:
        before, after = s.place[0], n.place[0]
        if before in FINAL and after != before and not (before == "unconfirmed" and who == "operator"):
            return f"{before} was final and became {after}"
        begins = after in ("claimed", "paused", "suspended") or (before, after) == ("claimed", "running")
        if s.cancel and who in self.machine and begins:
            return f"work began or was handed on after a cancel was asked: {before} to {after}"
        if after == "succeeded" and who != "operator":
            declined = n.pause == "decline"
            if n.ledger[0][0] not in ANSWERED or not (declined or n.ledger[1][0] in ANSWERED):
                return "the run succeeded without an answer to each of its calls"
        return None

    def _broken_fence(self, s: S, believes: int, n: S) -> str | None:
        if believes == s.place[1]:
            return None
        if (s.place, s.checkpoint, s.pause, s.cancel) != (n.place, n.checkpoint, n.pause, n.cancel):
            return "a superseded host changed the run"
        for before, after in zip(s.ledger, n.ledger, strict=True):
            if after != before and (before[1] != believes or after[0] not in ("settled", "unknown")):
                return "a superseded host changed a call that is not its own"
        return None
