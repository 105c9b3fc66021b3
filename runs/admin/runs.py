"""Runs in the admin: the list, the page of one run, its live fragment, and stopping it."""

from typing import Any
from uuid import UUID

from asgiref.sync import sync_to_async
from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.views.decorators.http import require_POST

from executor_site.scope import of_request
from runs.admin import run_filters
from runs.admin.access import principal_of, staff_only
from runs.admin.base import OwnedAdmin
from runs.admin.date_filter import DayRangeFilter
from runs.admin.resolve import ResolveForm
from runs.admin.run_page import CALLS, resolve_form, run_context
from runs.domain.codes import Refusal
from runs.models import Run
from runs.pages.words import between, moment_html, state_badge
from runs.services.cancel import run_stop
from runs.services.resolve import run_resolve

_PAGE_RELATED = ("owner", "outcome", "process", "follows", "token", "auto_approve_by", "cancel_requested_by")


@admin.register(Run)
class RunAdmin(OwnedAdmin):
    owner_path = "owner"
    list_display = ("short_id", "shown_state", "kind", "owner", "origin", "created", "duration", "error_code")
    list_display_links = ("short_id",)
    list_select_related = ("owner",)
    list_filter = (
        run_filters.AttentionFilter,
        run_filters.StateFilter,
        run_filters.OriginFilter,
        run_filters.KindFilter,
        run_filters.OwnerFilter,
        run_filters.CodeFilter,
        ("created_at", DayRangeFilter),
    )
    search_fields = ("id",)
    search_help_text = "Id or its beginning, owner, program text"
    ordering = ("-created_at", "-id")
    sortable_by = ()
    list_before_template = "runs/admin/run_links.html"  # type: ignore[assignment]
    date_hierarchy = None

    def get_queryset(self, request: HttpRequest) -> QuerySet[Run]:
        return super().get_queryset(request).defer("code", "inputs")

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Run], search_term: str
    ) -> tuple[QuerySet[Run], bool]:
        term = search_term.strip()
        return (queryset.filter(run_filters.matching(term)) if term else queryset), False

    @admin.display(description="Run")
    def short_id(self, run: Run) -> SafeString:
        return format_html('<code title="{}">{}</code>', run.id, run.id.hex[:8])

    @admin.display(description="State")
    def shown_state(self, run: Run) -> SafeString:
        return state_badge(run.state, stopping=run.is_stopping)

    @admin.display(description="Created (UTC)")
    def created(self, run: Run) -> SafeString:
        return moment_html(run.created_at)

    @admin.display(description="Duration")
    def duration(self, run: Run) -> str:
        return between(run.created_at, run.finished_at or timezone.now())

    def get_urls(self) -> list[URLPattern]:
        return [
            path("<uuid:run_id>/live/", self.admin_site.admin_view(self.live_view), name="runs_run_live"),
            path("<uuid:run_id>/stop/", require_POST(staff_only(stop_view)), name="runs_run_stop"),
            path("<uuid:run_id>/resolve/", require_POST(staff_only(self.resolve_view)), name="runs_run_resolve"),
            *super().get_urls(),
        ]

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        self.refuse_writing(request)
        return self._page(request, self._run(request, object_id))

    def _page(self, request: HttpRequest, run: Run, resolving: ResolveForm | None = None) -> TemplateResponse:
        context = {
            **self.admin_site.each_context(request),
            **run_context(run, principal_of(request), resolving),
            "title": f"Run {run.id.hex[:8]}",
            "opts": None,
        }
        return TemplateResponse(request, "runs/admin/run.html", context)

    async def resolve_view(self, request: HttpRequest, run_id: UUID) -> HttpResponseBase:
        principal = await sync_to_async(principal_of)(request)
        run, form = await sync_to_async(self._resolving)(request, run_id)
        if form is None:
            messages.error(request, "Nothing was changed: the run is not unconfirmed any more.")
            return redirect("admin:runs_run_change", run_id)
        if form.is_valid():
            given = form.cleaned_data
            try:
                answer = await run_resolve(
                    of_request(request),
                    principal,
                    run_id=run_id,
                    decision=given["decision"],
                    reason=given["reason"],
                    effects=form.words(),
                    result=given["result"],
                )
            except Refusal as refusal:
                form.add_error(None, f"{refusal.message} Nothing was changed.")
            else:
                messages.success(request, "Your decision is stored.")
                return redirect("admin:runs_run_change", answer["run_id"])
        page = await sync_to_async(lambda: self._page(request, run, form).render())()
        page.status_code = 422
        return page

    def _resolving(self, request: HttpRequest, run_id: UUID) -> tuple[Run, ResolveForm | None]:
        run = self._run(request, str(run_id))
        effects = list(run.effects.order_by("call_index", "reserved_at")[:CALLS])
        return run, resolve_form(run, principal_of(request), effects, request.POST)

    def live_view(self, request: HttpRequest, run_id: UUID) -> HttpResponse:
        """The part of the page that changes, for the script that follows the run's events."""
        run = self._run(request, str(run_id))
        return TemplateResponse(request, "runs/admin/run_body.html", run_context(run, principal_of(request)))

    def _run(self, request: HttpRequest, object_id: str) -> Run:
        """404 also for a run this person may not see."""
        try:
            run_id = UUID(object_id)
        except ValueError:
            raise Http404("There is no such run.") from None
        run = self.get_queryset(request).defer(None).select_related(*_PAGE_RELATED).filter(id=run_id).first()
        if run is None:
            raise Http404("There is no such run.")
        return run


async def stop_view(request: HttpRequest, run_id: UUID) -> HttpResponseBase:
    principal = await sync_to_async(principal_of)(request)
    try:
        answer = await run_stop(of_request(request), principal, run_id)
    except Refusal as refusal:
        if refusal.code.name == "not_found":
            raise Http404(refusal.message) from refusal
        messages.error(request, f"{refusal.message} Nothing was changed.")
        return redirect("admin:runs_run_change", run_id)
    if answer["stopping"]:
        messages.warning(request, "Asked to stop. It is cancelled as soon as its sandbox is confirmed to be gone.")
    elif answer["state"] == "cancelled":
        messages.success(request, "Cancelled. Nothing works on it any more.")
    else:
        messages.info(request, f"It had already ended: {answer['state']}.")
    return redirect("admin:runs_run_change", run_id)
