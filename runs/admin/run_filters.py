"""Filters and search of the run list."""

from collections.abc import Iterable
from typing import Any
from uuid import UUID

from django.contrib.admin import ModelAdmin
from django.db.models import Q, QuerySet
from django.http import HttpRequest
from unfold.contrib.filters.admin import CheckboxFilter, DropdownFilter, RadioFilter, TextFilter

from runs.domain.codes import CODES, RUN_CODES
from runs.domain.states import RunKind, RunState
from runs.models import Run
from runs.pages.words import STATE_WORDS

NEEDS_ATTENTION = (
    Q(state=RunState.UNCONFIRMED)
    | Q(state=RunState.PAUSED)
    | Q(cancel_requested_at__isnull=False, finished_at__isnull=True)
)
"""A person has to find out, to decide, or to see that it really stops."""

Choices = list[tuple[str, str]]


class AttentionFilter(RadioFilter):
    title = "attention"
    parameter_name = "attention"

    def lookups(self, request: HttpRequest, model_admin: "ModelAdmin[Any]") -> Choices:
        return [("yes", "Needs attention")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Run]) -> QuerySet[Run]:
        return queryset.filter(NEEDS_ATTENTION) if self.value() == "yes" else queryset


class StateFilter(CheckboxFilter):
    title = "state"
    parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: "ModelAdmin[Any]") -> Choices:
        return [(state.value, STATE_WORDS[state.value][0]) for state in RunState]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Run]) -> QuerySet[Run]:
        states = _known(self.value(), RunState)
        return queryset.filter(state__in=states) if states else queryset


class KindFilter(CheckboxFilter):
    title = "kind"
    parameter_name = "kind"

    def lookups(self, request: HttpRequest, model_admin: "ModelAdmin[Any]") -> Choices:
        return [(RunKind.CODE.value, "Code"), (RunKind.WORKER.value, "Worker")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Run]) -> QuerySet[Run]:
        kinds = _known(self.value(), RunKind)
        return queryset.filter(kind__in=kinds) if kinds else queryset


class OriginFilter(CheckboxFilter):
    title = "origin"
    parameter_name = "origin"

    def lookups(self, request: HttpRequest, model_admin: "ModelAdmin[Any]") -> Choices:
        return [(origin.value, str(origin.label)) for origin in Run.Origin]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Run]) -> QuerySet[Run]:
        origins = _known(self.value(), Run.Origin)
        return queryset.filter(origin__in=origins) if origins else queryset


class OwnerFilter(TextFilter):
    title = "owner"
    parameter_name = "owner"

    def queryset(self, request: HttpRequest, queryset: QuerySet[Run]) -> QuerySet[Run]:
        name = self.value()
        return queryset.filter(owner__username__iexact=name) if name else queryset


class CodeFilter(DropdownFilter):
    title = "error code"
    parameter_name = "code"

    def lookups(self, request: HttpRequest, model_admin: "ModelAdmin[Any]") -> Choices:
        return [(name, f"{name} – {CODES[name].headline}") for name in RUN_CODES]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Run]) -> QuerySet[Run]:
        return queryset.filter(error_code=self.value()) if self.value() in RUN_CODES else queryset


def matching(query: str) -> Q:
    """An id or its beginning, an owner's name, or text of the program."""
    found = Q(code__icontains=query) | Q(owner__username__iexact=query)
    compact = query.replace("-", "").lower()
    if compact and len(compact) <= 32 and all(char in "0123456789abcdef" for char in compact):
        # An id or its beginning is a range of ids, which the primary key finds.
        found |= Q(id__gte=UUID(compact.ljust(32, "0")), id__lte=UUID(compact.ljust(32, "f")))
    return found


def _known(values: Any, kinds: Iterable[str]) -> list[str]:
    """What of the address is a value of ours; an address made by hand may hold anything."""
    known = {str(kind) for kind in kinds}
    return [value for value in values or [] if value in known]
