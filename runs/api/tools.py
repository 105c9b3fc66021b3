"""GET /tools, GET /tools/{address}: the catalog as the caller's programs see it."""

import asyncio
from typing import Annotated, Any

from django.http import HttpRequest
from ninja import Router
from pydantic import Field

from executor_site.orm import orm_read
from executor_site.scope import of_request
from runs.api.catalog_schemas import Offset, Query, ToolDetail, ToolPage
from runs.api.executions import ERRORS
from runs.domain import limits
from runs.domain.codes import Refusal
from runs.selectors.sources import has_connection
from runs.tools.base import ToolSpec
from runs.tools.bounds import MAX_SEARCH_LIMIT
from runs.tools.catalog import Catalog

router = Router(tags=["tools"])


@router.get("/tools", response={200: ToolPage, **ERRORS})
async def search(
    request: HttpRequest,
    query: Query = "",
    source: Query | None = None,
    limit: Annotated[int, Field(ge=1, le=MAX_SEARCH_LIMIT)] = limits.PAGE_DEFAULT,
    offset: Offset = 0,
) -> Any:
    """Tools that fit the words, the best first; without a query all of them. Blocked ones are not there."""
    request.auth.require("run")  # type: ignore[attr-defined]
    catalog = await of_request(request).catalog()
    # The first search after a change builds the index, which takes a second where there are 20,000 tools.
    total, hits = await asyncio.to_thread(catalog.search, query, source=source, limit=limit, offset=offset)
    return {"tools": [_brief(catalog, catalog.tools[hit.address]) for hit in hits], "total": total}


def _brief(catalog: Catalog, spec: ToolSpec) -> dict[str, Any]:
    decision = catalog.decision(spec)
    return {
        "address": spec.address,
        "description": spec.description,
        "effect": spec.effect,
        "source": spec.source,
        "policy": {"action": decision.action, "approver": decision.approver},
    }


@router.get("/tools/{address}", response={200: ToolDetail, **ERRORS})
async def detail(request: HttpRequest, address: str) -> Any:
    """One tool with its schema, what a call takes, and whether credentials for it are there."""
    principal = request.auth  # type: ignore[attr-defined]
    principal.require("run")
    catalog = await of_request(request).catalog()
    spec = catalog.find(address)
    if spec is None or not catalog.visible(spec):
        near = await asyncio.to_thread(catalog.near, address[: limits.QUERY_CHARS])
        hint = f"Did you mean {', '.join(near)}?" if near else "Find tools with GET /tools?query=…"
        raise Refusal("not_found", f"There is no such tool. {hint}", {"near": near})
    security: list[dict[str, Any]] = spec.binding.get("security") or []
    present = False
    if security:
        present = await orm_read(has_connection, catalog.sources[spec.source].id, principal.user_id, security)
    return {
        **catalog.describe(spec),
        "connection": {
            "needed": bool(security) and {} not in security,
            "alternatives": [sorted(alternative) for alternative in security if alternative],
            "present": present,
        },
    }
