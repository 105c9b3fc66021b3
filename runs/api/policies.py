"""/policies: what is allowed, asked or blocked. Scope admin."""

from typing import Any

from django.http import HttpRequest
from ninja import Router, Status

from executor_site.orm import orm_read
from runs.api.catalog_schemas import Limit, Offset, PolicyIn, PolicyOut, PolicyPage
from runs.api.executions import ERRORS
from runs.domain import limits
from runs.selectors.sources import policy_page, policy_shown
from runs.services.policies import policy_add, policy_remove

router = Router(tags=["policies"])


@router.get("/policies", response={200: PolicyPage, **ERRORS})
async def page(request: HttpRequest, limit: Limit = limits.PAGE_MAX, offset: Offset = 0) -> Any:
    """In the order in which they decide."""
    request.auth.require("admin")  # type: ignore[attr-defined]

    def read() -> dict[str, Any]:
        found, total = policy_page(limit=limit, offset=offset)
        return {"policies": [policy_shown(policy) for policy in found], "total": total}

    return await orm_read(read)


@router.post("/policies", response={201: PolicyOut, **ERRORS})
async def add(request: HttpRequest, body: PolicyIn) -> Any:
    """Holds from the next call on, in every process. Runs that wait for an approval keep waiting for it."""
    stored = await orm_read(
        policy_add,
        request.auth,  # type: ignore[attr-defined]
        pattern=body.pattern,
        action=body.action,
        approver=body.approver,
        position=body.position,
    )
    return Status(201, stored)


@router.delete("/policies/{policy_id}", response={204: None, **ERRORS})
async def remove(request: HttpRequest, policy_id: str) -> Any:
    """The next matching policy decides from now on, or the tool's default."""
    await orm_read(policy_remove, request.auth, policy_id)  # type: ignore[attr-defined]
    return Status(204, None)
