"""Whatever a view raises is answered as the contract's error, with its code's status and nothing of ours in it."""

import json
from typing import Any

import psycopg
import pytest
from django.db import OperationalError
from django.http import Http404
from django.test import RequestFactory
from ninja.errors import AuthenticationError, HttpError, ValidationError
from psycopg_pool import PoolTimeout

from executor_site.correlation import KEY
from runs.api.errors import error_response
from runs.api.site import api
from runs.domain.codes import CODES, Refusal

SECRET = "/srv/secret.py password=hunter2"


def answer(error: Exception) -> tuple[int, dict[str, Any], Any]:
    request: Any = RequestFactory().get("/api/v1/runs")
    request.scope = {KEY: "correlation-1"}
    response = api.on_exception(request, error)
    return response.status_code, json.loads(response.content)["error"], response


@pytest.mark.acceptance_id("O1")
@pytest.mark.parametrize("name", sorted(CODES))
def test_every_code_is_answered_with_its_status_message_and_correlation_id(name: str) -> None:
    status, error, response = answer(Refusal(name, detail={"a": 1}))
    expected = CODES[name].http
    assert status == (expected if expected != 200 else 422)
    assert error == {
        "code": name, "message": CODES[name].headline, "detail": {"a": 1}, "correlation_id": "correlation-1",
    }  # fmt: skip
    assert response["Content-Type"] == "application/json"
    assert ("Retry-After" in response) == (status == 503)
    assert ("WWW-Authenticate" in response) == (status == 401)


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (Http404(SECRET), 404, "not_found"),
        (AuthenticationError(), 401, "unauthorized"),
        (HttpError(405, "Method not allowed"), 405, "method_not_allowed"),
        (HttpError(400, "Cannot parse request body"), 400, "invalid_json"),
        (HttpError(418, "teapot"), 418, "invalid_request"),
        (psycopg.OperationalError(SECRET), 503, "unavailable"),
        (psycopg.errors.AdminShutdown(SECRET), 503, "unavailable"),
        (PoolTimeout(SECRET), 503, "unavailable"),
        (OperationalError(SECRET), 503, "unavailable"),
        (RuntimeError(SECRET), 500, "internal_error"),
        (KeyError(SECRET), 500, "internal_error"),
        (psycopg.errors.CheckViolation(SECRET), 500, "internal_error"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else str(value),
)
def test_an_exception_becomes_a_code_and_tells_nothing_of_ours(error: Exception, status: int, code: str) -> None:
    got, body, response = answer(error)
    assert (got, body["code"]) == (status, code)
    assert "hunter2" not in json.dumps(body)
    assert "secret.py" not in json.dumps(body)
    assert body["correlation_id"] == "correlation-1"
    if status == 503:
        assert int(response["Retry-After"]) > 0


def test_a_validation_error_names_where_and_what_up_to_a_bound() -> None:
    errors = [{"loc": ("body", "inputs", n), "msg": f"wrong {n}", "type": "x"} for n in range(50)]
    status, error, _ = answer(ValidationError(errors))
    assert (status, error["code"]) == (422, "invalid_request")
    assert error["detail"][0] == {"where": "body.inputs.0", "message": "wrong 0"}
    assert len(error["detail"]) == 20


def test_an_answer_without_a_scope_still_has_the_shape() -> None:
    response = error_response(RequestFactory().get("/"), "not_found")
    assert json.loads(response.content)["error"]["correlation_id"] == ""
