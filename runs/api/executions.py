"""POST /executions, GET /executions/{id}, POST /executions/{id}/resume."""

from typing import Annotated, Any

from django.http import HttpRequest
from ninja import Header, Router

from executor_site.scope import of_request
from runs.api.render import pause_row
from runs.api.schemas import ErrorOut, ExecuteIn, PauseOut, ResultOut, ResumeIn
from runs.domain import limits
from runs.domain.codes import Refusal
from runs.services.resume import pause_outcome, pause_read, pause_resume
from runs.services.submit import run_execute

router = Router(tags=["executions"])
ERRORS = dict.fromkeys((400, 401, 403, 404, 409, 410, 413, 415, 422, 429, 503), ErrorOut)

IdempotencyKey = Annotated[str | None, Header(alias="Idempotency-Key")]


def idempotency_key(value: str | None) -> str | None:
    if value is not None and not (0 < len(value) <= limits.IDEMPOTENCY_KEY_CHARS and value.isprintable()):
        raise Refusal(
            "invalid_request", f"Idempotency-Key has 1 to {limits.IDEMPOTENCY_KEY_CHARS} printable characters."
        )
    return value


@router.post("/executions", response={200: ResultOut, **ERRORS}, exclude_none=False, exclude_unset=True)
async def execute(request: HttpRequest, body: ExecuteIn, key: IdempotencyKey = None) -> Any:
    """Run code inline; answers the result union. A failed program is HTTP 200: the request was served."""
    return await run_execute(
        of_request(request),
        request.auth,  # type: ignore[attr-defined]
        code=body.code,
        inputs=body.inputs,
        timeout_s=body.timeout_s,
        wait_s=body.wait_s,
        idempotency_key=idempotency_key(key),
    )


@router.get("/executions/{execution_id}", response={200: PauseOut, **ERRORS})
async def read(request: HttpRequest, execution_id: str) -> Any:
    """The pause: what is asked, its state, who decided and when, and what came of it."""
    scope = of_request(request)
    principal = request.auth  # type: ignore[attr-defined]
    principal.require("run")
    pause = await pause_read(scope, principal, execution_id)
    return pause_row(pause, await pause_outcome(scope, pause), scope.base_url)


@router.post("/executions/{execution_id}/resume", response={200: ResultOut, **ERRORS}, exclude_unset=True)
async def resume(request: HttpRequest, execution_id: str, body: ResumeIn) -> Any:
    """Decide and go on; answers the run's next stop. The same decision again answers the same."""
    return await pause_resume(
        of_request(request),
        request.auth,  # type: ignore[attr-defined]
        execution_id=execution_id,
        action=body.action,
        content=body.content,
        reason=body.reason,
        wait_s=body.wait_s,
        via="api",
    )
