"""The approvals inbox: open questions first, the page of one question, and deciding it through the service."""

from typing import Any
from uuid import UUID

from asgiref.sync import sync_to_async
from django.contrib import admin, messages
from django.db.models import F, QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.views.decorators.http import require_POST
from unfold.contrib.filters.admin import RadioFilter, TextFilter

from executor_site.scope import of_request
from runs.admin.access import owner_scope, principal_of, staff_only
from runs.admin.base import OwnedAdmin
from runs.admin.run_page import Question
from runs.domain.codes import Refusal
from runs.models import PausedExecution
from runs.pages.decision import DecisionForms, Told, decide
from runs.pages.words import between, brief, day_html, decision_badge
from runs.services.resume import pause_read


class OpenFilter(RadioFilter):
    title = "decision"
    parameter_name = "open"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [("yes", "Open"), ("no", "Decided or closed")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[PausedExecution]) -> QuerySet[PausedExecution]:
        if self.value() not in ("yes", "no"):
            return queryset
        return queryset.filter(decision__isnull=self.value() == "yes")


class OwnerFilter(TextFilter):
    title = "owner"
    parameter_name = "owner"

    def queryset(self, request: HttpRequest, queryset: QuerySet[PausedExecution]) -> QuerySet[PausedExecution]:
        name = self.value()
        return queryset.filter(run__owner__username__iexact=name) if name else queryset


@admin.register(PausedExecution)
class PausedExecutionAdmin(OwnedAdmin):
    list_display = ("question", "shown_state", "tool", "arguments", "owner", "age", "expires", "decided")
    list_display_links = ("question",)
    list_select_related = ("run__owner", "decided_by")
    list_filter = (OpenFilter, OwnerFilter)
    search_fields = ("tool__icontains", "message__icontains", "run__owner__username__iexact")
    search_help_text = "Tool, question, owner"
    sortable_by = ()
    list_before_template = "runs/admin/pause_links.html"  # type: ignore[assignment]

    def get_queryset(self, request: HttpRequest) -> QuerySet[PausedExecution]:
        return super().get_queryset(request).defer("run__code", "run__inputs")

    def get_ordering(self, request: HttpRequest) -> list[Any]:
        """Open ones first, the oldest on top; then the latest decided."""
        return [F("decided_at").desc(nulls_first=True), "created_at", "id"]

    @admin.display(description="Question")
    def question(self, pause: PausedExecution) -> SafeString:
        kind = {"approval": "Approval", "form": "Form", "url": "Visit a page"}.get(pause.kind, pause.kind)
        return format_html("<strong>{}</strong>", kind)

    @admin.display(description="State")
    def shown_state(self, pause: PausedExecution) -> SafeString:
        return decision_badge(pause.decision)

    @admin.display(description="Arguments or question")
    def arguments(self, pause: PausedExecution) -> SafeString:
        text = brief(pause.args, 70) if pause.kind == "approval" else pause.message[:70]
        return format_html('<span class="x-args">{}</span>', text)

    @admin.display(description="Owner")
    def owner(self, pause: PausedExecution) -> str:
        return pause.run.owner.get_username()

    @admin.display(description="Age")
    def age(self, pause: PausedExecution) -> SafeString:
        age = between(pause.created_at, pause.decided_at or timezone.now())
        return format_html('<span class="x-nowrap">{}</span>', age)

    @admin.display(description="Expires (UTC)")
    def expires(self, pause: PausedExecution) -> SafeString | str:
        return day_html(pause.expires_at) if pause.decision is None else "–"

    @admin.display(description="Decided by")
    def decided(self, pause: PausedExecution) -> str:
        if pause.decision is None:
            return "–"
        who = pause.decided_by.get_username() if pause.decided_by else "the machine"
        return f"{who}, through {pause.decided_via}"

    def get_urls(self) -> list[URLPattern]:
        return [
            path("<uuid:pause_id>/decide/", require_POST(staff_only(self.decide_view)), name="runs_pause_decide"),
            *super().get_urls(),
        ]

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        self.refuse_writing(request)
        try:
            pause_id = UUID(object_id)
        except ValueError:
            raise Http404("There is no such question.") from None
        return self._page(request, pause_id)

    async def decide_view(self, request: HttpRequest, pause_id: UUID) -> HttpResponseBase:
        principal = await sync_to_async(principal_of)(request)
        scope = of_request(request)
        try:
            pause = await pause_read(scope, principal, f"exec_{pause_id}")
            told, forms = await decide(scope, principal, pause, request.POST, via="admin", go_on_here=False)
        except Refusal as refusal:
            raise Http404("There is no such question.") from refusal
        if not told.ok:
            return await sync_to_async(self._rendered)(request, pause_id, told, forms)
        messages.success(request, told.text)
        if request.POST.get("back") == "run":
            return redirect("admin:runs_run_change", pause["run_id"])
        return redirect("admin:runs_pausedexecution_change", pause_id)

    def _rendered(self, request: HttpRequest, pause_id: UUID, told: Told, forms: DecisionForms) -> HttpResponse:
        return self._page(request, pause_id, told, forms).render()

    def _page(
        self, request: HttpRequest, pause_id: UUID, told: Told | None = None, forms: DecisionForms | None = None
    ) -> TemplateResponse:
        """The page of a question. After a decision that was not taken: with what was typed, and why it was not."""
        rows = PausedExecution.objects.select_related("run__owner", "decided_by", "decided_token", "outcome")
        owner = owner_scope(request)
        pause = (rows if owner is None else rows.filter(run__owner_id=owner)).filter(id=pause_id).first()
        if pause is None:
            raise Http404("There is no such question.")
        question = Question.of(pause, principal_of(request), timezone.now())
        context = {
            **self.admin_site.each_context(request),
            "title": "Question to a person",
            "opts": None,
            "question": question,
            "pause": pause,
            "run": pause.run,
            "forms": forms or question.forms,
            "can_decide": question.forms is not None,
            "told": told,
        }
        return TemplateResponse(request, "runs/admin/pause.html", context, status=200 if told is None else told.status)
