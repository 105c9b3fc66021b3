"""/admin/run-panel/: run a program from the browser and see its answer."""

from typing import Any
from uuid import UUID, uuid4

from asgiref.sync import sync_to_async
from django import forms
from django.contrib import admin, messages
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from executor_site.scope import of_request
from runs.admin.access import owner_scope, principal_of
from runs.admin.run_page import run_context
from runs.domain import limits
from runs.domain.codes import Refusal
from runs.models import Run
from runs.services.program_text import check_code
from runs.services.submit import run_execute

WAIT_S = 20.0
"""How long the page waits for the answer; the run goes on without it."""

SAMPLE = """\
# Sources are modules, their tools take keyword arguments.
found = search_tools("item")
print(len(found), "tools found")
emit({"greeting": "hello from the panel"})
found
"""


class PanelForm(forms.Form):
    code = forms.CharField(
        label="Program (Python)",
        max_length=limits.CODE_BYTES,
        strip=False,
        widget=forms.Textarea(attrs={"rows": 10, "spellcheck": "false", "class": "code", "autocapitalize": "off"}),
    )
    timeout_s = forms.FloatField(
        label="Compute time, seconds",
        min_value=0.1,
        max_value=limits.COMPUTE_MAX_S,
        initial=limits.COMPUTE_DEFAULT_S,
        help_text=f"At most {limits.COMPUTE_MAX_S:g}. Waiting for people and tools does not count.",
    )
    auto_approve = forms.BooleanField(
        label="Approve everything as me",
        required=False,
        help_text="You stand for every approval of this run, and it is recorded so. Blocked tools stay blocked.",
    )
    key = forms.CharField(max_length=64, widget=forms.HiddenInput())
    """Made with the page: sending the same form twice runs the program once."""

    def clean_code(self) -> str:
        code: str = self.cleaned_data["code"].replace("\r\n", "\n")
        try:
            return check_code(code)
        except ValueError as error:
            raise forms.ValidationError(f"This program cannot be taken: {error}.") from None


@require_http_methods(["GET", "HEAD", "POST"])
async def run_panel(request: HttpRequest) -> HttpResponseBase:
    """Behind `staff_only`."""
    if request.method != "POST":
        return await _page(request, None)
    form = PanelForm(request.POST)
    if not form.is_valid():
        return await _page(request, form, status=422)
    given = form.cleaned_data
    try:
        answer = await run_execute(
            of_request(request),
            await sync_to_async(principal_of)(request),
            code=given["code"],
            inputs={},
            timeout_s=given["timeout_s"],
            wait_s=WAIT_S,
            idempotency_key=f"panel-{given['key']}",
            auto_approve=given["auto_approve"],
            origin="panel",
        )
    except Refusal as refusal:
        messages.error(request, f"{refusal.message} ({refusal.code.name})")
        return await _page(request, form, status=refusal.code.http)
    return redirect(f"{reverse('run_panel')}?run={answer['run_id']}")


@sync_to_async
def _page(request: HttpRequest, form: PanelForm | None, status: int = 200) -> HttpResponse:
    principal = principal_of(request)
    run = None if form is not None else _asked(request)
    if form is None:
        initial: dict[str, Any] = {"code": SAMPLE, "key": uuid4().hex}
        if run is not None:
            initial |= {
                "code": run.code,
                "timeout_s": run.timeout_s,
                "auto_approve": run.auto_approve_by_id is not None,
            }
        form = PanelForm(initial=initial)
    context = {
        **admin.site.each_context(request),
        **({} if run is None else run_context(run, principal)),
        "title": "Run panel",
        "form": form,
        "may_auto_approve": "operate" in principal.scopes,
    }
    return render(request, "runs/admin/panel.html", context, status=status)


def _asked(request: HttpRequest) -> Run | None:
    """The run of the address, if it is one that this person may see."""
    try:
        run_id = UUID(request.GET.get("run", ""))
    except ValueError:
        return None
    runs = Run.objects.select_related("owner", "outcome", "auto_approve_by", "cancel_requested_by")
    owner = owner_scope(request)
    return (runs if owner is None else runs.filter(owner_id=owner)).filter(id=run_id).first()
