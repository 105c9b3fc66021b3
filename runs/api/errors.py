"""Every refusal and failure as the contract's error: `{"error": {code, message, detail?, correlation_id}}`."""

import json
from typing import Any

import psycopg
import structlog
from django.db import OperationalError
from django.http import Http404, HttpRequest, HttpResponse
from ninja import NinjaAPI
from ninja.errors import AuthenticationError, HttpError, ValidationError
from psycopg_pool import PoolTimeout

from executor_site.correlation import KEY
from runs.domain.codes import Refusal, code

log = structlog.get_logger(__name__)

_STATUS_CODES = {
    400: "invalid_request",
    401: "unauthorized",
    403: "forbidden",
    404: "not_found",
    405: "method_not_allowed",
    413: "payload_too_large",
    415: "unsupported_media_type",
    422: "invalid_request",
    429: "rate_limited",
}
_DETAILS = 20
"""Validation errors shown of one request."""


def error_response(
    request: HttpRequest,
    name: str,
    message: str | None = None,
    detail: Any = None,
    *,
    status: int | None = None,
    retry_after_s: int | None = None,
) -> HttpResponse:
    row = code(name)
    error: dict[str, Any] = {"code": row.name, "message": message or row.headline}
    if detail is not None:
        error["detail"] = detail
    error["correlation_id"] = getattr(request, "scope", {}).get(KEY, "")
    response = HttpResponse(
        json.dumps({"error": error}, default=str), status=status or row.http, content_type="application/json"
    )
    if retry_after_s is not None or response.status_code == 503:
        response["Retry-After"] = str(retry_after_s or 2)
    if response.status_code == 401:
        response["WWW-Authenticate"] = "Bearer"
    return response


def _where(location: tuple[object, ...]) -> str:
    """`body.code`: the place, and not also the name of the view's own parameter."""
    parts = [str(part) for part in location]
    return ".".join(parts[:1] + parts[2:] if parts[:2] == ["body", "body"] else parts)


def install(api: NinjaAPI) -> None:
    """Map whatever a view raises to the contract. Unexpected exceptions are logged whole and answered opaquely."""

    @api.exception_handler(Refusal)
    def refused(request: HttpRequest, error: Refusal) -> HttpResponse:
        status = error.code.http if error.code.http != 200 else 422
        return error_response(
            request, error.code.name, error.message, error.detail, status=status, retry_after_s=error.retry_after_s
        )

    @api.exception_handler(ValidationError)
    def invalid(request: HttpRequest, error: ValidationError) -> HttpResponse:
        detail = [{"where": _where(item["loc"]), "message": item["msg"]} for item in error.errors[:_DETAILS]]
        first = f"{detail[0]['where']}: {detail[0]['message']}" if detail else None
        return error_response(request, "invalid_request", first, detail)

    @api.exception_handler(HttpError)
    def http_error(request: HttpRequest, error: HttpError) -> HttpResponse:
        if isinstance(error.__cause__, Refusal):  # our parser's, wrapped by Ninja
            return refused(request, error.__cause__)
        if error.status_code == 400 and "parse" in str(error).lower():
            return error_response(request, "invalid_json", "The body is not JSON in UTF-8.")
        name = _STATUS_CODES.get(error.status_code, "invalid_request")
        return error_response(request, name, str(error), status=error.status_code)

    @api.exception_handler(AuthenticationError)
    def unauthorized(request: HttpRequest, _error: AuthenticationError) -> HttpResponse:
        return error_response(request, "unauthorized")

    @api.exception_handler(Http404)
    def missing(request: HttpRequest, _error: Http404) -> HttpResponse:
        return error_response(request, "not_found")

    @api.exception_handler(psycopg.OperationalError)
    @api.exception_handler(PoolTimeout)
    @api.exception_handler(OperationalError)
    def database_away(request: HttpRequest, error: Exception) -> HttpResponse:
        log.warning("database_away", error=type(error).__name__)
        return error_response(request, "unavailable", "The database cannot be reached right now.", retry_after_s=2)

    @api.exception_handler(Exception)
    def unexpected(request: HttpRequest, error: Exception) -> HttpResponse:
        log.error("unexpected_error", path=request.path, exc_info=error)
        return error_response(request, "internal_error", "An unexpected error; the log has it under this id.")
