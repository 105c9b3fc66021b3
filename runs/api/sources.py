"""/sources: where tools come from. Reading needs the scope admin or operate, the rest admin.

Bodies are read by the service, not by Ninja: they may hold a document of 16 MB, which must not be parsed where
everybody else's requests are answered.
"""

import asyncio
from typing import Any

from django.http import HttpRequest, HttpResponse
from ninja import Router, Status
from pydantic import BaseModel

from executor_site.orm import orm_read
from executor_site.scope import of_request
from executor_site.source_import import source_add, source_refresh
from runs.api.catalog_schemas import Limit, Offset, SourceDetail, SourceOut, SourcePage, SourceRefreshed
from runs.api.executions import ERRORS
from runs.domain import limits
from runs.domain.codes import Refusal
from runs.domain.principal import Principal
from runs.models import Source
from runs.selectors.sources import source_named, source_page, source_shown, tools_shown
from runs.services.source_input import ChangeIn, OpenAPIIn, PythonIn, RefreshIn, read_change
from runs.services.sources import no_source, source_remove, source_update

router = Router(tags=["sources"])


def _takes(*shapes: type[BaseModel], required: bool = True) -> dict[str, Any]:
    """The body's description for the OpenAPI document."""
    schemas = [shape.model_json_schema() for shape in shapes]
    schema = schemas[0] if len(schemas) == 1 else {"oneOf": schemas}
    return {"requestBody": {"required": required, "content": {"application/json": {"schema": schema}}}}


def _json_body(request: HttpRequest) -> bytes:
    """Raises Refusal unsupported_media_type."""
    if (request.content_type or "").lower() not in ("application/json", ""):
        raise Refusal("unsupported_media_type", "Send the body as application/json.")
    return request.body


def _require_reader(principal: Principal) -> None:
    if "operate" not in principal.scopes:
        principal.require("admin")


@router.get("/sources", response={200: SourcePage, **ERRORS})
async def page(request: HttpRequest, limit: Limit = limits.PAGE_DEFAULT, offset: Offset = 0) -> Any:
    """By name, with how many tools each has."""
    _require_reader(request.auth)  # type: ignore[attr-defined]
    found, total = await orm_read(source_page, limit=limit, offset=offset)
    return {"sources": found, "total": total}


@router.get("/sources/{name}", response={200: SourceDetail, **ERRORS})
async def detail(request: HttpRequest, name: str, limit: Limit = limits.PAGE_MAX, offset: Offset = 0) -> Any:
    """One source with a page of its tools, those that wait for a review too."""
    _require_reader(request.auth)  # type: ignore[attr-defined]

    def read() -> dict[str, Any]:
        source = _named(name)
        tools = tools_shown(source, limit=limit, offset=offset)
        return source_shown(source) | {"tools": tools, "total": source.tools.count()}

    return await orm_read(read)


def _named(name: str) -> Source:
    source = None if "\0" in name else source_named(name)
    if source is None:
        raise no_source()
    return source


@router.post("/sources", response={201: SourceOut, **ERRORS}, openapi_extra=_takes(OpenAPIIn, PythonIn))
async def add(request: HttpRequest) -> Any:
    """Import a source; answers the tools found and the operations that were skipped, and why."""
    answer = await source_add(of_request(request).invoker, request.auth, _json_body(request))  # type: ignore[attr-defined]
    return HttpResponse(answer, status=201, content_type="application/json")


@router.post(
    "/sources/{name}/refresh",
    response={200: SourceRefreshed, **ERRORS},
    openapi_extra=_takes(RefreshIn, required=False),
)
async def refresh(request: HttpRequest, name: str) -> Any:
    """Import it again. New operations come ungranted: nobody can call them before PATCH … {"grant": […]}."""
    principal = request.auth  # type: ignore[attr-defined]
    principal.require("admin")
    await orm_read(_named, name)
    answer = await source_refresh(of_request(request).invoker, principal, name, _json_body(request))
    return HttpResponse(answer, content_type="application/json")


@router.patch("/sources/{name}", response={200: SourceOut, **ERRORS}, openapi_extra=_takes(ChangeIn))
async def change(request: HttpRequest, name: str) -> Any:
    """Move the service's address, grant tools, or say what a tool does; all of it or nothing."""
    request.auth.require("admin")  # type: ignore[attr-defined]
    body = _json_body(request)
    if len(body) > limits.BODY_BYTES:
        raise Refusal("payload_too_large", f"The body is over {limits.BODY_BYTES:,} bytes.")
    wanted = await asyncio.to_thread(read_change, body)

    def work() -> dict[str, Any]:
        return source_update(_named(name).name, wanted)

    return await orm_read(work)


@router.delete("/sources/{name}", response={204: None, **ERRORS})
async def remove(request: HttpRequest, name: str) -> Any:
    """The source, its tools and its connections go; runs keep their history."""
    request.auth.require("admin")  # type: ignore[attr-defined]
    await orm_read(lambda: source_remove(_named(name).name))
    return Status(204, None)
