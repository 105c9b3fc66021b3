"""The error registry is complete, and a retry can only be narrowed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runs.domain.codes import (
    _ROWS,
    CODES,
    RUN_CODES,
    Alert,
    Category,
    Code,
    Refusal,
    Retry,
    UnknownCode,
    code,
    code_of_stage,
    retry_allowed,
)

RUN_HTTP = 200
REQUEST_HTTP = {400, 401, 403, 404, 405, 409, 410, 413, 415, 422, 429, 500, 503}


def test_every_name_stands_in_the_registry_once() -> None:
    assert len(CODES) == len(_ROWS)
    assert all(name == row.name for name, row in CODES.items())


@pytest.mark.acceptance_id("O1")
@pytest.mark.parametrize("row", _ROWS, ids=lambda row: row.name)
def test_every_code_says_what_it_is_what_to_do_and_how_it_is_answered(row: Code) -> None:
    assert row.name.isidentifier()
    assert row.name == row.name.lower()
    assert row.headline.strip() == row.headline != ""
    assert not row.headline.endswith(".")
    assert row.operator_action.endswith(".")
    assert row.category in Category
    assert row.alert in Alert
    assert row.http == RUN_HTTP or row.http in REQUEST_HTTP


def test_no_headline_stands_for_two_codes() -> None:
    headlines = [row.headline for row in _ROWS]
    assert sorted(set(headlines)) == sorted(headlines)


def test_no_retry_can_mean_after_the_gate() -> None:
    assert {retry.value for retry in Retry} == {"never", "before_gate"}


def test_what_is_tried_again_is_infrastructure_that_never_started() -> None:
    assert {row.name for row in _ROWS if row.retry is Retry.BEFORE_GATE} == {"sandbox_start_failed"}


def test_a_run_carries_exactly_the_codes_that_are_served_with_200() -> None:
    assert list(RUN_CODES) == sorted(name for name, row in CODES.items() if row.http == RUN_HTTP)
    assert {code_of_stage(started=started) for started in (False, True)} <= set(RUN_CODES)


def test_a_code_that_a_person_must_act_on_pages_somebody() -> None:
    for name in ("sandbox_liveness_unconfirmed", "effect_unknown", "checkpoint_invalid", "internal_error"):
        assert code(name).alert is Alert.PAGE


def test_no_text_tells_an_outsider_to_retry() -> None:
    assert not [row.name for row in _ROWS if "retry" in (row.headline + row.operator_action).lower()]


@given(st.sampled_from(sorted(CODES)), st.booleans(), st.booleans())
def test_a_worker_setting_only_narrows_a_retry_and_a_started_run_has_none(
    name: str, started: bool, setting: bool
) -> None:
    granted = retry_allowed(name, started=started, worker_setting=setting)
    assert granted <= retry_allowed(name, started=started)
    assert not (granted and started)
    assert not (granted and not setting)
    assert granted == (setting and not started and code(name).retry is Retry.BEFORE_GATE)


@pytest.mark.acceptance_id("W5", "W9")
def test_an_unexpected_error_takes_its_code_from_its_stage() -> None:
    before, after = code_of_stage(started=False), code_of_stage(started=True)
    assert (before, after) == ("sandbox_start_failed", "sandbox_liveness_unconfirmed")
    assert retry_allowed(before, started=False)
    assert not retry_allowed(after, started=True, worker_setting=True)
    assert not retry_allowed(after, started=False, worker_setting=True)


def test_a_code_that_is_not_in_the_registry_is_a_defect() -> None:
    with pytest.raises(UnknownCode, match="made_up"):
        code("made_up")
    with pytest.raises(UnknownCode):
        Refusal("made_up")


def test_a_refusal_speaks_with_its_headline_unless_it_knows_better() -> None:
    assert Refusal("not_found").message == "There is no such thing here"
    refusal = Refusal("rate_limited", "Too many requests from this token", {"limit": 1}, 30)
    assert (refusal.code.http, refusal.message, refusal.detail, refusal.retry_after_s) == (
        429,
        "Too many requests from this token",
        {"limit": 1},
        30,
    )
