"""Reading runs for the API and the admin: lists by keyset, one run in full, its ledger. Django ORM, read only."""

import base64
import binascii
import json
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import Q, QuerySet

from runs.domain.codes import Refusal
from runs.domain.principal import Principal
from runs.models import Effect, Event, Output, PausedExecution, Run

TIMELINE = 500
"""Events shown with a run; all of them are at its events endpoint."""


def visible_runs(principal: Principal) -> QuerySet[Run]:
    runs = Run.objects.select_related("owner")
    return runs if principal.sees_all else runs.filter(owner_id=principal.user_id)


def run_page(
    principal: Principal, *, state: str | None, kind: str | None, query: str | None, cursor: str | None, limit: int
) -> tuple[list[Run], str | None]:
    """One page, newest first, and the cursor of the next. Raises Refusal invalid_cursor."""
    runs = visible_runs(principal).defer("code", "inputs").order_by("-created_at", "-id")
    if state:
        runs = runs.filter(state=state)
    if kind:
        runs = runs.filter(kind=kind)
    if query:
        runs = runs.filter(_matching(query))
    if cursor:
        at, run_id = _read_cursor(cursor)
        runs = runs.filter(Q(created_at__lt=at) | Q(created_at=at, id__lt=run_id))
    found = list(runs[: limit + 1])
    page = found[:limit]
    return page, _cursor(page[-1]) if len(found) > limit else None


def _matching(query: str) -> Q:
    matching = Q(code__icontains=query) | Q(owner__username__iexact=query)
    compact = query.replace("-", "").lower()
    if compact and len(compact) <= 32 and all(char in "0123456789abcdef" for char in compact):
        # An id or its beginning is a range of ids, which the primary key finds.
        matching |= Q(id__gte=UUID(compact.ljust(32, "0")), id__lte=UUID(compact.ljust(32, "f")))
    return matching


def _cursor(run: Run) -> str:
    return base64.urlsafe_b64encode(json.dumps([run.created_at.isoformat(), str(run.id)]).encode()).decode()


def _read_cursor(cursor: str) -> tuple[datetime, UUID]:
    try:
        at, run_id = json.loads(base64.urlsafe_b64decode(cursor.encode()))
        moment = datetime.fromisoformat(at)
        if moment.tzinfo is None:
            raise ValueError(at)
        return moment, UUID(run_id)
    except (ValueError, TypeError, AttributeError, binascii.Error):
        raise Refusal("invalid_cursor") from None


def run_of(principal: Principal, run_id: UUID) -> Run:
    """Raises Refusal not_found, also for another owner's run."""
    run = visible_runs(principal).select_related("outcome").filter(id=run_id).first()
    if run is None:
        raise Refusal("not_found", "There is no such run.")
    return run


def run_detail(principal: Principal, run_id: UUID) -> tuple[Run, list[PausedExecution], list[Event]]:
    run = run_of(principal, run_id)
    pauses = list(run.pauses.select_related("decided_by", "outcome").order_by("created_at", "call_index"))
    return run, pauses, list(run.events.order_by("seq")[:TIMELINE])


def run_effects(principal: Principal, run_id: UUID) -> list[Effect]:
    return list(run_of(principal, run_id).effects.order_by("call_index"))


def run_output(principal: Principal, run_id: UUID, name: str) -> Output:
    output = run_of(principal, run_id).outputs.filter(name=name).first()
    if output is None:
        raise Refusal("not_found", "Nothing of this name was kept for the run.")
    return output


def shown(moment: datetime | None) -> Any:
    """A time as the contract writes it: UTC, seconds and milliseconds."""
    return None if moment is None else moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
