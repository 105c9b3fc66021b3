"""/metrics for Prometheus: read from the database at each scrape, so that every process tells the same of the site.

For clients on this host, and for tokens with the scope operate. Three queries in one short read-only transaction.
"""

import ipaddress
import platform
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import psycopg
from django.http import HttpRequest, HttpResponse
from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector
from psycopg_pool import PoolTimeout

from executor_site.scope import Scope, of_request
from runs.api.auth import authenticate
from runs.api.errors import error_response
from runs.domain.codes import CODES, Refusal
from runs.domain.states import RunState
from runs.selectors.metrics import Figures, figures_read


async def metrics(request: HttpRequest) -> HttpResponse:
    """Raises nothing: refusals and an absent database are answers, as everywhere."""
    if request.method not in ("GET", "HEAD"):
        return error_response(request, "method_not_allowed")
    scope = of_request(request)
    try:
        if not is_local(request):
            (await authenticate(request)).require("operate")
        figures = await figures_read(await scope.connection())
    except Refusal as refusal:
        return error_response(
            request, refusal.code.name, refusal.message, refusal.detail, retry_after_s=refusal.retry_after_s
        )
    except (psycopg.Error, PoolTimeout):
        return error_response(request, "unavailable", "The database cannot be read right now.", retry_after_s=5)
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Prepared([*_site(figures), *_process(scope)]))
    ProcessCollector(registry=registry)
    return HttpResponse(generate_latest(registry), content_type=CONTENT_TYPE_LATEST)


def is_local(request: HttpRequest) -> bool:
    """A client on this host and not a proxy on it that passes others on: those say so in a header."""
    if any(name in request.headers for name in ("X-Forwarded-For", "Forwarded", "X-Real-IP", "Via")):
        return False
    try:
        return ipaddress.ip_address(request.META.get("REMOTE_ADDR", "")).is_loopback
    except ValueError:
        return False


class _Prepared(Collector):
    """prometheus_client collects synchronously; what the database says was read before."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = list(families)

    def collect(self) -> Iterable[Metric]:
        return self._families


def _site(figures: Figures) -> Iterable[Metric]:
    states = GaugeMetricFamily("executor_runs", "Runs by state.", labels=["state"])
    for state in RunState:
        states.add_metric([state.value], figures.by_state.get(state.value, 0))
    yield states
    finished = GaugeMetricFamily(
        "executor_runs_finished_last_hour",
        "Runs that finished in the last hour, by state, error code and its category.",
        labels=["state", "code", "category"],
    )
    for (state_name, code), count in figures.finished.items():
        category = CODES[code].category.value if code in CODES else ""
        finished.add_metric([state_name, code, category], count)
    yield finished
    durations = GaugeMetricFamily(
        "executor_run_duration_seconds",
        "From submission to the end, waiting for people included; runs of the last hour.",
        labels=["quantile"],
    )
    for quantile, seconds in figures.durations.items():
        durations.add_metric([quantile], seconds)
    yield durations
    for name, what in _GAUGES.items():
        yield GaugeMetricFamily(f"executor_{name}", what, value=getattr(figures, name))
    yield CounterMetricFamily(
        "executor_reaps", "Times that a run was taken from a process that was lost.", value=figures.reaps
    )


_GAUGES = {
    "queued_oldest_age_seconds": "Age of the oldest queued run; 0 without one.",
    "approvals_pending": "Questions that wait for a person.",
    "approvals_oldest_age_seconds": "Age of the oldest such question; 0 without one.",
    "effects_unknown": "Effects that may or may not have happened: work for an operator.",
    "runs_stopping": "Runs that were asked to stop and are not known to have stopped.",
}


def _process(scope: Scope) -> Iterable[Metric]:
    for name, (what, value) in scope.figures().items():
        yield GaugeMetricFamily(f"executor_process_{name}", f"{what} Of the process that answered.", value=value)
    yield InfoMetricFamily("executor_build", "What runs here.", value=_BUILD)


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"


_BUILD: dict[str, Any] = {
    # Run from its checkout the site itself is not installed, so its version is its API's.
    "version": "0.1.0",
    "python": platform.python_version(),
    "django": _version("django"),
    "monty": _version("pydantic-monty"),
}
