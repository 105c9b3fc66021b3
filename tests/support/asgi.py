"""The whole site in the test's own process: the real ASGI application, its lifespan, and an HTTP client per person.

Requests go through every layer but the socket. The tables are empty before and after each test (`pg.database_url`).
"""

import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

import httpx
import pytest
from asgiref.sync import sync_to_async
from psycopg.conninfo import conninfo_to_dict

from tests.support.pg import database_url, transactional_db  # noqa: F401 - fixtures of those who use these


@dataclass
class Site:
    """Makes users and clients. `superuser` and `staff` are flags of the user a client is made for."""

    application: Any
    _clients: list[httpx.AsyncClient] = field(default_factory=list)

    async def client(
        self,
        *scopes: str,
        user: str = "ann",
        is_staff: bool = False,
        address: tuple[str, int] = ("127.0.0.1", 50_000),
    ) -> httpx.AsyncClient:
        """A client with a new token of this user; without scopes, one without a token."""
        headers = {}
        if scopes:
            headers["Authorization"] = f"Bearer {await sync_to_async(_issue)(user, scopes, is_staff)}"
        client = httpx.AsyncClient(
            transport=httpx.ASGITransport(self.application, client=address),
            base_url="http://testserver",
            headers=headers,
            timeout=60,
        )
        self._clients.append(client)
        return client

    async def close(self) -> None:
        for client in self._clients:
            await client.aclose()


def _issue(username: str, scopes: Sequence[str], is_staff: bool) -> str:
    from django.contrib.auth.models import User
    from django.db import connections

    from runs.services.tokens import token_issue

    try:
        user, _ = User.objects.get_or_create(username=username)
        if user.is_staff != is_staff:
            user.is_staff = is_staff
            user.save()
        return token_issue(username=username, scopes=scopes)[1]
    finally:
        # The thread keeps its connection otherwise, and the test database cannot be dropped.
        connections.close_all()


@pytest.fixture
async def site(database_url: str, settings: Any, tmp_path: Any) -> AsyncIterator[Site]:  # noqa: F811
    """Started and, at the end, stopped: whatever it still held by then would be reported by pytest."""
    settings.DATABASE_URL = _as_url(database_url)
    settings.ALLOWED_HOSTS = ["testserver"]
    settings.PYTHON_SOURCES = {"sample": "tests.unit.tools.sample_functions"}
    from executor_site.asgi import application, lifespan

    await lifespan.start()
    running = Site(application)
    try:
        yield running
    finally:
        await running.close()
        await lifespan.stop()


def _as_url(conninfo: str) -> str:
    """The form that the environment variable has: processes that the site starts get it."""
    parts = {key: str(value) for key, value in conninfo_to_dict(conninfo).items() if value is not None}
    return f"postgresql:///{parts.pop('dbname')}?{urlencode(parts)}"


def problem(response: httpx.Response) -> tuple[int, str]:
    """Status and code of an answer that is an error."""
    return response.status_code, response.json()["error"]["code"]


def document(paths: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"openapi": "3.1.0", "info": {"title": "Shop", "version": "1"}, "paths": paths} | more


def operation(operation_id: str, **more: Any) -> dict[str, Any]:
    return {"operationId": operation_id, "responses": {"200": {"description": "ok"}}} | more


def big_document(size: int) -> bytes:
    """An OpenAPI document of at least this many bytes, with schemas that refer to each other in loops."""
    schemas: dict[str, Any] = {}
    paths: dict[str, Any] = {}
    written, number = 0, 0
    while written < size:
        name = f"Thing{number}"
        schemas[name] = {
            "type": "object",
            "description": f"A thing number {number}. " * 12,
            "properties": {
                f"field_{i}": {"type": "string", "description": f"Field {i} of thing {number}. " * 4} for i in range(12)
            }
            | {
                "parent": {"$ref": f"#/components/schemas/Thing{max(0, number - 1)}"},
                "self": {"$ref": f"#/components/schemas/{name}"},
            },
        }
        body = {"required": True, "content": {"application/json": {"schema": {"$ref": f"#/components/schemas/{name}"}}}}
        paths[f"/things{number}"] = {
            "post": operation(f"create_thing_{number}", summary=f"Make thing {number}", requestBody=body),
            "get": operation(f"list_things_{number}", summary=f"List things {number}"),
        }
        written += len(json.dumps(schemas[name])) + len(json.dumps(paths[f"/things{number}"]))
        number += 1
    return json.dumps(
        document(paths, servers=[{"url": "https://big.example"}], components={"schemas": schemas})
    ).encode()
