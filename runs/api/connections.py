"""/connections: credentials, written and never read back. One's own need the scope run, shared ones admin."""

from typing import Any

from django.http import HttpRequest
from ninja import Router, Status

from executor_site.orm import orm_read
from runs.api.catalog_schemas import ConnectionIn, ConnectionOut, ConnectionPage, Limit, Offset, Query
from runs.api.executions import ERRORS
from runs.domain import limits
from runs.selectors.sources import connection_page
from runs.services.connections import connection_add, connection_remove

router = Router(tags=["connections"])


@router.get("/connections", response={200: ConnectionPage, **ERRORS})
async def page(
    request: HttpRequest, source: Query | None = None, limit: Limit = limits.PAGE_DEFAULT, offset: Offset = 0
) -> Any:
    """Shared ones and one's own: for which source, with which schemes. Never a value."""
    principal = request.auth  # type: ignore[attr-defined]
    principal.require("run")
    if source is not None and "\0" in source:
        return {"connections": [], "total": 0}
    found, total = await orm_read(connection_page, principal.user_id, source=source, limit=limit, offset=offset)
    return {"connections": found, "total": total}


@router.post("/connections", response={201: ConnectionOut, **ERRORS})
async def add(request: HttpRequest, body: ConnectionIn) -> Any:
    """One for each source and owner. To replace it, delete it and add the new one."""
    stored = await orm_read(
        connection_add,
        request.auth,  # type: ignore[attr-defined]
        source=body.source,
        values=body.values,
        shared=body.shared,
        name=body.name,
    )
    return Status(201, stored)


@router.delete("/connections/{connection_id}", response={204: None, **ERRORS})
async def remove(request: HttpRequest, connection_id: str) -> Any:
    """The next call of its source's tools is without it."""
    await orm_read(connection_remove, request.auth, connection_id)  # type: ignore[attr-defined]
    return Status(204, None)
