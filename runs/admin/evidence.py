"""What happened, read-only: calls, events, settled outcomes, processes."""

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString
from unfold.contrib.filters.admin import ChoicesCheckboxFilter, FieldTextFilter

from runs.admin.base import OwnedAdmin, ReadOnlyAdmin
from runs.admin.date_filter import DayRangeFilter
from runs.admin.run_filters import matching
from runs.domain import limits
from runs.models import Effect, Event, Process, Run, SettledOutcome
from runs.pages.words import badge, brief, effect_badge, moment_html, pretty, span


def run_link(run_id: object) -> SafeString:
    return format_html(
        '<a href="{}"><code>{}</code></a>', reverse("admin:runs_run_change", args=[run_id]), str(run_id)[:8]
    )


def _json(value: object) -> SafeString:
    return format_html('<pre class="x-pre">{}</pre>', pretty(value))


class _OfRun(OwnedAdmin):
    show_full_result_count = False
    sortable_by = ()

    @admin.display(description="Run")
    def of_run(self, row: Effect | Event | SettledOutcome) -> SafeString:
        return run_link(row.run_id)


@admin.register(Effect)
class EffectAdmin(_OfRun):
    list_display = ("key", "of_run", "tool", "effect_class", "shown_state", "status", "duration", "reserved")
    list_filter = (
        ("state", ChoicesCheckboxFilter),
        ("effect", ChoicesCheckboxFilter),
        ("tool", FieldTextFilter),
        ("reserved_at", DayRangeFilter),
    )
    search_fields = ("key__startswith", "tool__icontains")
    search_help_text = "Key or tool"
    ordering = ("-reserved_at",)
    fields = (
        *("key", "of_run", "tool", "effect", "shown_state", "epoch", "call_index", "honours_key", "args_json"),
        *("answer_json", "status", "duration", "reserved_at", "settled_at", "resolved_by"),
    )
    readonly_fields = fields

    @admin.display(description="Effect class")
    def effect_class(self, effect: Effect) -> str:
        return effect.effect

    @admin.display(description="State")
    def shown_state(self, effect: Effect) -> SafeString:
        return effect_badge(effect.state, effect.ok)

    @admin.display(description="Duration")
    def duration(self, effect: Effect) -> str:
        return "–" if effect.duration_ms is None else span(effect.duration_ms / 1000)

    @admin.display(description="Reserved (UTC)")
    def reserved(self, effect: Effect) -> SafeString:
        return moment_html(effect.reserved_at)

    @admin.display(description="Arguments")
    def args_json(self, effect: Effect) -> SafeString:
        return _json(effect.args)

    @admin.display(description="Answer")
    def answer_json(self, effect: Effect) -> SafeString:
        return _json(effect.answer)


@admin.register(Event)
class EventAdmin(_OfRun):
    list_display = ("at_utc", "of_run", "seq", "kind", "summary")
    list_filter = (("kind", FieldTextFilter), ("at", DayRangeFilter))
    search_fields = ("run__id__exact",)
    ordering = ("-id",)
    fields = ("of_run", "seq", "kind", "at", "data_json")
    readonly_fields = fields

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Event], search_term: str
    ) -> tuple[QuerySet[Event], bool]:
        term = search_term.strip()
        if not term:
            return queryset, False
        found = Run.objects.filter(matching(term)).values("id")[:1000]
        return queryset.filter(run_id__in=found), False

    @admin.display(description="At (UTC)")
    def at_utc(self, event: Event) -> SafeString:
        return moment_html(event.at)

    @admin.display(description="Data")
    def summary(self, event: Event) -> SafeString:
        return format_html('<span class="x-args">{}</span>', brief(event.data, 90))

    @admin.display(description="Data")
    def data_json(self, event: Event) -> SafeString:
        return _json(event.data)


@admin.register(SettledOutcome)
class SettledOutcomeAdmin(_OfRun):
    list_display = ("id", "of_run", "seq", "status", "settled", "is_purged")
    list_filter = (("status", FieldTextFilter), ("settled_at", DayRangeFilter))
    search_fields = ("id__exact", "run__id__exact")
    ordering = ("-settled_at",)
    fields = ("id", "of_run", "seq", "status", "settled_at", "purged_at", "body_json")
    readonly_fields = fields

    @admin.display(description="Settled (UTC)")
    def settled(self, outcome: SettledOutcome) -> SafeString:
        return moment_html(outcome.settled_at)

    @admin.display(description="Removed by retention", boolean=True)
    def is_purged(self, outcome: SettledOutcome) -> bool:
        return outcome.purged_at is not None

    @admin.display(description="Answer")
    def body_json(self, outcome: SettledOutcome) -> SafeString:
        return _json(outcome.body)


@admin.register(Process)
class ProcessAdmin(ReadOnlyAdmin):
    list_display = ("host", "pid", "role", "shown_state", "started", "heartbeat")
    list_filter = (("role", ChoicesCheckboxFilter),)
    search_fields = ("host",)
    ordering = ("-started_at",)

    @admin.display(description="State")
    def shown_state(self, process: Process) -> SafeString:
        if process.ended_at is not None:
            return badge("Ended", "idle")
        silent = (timezone.now() - process.heartbeat_at).total_seconds()
        if silent > limits.LEASE_S:
            return badge(f"Silent for {span(silent)}", "doubt")
        return badge("Alive", "good")

    @admin.display(description="Started (UTC)")
    def started(self, process: Process) -> SafeString:
        return moment_html(process.started_at)

    @admin.display(description="Last heartbeat (UTC)")
    def heartbeat(self, process: Process) -> SafeString:
        return moment_html(process.heartbeat_at)
