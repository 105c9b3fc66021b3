"""/healthz: this process answers. /readyz: it can take work – database there, migrated, not draining."""

import psycopg
from django.db.migrations.loader import MigrationLoader
from django.http import HttpRequest, JsonResponse
from psycopg_pool import PoolTimeout

from executor_site.scope import of_request

_applied = False
"""Once every migration of this code was seen applied, it stays so while this process lives."""

_expected: frozenset[tuple[str, str]] | None = None


async def healthz(_request: HttpRequest) -> JsonResponse:
    return JsonResponse({"status": "ok"})


async def readyz(request: HttpRequest) -> JsonResponse:
    scope = of_request(request)
    if scope.draining.is_set():
        return _not_ready("draining")
    try:
        conn = await scope.connection()
        await conn.execute("SELECT 1")
        if not await _is_migrated(conn):
            return _not_ready("migrations are missing")
    except (psycopg.Error, PoolTimeout):
        return _not_ready("the database cannot be reached")
    return JsonResponse({"status": "ready"})


async def _is_migrated(conn: object) -> bool:
    global _applied, _expected
    if _applied:
        return True
    if _expected is None:
        _expected = frozenset(MigrationLoader(None, ignore_no_migrations=True).disk_migrations)
    cursor = await conn.execute("SELECT app, name FROM django_migrations")  # type: ignore[attr-defined]
    found = {(row["app"], row["name"]) for row in await cursor.fetchall()}
    _applied = _expected <= found
    return _applied


def _not_ready(why: str) -> JsonResponse:
    response = JsonResponse({"status": "not ready", "why": why}, status=503)
    response["Retry-After"] = "2"
    return response
