"""The home page's context: what needs a person first, then how the runs went."""

from datetime import timedelta
from typing import Any

from django.http import HttpRequest

from runs.admin.access import owner_scope
from runs.admin.charts import SERIES, chart
from runs.domain.codes import CODES
from runs.pages.words import brief, span
from runs.selectors.dashboard import COUNTED, Dashboard, dashboard


def home_context(request: HttpRequest, context: dict[str, Any]) -> dict[str, Any]:
    board = dashboard(owner_scope(request))
    context.update(
        title="Home",
        board=board,
        counted=COUNTED,
        pending=[
            {
                "pause": pause,
                "age": _age(board, pause.created_at),
                "args": brief(pause.args, 90) if pause.kind == "approval" else "",
            }
            for pause in board.pending.rows
        ],
        unconfirmed=[{"run": run, "age": _age(board, run.finished_at)} for run in board.unconfirmed.rows],
        stopping=[{"run": run, "age": _age(board, run.cancel_requested_at)} for run in board.stopping.rows],
        failures=[{"code": CODES.get(name), "name": name, "count": count} for name, count in board.failures],
        waiting=[
            {"state": state, "count": found.count, "age": _age(board, found.oldest)}
            for state in ("queued", "suspended", "paused", "claimed", "running")
            if (found := board.waiting.get(state)) is not None
        ],
        charts=[
            chart("Last 24 hours", board.per_hour, now=board.now, step=timedelta(hours=1), steps=24, fmt="%H:%M"),
            chart("Last 7 days", board.per_hour, now=board.now, step=timedelta(hours=6), steps=28, fmt="%d %b %Hh"),
        ],
        series=SERIES,
        durations=[
            ("Last 24 hours", span(board.durations.p50_day), span(board.durations.p95_day)),
            ("Last 7 days", span(board.durations.p50_week), span(board.durations.p95_week)),
        ],
    )
    return context


def _age(board: Dashboard, moment: Any) -> str:
    return span((board.now - moment).total_seconds())
