"""What the admin's home page shows: what waits for a person first, then how the runs went. Read only, bounded.

Every list has LISTED rows at most, the statistics look at the newest COUNTED runs of the window at most.
`owner_id=None` sees every run; otherwise only that owner's.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Generic, TypeVar

from django.db import connection
from django.db.models import Count, F, Min, Q, QuerySet, Window
from django.db.models.functions import Now

from runs.domain.states import TERMINAL, RunState
from runs.models import PausedExecution, Run

LISTED = 8
COUNTED = 100_000
"""A busy site makes this many runs in minutes; the page must stay quick and says that it stopped counting."""
_DAY, _WEEK = timedelta(days=1), timedelta(days=7)

_WINDOW = """
FROM (SELECT state, created_at, finished_at FROM runs_run
      WHERE created_at >= now() - interval '7 days' AND (%(owner)s::int IS NULL OR owner_id = %(owner)s)
      ORDER BY created_at DESC LIMIT %(counted)s) r"""
_BUCKETS = f"SELECT date_trunc('hour', created_at, 'UTC') AS hour, state, count(*) AS n {_WINDOW} GROUP BY 1, 2"
_DURATIONS = f"""
SELECT {
    ", ".join(
        f"percentile_cont({p}) WITHIN GROUP (ORDER BY extract(epoch FROM finished_at - created_at))"
        f" FILTER (WHERE finished_at >= now() - interval '{span}') AS p{int(p * 100)}_{name}"
        for p in (0.5, 0.95)
        for name, span in (("day", "1 day"), ("week", "7 days"))
    )
}, count(*) AS counted, now() AS now {_WINDOW}"""


Row = TypeVar("Row")


@dataclass(frozen=True)
class Pile(Generic[Row]):
    """The first rows of a pile of work, and how high it is."""

    rows: list[Row]
    total: int


@dataclass(frozen=True, slots=True)
class Waiting:
    state: str
    count: int
    oldest: datetime


@dataclass(frozen=True, slots=True)
class Durations:
    """Seconds from submission to the end, human waiting included. None: no run ended in that time."""

    p50_day: float | None
    p95_day: float | None
    p50_week: float | None
    p95_week: float | None


@dataclass(frozen=True, slots=True)
class Dashboard:
    now: datetime
    """The database's clock, from which every age on the page is counted."""
    pending: Pile[PausedExecution]
    unconfirmed: Pile[Run]
    stopping: Pile[Run]
    failures: list[tuple[str, int]]
    """Codes of the runs that failed in the last 24 hours, most frequent first."""
    waiting: dict[str, Waiting]
    """Open runs by state. A suspended run that sleeps on purpose is not counted."""
    per_hour: dict[tuple[datetime, str], int]
    durations: Durations
    counted: int

    @property
    def is_cut(self) -> bool:
        return self.counted >= COUNTED

    @property
    def is_calm(self) -> bool:
        return not (self.pending.total or self.unconfirmed.total or self.stopping.total or self.failures)


def dashboard(owner_id: int | None) -> Dashboard:
    """Seven queries, whatever the number of rows."""
    runs = _runs(owner_id)
    per_hour = {(row["hour"].astimezone(UTC), row["state"]): row["n"] for row in _rows(_BUCKETS, owner_id)}
    (figures,) = _rows(_DURATIONS, owner_id)
    now, counted = figures.pop("now"), figures.pop("counted")
    return Dashboard(
        now=now,
        pending=_pile(pauses_open(owner_id)),
        unconfirmed=_pile(runs.filter(state=RunState.UNCONFIRMED).order_by("-finished_at")),
        stopping=_pile(
            runs.filter(cancel_requested_at__isnull=False, finished_at__isnull=True).order_by("cancel_requested_at")
        ),
        failures=_failures(runs),
        waiting=_waiting(runs),
        per_hour=per_hour,
        durations=Durations(**figures),
        counted=counted,
    )


def pauses_open(owner_id: int | None) -> QuerySet[PausedExecution]:
    """Questions nobody has answered, the oldest first, with their runs and owners."""
    pauses = PausedExecution.objects.filter(decision__isnull=True).select_related("run__owner")
    pauses = pauses.defer("run__code", "run__inputs").order_by("created_at")
    return pauses if owner_id is None else pauses.filter(run__owner_id=owner_id)


def pauses_open_count(owner_id: int | None, *, at_most: int = 100) -> int:
    """For a badge: counts no further than `at_most`."""
    return pauses_open(owner_id).order_by()[:at_most].count()


def _runs(owner_id: int | None) -> QuerySet[Run]:
    runs = Run.objects.all()
    return runs if owner_id is None else runs.filter(owner_id=owner_id)


def _pile(rows: QuerySet[Any]) -> Pile[Any]:
    if rows.model is Run:
        rows = rows.select_related("owner", "cancel_requested_by").defer("code", "inputs")
    found = list(rows.annotate(pile=Window(Count("*")))[:LISTED])
    return Pile(found, found[0].pile if found else 0)


def _failures(runs: QuerySet[Run]) -> list[tuple[str, int]]:
    # created_at bounds the scan of the index run_by_state; a run that took over a week to fail is not counted here.
    recent = runs.filter(state=RunState.FAILED, finished_at__gte=Now() - _DAY, created_at__gte=Now() - _WEEK)
    found = recent.values("error_code").annotate(n=Count("*")).order_by("-n", "error_code")[:LISTED]
    return [(str(row["error_code"]), row["n"]) for row in found]


def _waiting(runs: QuerySet[Run]) -> dict[str, Waiting]:
    open_states = [state.value for state in RunState if state not in TERMINAL]
    due = runs.filter(Q(wake_at__isnull=True) | Q(wake_at__lte=Now()), state__in=open_states)
    found = due.values("state").annotate(n=Count("*"), oldest=Min(F("updated_at"))).order_by()
    return {row["state"]: Waiting(row["state"], row["n"], row["oldest"]) for row in found}


def _rows(sql: str, owner_id: int | None) -> list[dict[str, Any]]:
    with connection.cursor() as cursor:
        cursor.execute(sql, {"owner": owner_id, "counted": COUNTED})
        names = [column.name for column in cursor.description or ()]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
