"""/approve/<exec_id>: one question, for the run's owner or an operator. Works without JavaScript.

Whoever may not see the run gets the same 404 as for an id that does not exist.
"""

from typing import Any

from asgiref.sync import sync_to_async
from django.contrib import messages
from django.contrib.auth.views import redirect_to_login
from django.http import Http404, HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from executor_site.scope import of_request
from runs.domain.codes import Refusal
from runs.domain.effects import Approver
from runs.domain.principal import Principal
from runs.models import PausedExecution
from runs.pages.decision import DecisionForms, Told, decide
from runs.pages.words import decision_badge, pretty, state_badge
from runs.selectors.timeline import KINDS
from runs.services.resume import pause_id_of, pause_read

WAIT_S = 2.0
"""How long the answer of the program is waited for before the page comes back without it."""


@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
async def approve(request: HttpRequest, execution_id: str) -> HttpResponseBase:
    user = await request.auser()
    if not user.is_authenticated:
        return redirect_to_login(request.get_full_path(), reverse("login"))
    principal = await sync_to_async(Principal.of_session)(user)
    scope = of_request(request)
    try:
        pause = await pause_read(scope, principal, execution_id)
        if request.method != "POST":
            return await _page(request, principal, pause, None, DecisionForms.of(pause))
        told, forms = await decide(scope, principal, pause, request.POST, via="page", go_on_here=True, wait_s=WAIT_S)
    except Refusal as refusal:
        raise Http404("There is no such question.") from refusal
    if told.ok:
        messages.success(request, told.text)
        return redirect("approve", execution_id=execution_id)
    pause = await pause_read(scope, principal, execution_id)
    return await _page(request, principal, pause, told, forms)


@sync_to_async
def _page(
    request: HttpRequest, principal: Principal, pause: dict[str, Any], told: Told | None, forms: DecisionForms
) -> HttpResponse:
    row = PausedExecution.objects.select_related("run__owner", "run__outcome", "decided_by", "outcome").get(
        id=pause_id_of(f"exec_{pause['id']}")
    )
    others = row.run.pauses.filter(decision__isnull=True).exclude(id=row.id).order_by("created_at")[:5]
    needs_staff = row.approver == Approver.STAFF and not principal.is_staff
    answer = (row.outcome or row.run.outcome) if row.decision else None
    body: dict[str, Any] = (answer.body if answer is not None else None) or {}
    context = {
        "pause": row,
        "badge": decision_badge(row.decision),
        "run_badge": state_badge(row.run.state, stopping=row.run.is_stopping),
        "kinds": ",".join(KINDS),
        "args": pretty(row.args),
        "schema": pretty(row.requested_schema),
        "content": "" if row.content is None else pretty(row.content),
        "result": pretty(body.get("result")),
        "error": body.get("error"),
        "run": row.run,
        "is_past": pause["is_past"],
        "can_decide": row.decision is None and not pause["is_past"] and not needs_staff,
        "needs_staff": needs_staff,
        "forms": forms,
        "told": told,
        "answer": answer,
        "others": others,
    }
    status = 200 if told is None else told.status
    return render(request, "runs/pages/approve.html", context, status=status)
