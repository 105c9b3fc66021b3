"""Named points where a process may die, each placed once in code; the drills kill at every one of them.

`reach(name)` does nothing unless a drill armed that name through the environment, so it costs a set look-up.
Pure but for the kill itself, which is its purpose.
"""

import os
import signal

CRASH_POINTS: dict[str, str] = {
    "after_submit": "the run is committed, nothing of it has worked",
    "after_claim": "a worker holds it, the gate is not passed",
    "after_gate": "running, the program has not begun",
    "before_reserve": "the program asked for an effect, nothing is written",
    "after_reserve": "the effect is reserved and the checkpoint stored, nothing is sent",
    "after_send": "the answer has arrived, it is not settled",
    "after_settle": "the answer is settled, the program has not seen it",
    "before_pause": "the checkpoint is taken, not stored",
    "after_pause": "paused and committed, the caller is not answered",
    "after_decide": "the decision and the new epoch are committed, the program has not gone on",
    "before_finish": "the program has ended, its outcome is not stored",
    "after_finish": "the outcome is committed, the caller is not answered",
    "after_suspend": "handed on, nobody has been told",
    "in_reap": "the reaper has judged a run and not yet written it",
}

_ARMED_ENV = "EXECUTOR_CRASH_AT"
_armed = frozenset(filter(None, os.environ.get(_ARMED_ENV, "").split(",")))


def reach(name: str) -> None:
    """Kill this process and its group's sandboxes at once (SIGKILL), if a drill armed `name`."""
    if name in _armed:
        if name not in CRASH_POINTS:
            raise LookupError(f"unknown crash point {name!r}")
        os.kill(os.getpid(), signal.SIGKILL)
