"""/runs: background runs, lists, details, ledger, kept outputs, cancelling."""

from typing import Annotated, Any, Literal
from uuid import UUID

from django.http import HttpRequest, HttpResponse
from ninja import Router, Status
from pydantic import Field

from executor_site.orm import orm_read
from executor_site.scope import of_request
from runs.api.executions import ERRORS, IdempotencyKey, idempotency_key
from runs.api.render import effect_row, event_row, last_event_id, pause_model, run_summary
from runs.api.schemas import CancelOut, EffectList, EventList, ResolveIn, ResultOut, RunDetail, RunIn, RunPage
from runs.domain import limits
from runs.domain.codes import Refusal
from runs.domain.states import RunKind, RunState
from runs.selectors import runs as select
from runs.services.cancel import run_stop
from runs.services.follow import events_all, run_seen
from runs.services.resolve import EffectWord, run_resolve
from runs.services.submit import run_enqueue

router = Router(tags=["runs"])


def run_id_of(text: str) -> UUID:
    """Whatever is no id of ours answers like an unknown one."""
    try:
        return UUID(text)
    except ValueError:
        raise Refusal("not_found", "There is no such run.") from None


@router.post("/runs", response={202: ResultOut, **ERRORS}, exclude_unset=True)
async def submit(request: HttpRequest, body: RunIn, key: IdempotencyKey = None) -> Any:
    """Take a run for the workers; answered at once, after it is stored."""
    answer = await run_enqueue(
        of_request(request),
        request.auth,  # type: ignore[attr-defined]
        code=body.code,
        inputs=body.inputs,
        timeout_s=body.timeout_s,
        idempotency_key=idempotency_key(key),
    )
    return Status(202, answer)


@router.get("/runs", response={200: RunPage, **ERRORS})
async def page(
    request: HttpRequest,
    state: RunState | None = None,
    kind: RunKind | None = None,
    q: Annotated[str | None, Field(max_length=limits.QUERY_CHARS)] = None,
    cursor: Annotated[str | None, Field(max_length=limits.QUERY_CHARS)] = None,
    limit: Annotated[int, Field(ge=1, le=limits.PAGE_MAX)] = limits.PAGE_DEFAULT,
) -> Any:
    """Newest first; own runs, or all of them for an operator."""
    principal = request.auth  # type: ignore[attr-defined]
    principal.require("run")
    if q is not None and "\0" in q:
        raise Refusal("invalid_request", "q must not contain NUL characters.")
    found, following = await orm_read(
        select.run_page, principal, state=state, kind=kind, query=q, cursor=cursor, limit=limit
    )
    return {"runs": [run_summary(run) for run in found], "next_cursor": following}


@router.get("/runs/{run_id}", response={200: RunDetail, **ERRORS})
async def detail(request: HttpRequest, run_id: str) -> Any:
    """One run in full, with its pauses and timeline."""
    principal = request.auth  # type: ignore[attr-defined]
    principal.require("run")
    base_url = of_request(request).base_url

    def read() -> dict[str, Any]:
        run, pauses, events = select.run_detail(principal, run_id_of(run_id))
        return {
            **run_summary(run),
            "code": run.code,
            "inputs": run.inputs,
            "timeout_s": run.timeout_s,
            "outcome": run.outcome.body if run.outcome else None,
            "pauses": [pause_model(pause, base_url) for pause in pauses],
            "timeline": [event_row(event) for event in events],
        }

    return await orm_read(read)


@router.get(
    "/runs/{run_id}/events",
    response={200: EventList, **ERRORS},
    openapi_extra={
        "responses": {200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}}},
        "parameters": [{"name": "Last-Event-ID", "in": "header", "schema": {"type": "string"}}],
    },
)
async def events(request: HttpRequest, run_id: str) -> Any:
    """The run's events: a list with `Accept: application/json`, else a stream (SSE) that follows the run."""
    scope = of_request(request)
    found = run_id_of(run_id)
    await run_seen(scope, request.auth, found)  # type: ignore[attr-defined]
    rows = await events_all(scope, found, last_event_id(request.headers.get("Last-Event-ID")))
    return {"events": [event_row(row) for row in rows]}


@router.get("/runs/{run_id}/effects", response={200: EffectList, **ERRORS})
async def effects(request: HttpRequest, run_id: str) -> Any:
    """The ledger: every tool call of the run, with its key and state."""
    principal = request.auth  # type: ignore[attr-defined]
    principal.require("run")
    found = await orm_read(select.run_effects, principal, run_id_of(run_id))
    return {"effects": [effect_row(effect) for effect in found]}


@router.get("/runs/{run_id}/outputs/{name}", response={200: str, **ERRORS})
async def output(request: HttpRequest, run_id: str, name: Literal["result", "logs"]) -> Any:
    """What was cut from an answer: the whole result (JSON) or log (text), as far as it is kept."""
    principal = request.auth  # type: ignore[attr-defined]
    principal.require("run")
    kept = await orm_read(select.run_output, principal, run_id_of(run_id), name)
    kind = "application/json" if name == "result" else "text/plain; charset=utf-8"
    return HttpResponse(kept.text, content_type=kind)


@router.post("/runs/{run_id}/cancel", response={200: CancelOut, **ERRORS})
async def cancel(request: HttpRequest, run_id: str) -> Any:
    """Ask the run to stop; says whether it has stopped or is still stopping."""
    return await run_stop(of_request(request), request.auth, run_id_of(run_id))  # type: ignore[attr-defined]


@router.post("/runs/{run_id}/resolve", response={200: ResultOut, **ERRORS}, exclude_unset=True)
async def resolve(request: HttpRequest, run_id: str, body: ResolveIn) -> Any:
    """An operator's decision on an unconfirmed run, with a reason; answers the result union."""
    return await run_resolve(
        of_request(request),
        request.auth,  # type: ignore[attr-defined]
        run_id=run_id_of(run_id),
        decision=body.decision,
        reason=body.reason,
        effects=[EffectWord(word.key, word.happened, word.result) for word in body.effects],
        result=body.result,
    )
