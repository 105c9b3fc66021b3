"""Each outcome renders exactly the fields of the contract (spec/http-api.md, "Result union")."""

import json
from typing import Any, get_args

import pytest

from runs.domain.codes import RUN_CODES
from runs.domain.outcomes import (
    INSTRUCTIONS,
    Cancelled,
    Completed,
    Failed,
    Outcome,
    Paused,
    Question,
    Running,
    Unconfirmed,
    execution_id,
)

QUESTION = Question("exec_1", "approval", "May it?", "demo.create_charge", {"amount": 5}, "2030-01-01T00:00:00Z", "u")
ASKED = Question(
    "exec_2", "form", "Which?", "ask", {}, "2030-01-01T00:00:00Z", "u", requested_schema={"type": "object"}
)
VISIT = Question("exec_3", "url", "Log in", "open_url", {}, "2030-01-01T00:00:00Z", "u", url="https://example.test")
EXECUTION = {"id", "kind", "message", "tool", "args", "expires_at", "approve_url"}

CONTRACT: list[tuple[Outcome, str, set[str]]] = [
    (Completed("r", None, []), "completed", {"result", "logs"}),
    (
        Completed("r", 1, ["x"], emitted=[1], truncated={"result": {}}),
        "completed",
        {"result", "logs", "emitted", "truncated"},
    ),
    (Failed("r", "program_error", "m", 3, 0, 0, []), "failed", {"error", "retry_safe", "effects", "logs"}),
    (Paused("r", QUESTION), "paused", {"execution", "instructions"}),
    (Running("r", "/events"), "running", {"events_url"}),
    (Cancelled("r"), "cancelled", set()),
    (
        Unconfirmed("r", "effect_unknown", "m", [{"key": "k", "tool": "t", "state": "unknown"}], "/op"),
        "unconfirmed",
        {"error", "retry_safe", "effects", "operator_url"},
    ),
]


@pytest.mark.parametrize(("outcome", "status", "fields"), CONTRACT, ids=lambda value: getattr(value, "status", ""))
def test_an_outcome_has_exactly_the_fields_of_the_contract(outcome: Outcome, status: str, fields: set[str]) -> None:
    body = outcome.body()
    assert set(body) == {"status", "run_id"} | fields
    assert (body["status"], body["run_id"]) == (status, "r")
    assert json.loads(json.dumps(body)) == body


def test_every_kind_of_outcome_is_in_the_contract() -> None:
    assert {type(outcome) for outcome, _, _ in CONTRACT} == set(get_args(Outcome))


@pytest.mark.parametrize(
    ("question", "more"),
    [(QUESTION, set()), (ASKED, {"requested_schema"}), (VISIT, {"url"})],
    ids=["approval", "form", "url"],
)
def test_a_question_shows_a_schema_or_an_address_only_where_it_has_one(question: Question, more: set[str]) -> None:
    body = Paused("r", question).body()
    assert set(body["execution"]) == EXECUTION | more
    assert body["instructions"] == INSTRUCTIONS[question.kind]


def test_an_empty_schema_is_shown_and_a_missing_result_is_null() -> None:
    question = Question("exec_1", "form", "m", "ask", {}, "t", "u", requested_schema={})
    assert question.body()["requested_schema"] == {}
    assert Completed("r", None, []).body()["result"] is None


@pytest.mark.parametrize("line", [None, 1])
def test_an_error_names_its_line_only_where_there_is_one(line: int | None) -> None:
    error = Failed("r", "syntax_error", "m", line, 0, 0, []).body()["error"]
    assert error == {"code": "syntax_error", "message": "m", **({} if line is None else {"line": line})}


@pytest.mark.parametrize(("settled", "unknown"), [(0, 0), (1, 0), (0, 1), (2, 3)])
def test_a_failed_run_is_safe_to_repeat_only_where_the_ledger_proves_that_nothing_was_done(
    settled: int, unknown: int
) -> None:
    body: dict[str, Any] = Failed("r", "program_error", "m", None, settled, unknown, []).body()
    assert body["retry_safe"] is (settled == unknown == 0)
    assert body["effects"] == {"settled": settled, "unknown": unknown}


@pytest.mark.acceptance_id("M4")
def test_no_code_makes_an_unconfirmed_run_safe_to_repeat_and_no_text_says_retry() -> None:
    for code in RUN_CODES:
        body = Unconfirmed("r", code, "m", [], "/op").body()
        assert body["retry_safe"] is False
    assert not [text for text in INSTRUCTIONS.values() if "retry" in text.lower()]


def test_an_execution_id_names_its_pause() -> None:
    assert execution_id("5b1c") == "exec_5b1c"
