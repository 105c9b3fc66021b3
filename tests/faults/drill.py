"""Killing the product at one named point of its code, starting it again, and looking at what the world saw.

A scenario drives a site to the point; the armed process dies there by SIGKILL. After the restart every run must be
final, paused or worked on within the recovery bound, and the checker must find no promise broken. A caller whose
request was cut repeats it with the same idempotency key or decision, as the contract allows, and must be answered.
"""

import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from uuid import uuid4

from runs.drivers.identity import started_ticks
from tests.support.checker import RECOVERY_S, assert_sound, restless
from tests.support.client import unless_cut
from tests.support.site import Site, eventually

FINAL = ("succeeded", "failed", "cancelled", "unconfirmed")


@dataclass(slots=True)
class Workload:
    """One repetition: its own refs and key, and how its callers come back after the restart."""

    site: Site
    ref: str = field(default_factory=lambda: uuid4().hex)
    key: str = field(default_factory=lambda: uuid4().hex)
    again: Callable[[], object] | None = None
    """What the caller repeats; it must be answered."""
    effects: tuple[int, ...] = (1,)
    """How often the world may have seen the effect in the end."""
    states: tuple[str, ...] = ("succeeded",)
    """How the run may end."""

    @property
    def charge(self) -> str:
        return f"import free\nfree.create_charge(amount=3, ref={self.ref!r})['charged']"

    @property
    def gated(self) -> str:
        return f"import shop\nshop.create_charge(amount=5, ref={self.ref!r})['charged']"


Scenario = Callable[[Workload, str], None]
"""Arms the point, drives the site to it, and returns when the process has died there."""


def _dies(site: Site, name: str = "web") -> None:
    assert site.wait_dead(name) == -signal.SIGKILL


def executes(work: Workload, point: str) -> None:
    """An inline run with one allowed effect."""
    site = work.site
    site.restart("web", crash_at=point)
    work.again = lambda: site.client().execute(work.charge, key=work.key)
    assert unless_cut(work.again) is None
    _dies(site)


def pauses(work: Workload, point: str) -> None:
    """An inline run that pauses; its person accepts afterwards."""
    site = work.site
    site.restart("web", crash_at=point)
    assert unless_cut(lambda: site.client().execute(work.gated, key=work.key)) is None
    _dies(site)

    def again() -> object:
        answer = site.client().execute(work.gated, key=work.key)
        if answer["status"] == "running":  # it is handed on, and pauses in a worker
            site.wait_state(answer["run_id"], "paused")
            answer = site.client().execute(work.gated, key=work.key)
        return site.client().resume(answer["execution"]["id"])

    work.again = again


def decides(work: Workload, point: str) -> None:
    """A pause is decided and its run goes on in the request."""
    site = work.site
    execution = site.client().execute(work.gated, key=work.key)["execution"]["id"]
    site.restart("web", crash_at=point)
    work.again = lambda: site.client().resume(execution)
    assert unless_cut(work.again) is None
    _dies(site)


def hands_on(work: Workload, point: str) -> None:
    """The caller does not wait for a slow read, so the run is handed to the workers."""
    site = work.site
    site.restart("web", crash_at=point)
    site.sink.fault(work.ref, "hold")
    answer = site.client().execute(f"import free\nfree.get_item(id={work.ref!r})['name']", wait_s=0.1)
    assert answer["status"] == "running"
    site.sink.release(work.ref)
    _dies(site)
    work.effects = tuple(range(1, 6))  # reads


def enqueues(work: Workload, point: str) -> None:
    """A background run is stored, and its web process dies before it says so."""
    site = work.site
    site.restart("web", crash_at=point)
    work.again = lambda: site.client().enqueue(work.charge, key=work.key)
    assert unless_cut(work.again) is None
    _dies(site)


def worker_runs(work: Workload, point: str) -> None:
    """A worker takes a background run and dies."""
    site = work.site
    site.restart("cluster", crash_at=point)
    work.again = lambda: site.client().enqueue(work.charge, key=work.key)
    run = site.client().enqueue(work.charge, key=work.key)["run_id"]
    eventually(lambda: _a_worker_died(site, run), what=f"a worker dies at {point}")
    site.kill9("cluster")
    # Its sentinel starts workers anew, which are armed too: more than one may have died before all were killed.
    work.states = ("succeeded", "failed") if point == "after_claim" else ("succeeded",)
    work.effects = (0, 1) if point == "after_claim" else (1,)


def worker_goes_on(work: Workload, point: str) -> None:
    """A decision whose run a worker is to take: the web process dies, and so does the worker that goes on."""
    site = work.site
    execution = site.client().execute(work.gated, key=work.key)["execution"]["id"]
    site.restart("web", crash_at="after_decide")
    work.again = lambda: site.client().resume(execution)
    assert unless_cut(work.again) is None
    _dies(site)
    site.restart("cluster", crash_at=point)
    site.start("web")
    (row,) = site.rows("SELECT run_id FROM runs_pausedexecution WHERE id = %s", execution.removeprefix("exec_"))
    eventually(lambda: _a_worker_died(site, row["run_id"]), what=f"a worker dies at {point}")
    for name in ("cluster", "web"):
        site.kill9(name)


def reaps(work: Workload, point: str) -> None:
    """A web process dies with a run; the next one dies while it judges what that left."""
    site = work.site
    site.sink.fault(work.ref, "hold")
    with site.client().sent("/executions", {"code": f"import free\nfree.get_item(id={work.ref!r})['name']"}):
        site.sink.wait_for(work.ref)
        site.kill9("web")
    site.sink.release(work.ref)
    site.start("web", crash_at=point, ready=False)
    _dies(site)
    work.effects = tuple(range(1, 6))  # reads


def _a_worker_died(site: Site, run: object) -> bool:
    rows = site.rows(
        "SELECT p.pid, p.started_ticks FROM runs_attempt a JOIN runs_process p ON p.id = a.process_id"
        " WHERE a.run_id = %s AND p.role = 'worker'",
        run,
    )
    return any(started_ticks(row["pid"]) != row["started_ticks"] or _is_zombie(row["pid"]) for row in rows)


def _is_zombie(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


SCENARIOS: dict[str, tuple[Scenario, ...]] = {
    "after_submit": (executes, enqueues),
    "after_claim": (worker_runs,),
    "after_gate": (worker_runs,),
    "before_reserve": (executes, worker_runs),
    "after_reserve": (executes, worker_runs),
    "after_send": (executes, worker_goes_on),
    "after_settle": (executes, worker_goes_on),
    "before_pause": (pauses,),
    "after_pause": (pauses,),
    "after_decide": (decides,),
    "before_finish": (executes, decides, worker_runs),
    "after_finish": (executes, decides, worker_runs),
    "after_suspend": (hands_on,),
    "in_reap": (reaps,),
}
"""Crash point → the ways it is reached. A test holds the keys to `crashpoints.CRASH_POINTS`."""

UNKNOWN_AT = {"after_reserve", "after_send"}
"""Where an effect is out or may be: its run ends unconfirmed, and what was sent is not sent again."""


def drill(site: Site, point: str, scenario: Scenario) -> float:
    """One repetition on a site whose `web` and `cluster` run; they run again afterwards. Returns the seconds from
    the beginning of the restart until nothing was left to do. Raises AssertionError for a broken promise.
    """
    work = Workload(site)
    if point in UNKNOWN_AT:
        work.states = ("unconfirmed",)
        work.effects = (0,) if point == "after_reserve" else (1,)
    expected = (work.states, work.effects) if point in UNKNOWN_AT else None
    scenario(work, point)
    if expected is not None:
        work.states, work.effects = expected
    begun = time.monotonic()
    for name in ("web", "cluster"):
        if name not in site.started:
            site.start(name)
    eventually(lambda: not restless(site), RECOVERY_S, f"after {point}: {restless(site)}")
    recovered = time.monotonic() - begun
    if work.again is not None:
        assert work.again() is not None
    _ended_as_it_may(work, point)
    assert_sound(site)
    return recovered


def _ended_as_it_may(work: Workload, point: str) -> None:
    rows = work.site.rows("SELECT id::text FROM runs_run WHERE code LIKE %s", f"%{work.ref}%")
    assert len(rows) == 1, f"{len(rows)} runs of one request"
    state = work.site.wait_state(rows[0]["id"], *FINAL)
    assert state in work.states, f"after {point} the run is {state}, not {work.states}"
    assert work.site.sink.count(work.ref) in work.effects, f"after {point}: {work.site.sink.of(work.ref)}"
