"""A range of days, in UTC, both ends included."""

from datetime import UTC, date, datetime, time, timedelta
from typing import Any

from django.db.models import QuerySet
from django.http import HttpRequest
from unfold.contrib.filters.admin import RangeDateFilter


class DayRangeFilter(RangeDateFilter):
    """Unfold's own compares with a time without a zone, and takes the last day's midnight for its end."""

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        begin, end = self._day("from"), self._day("to")
        if begin is not None:
            queryset = queryset.filter(**{f"{self.parameter_name}__gte": _midnight(begin)})
        if end is not None:
            queryset = queryset.filter(**{f"{self.parameter_name}__lt": _midnight(end) + timedelta(days=1)})
        return queryset

    def _day(self, side: str) -> date | None:
        """None also for what is no date, or one too late to have a day after it."""
        given = self.used_parameters.get(f"{self.parameter_name}_{side}")
        if isinstance(given, list):
            given = given[-1] if given else None
        try:
            day = date.fromisoformat(str(given or ""))
        except ValueError:
            return None
        return day if day.year < date.max.year else None


def _midnight(day: date) -> datetime:
    return datetime.combine(day, time.min, UTC)
