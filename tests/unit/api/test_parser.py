"""A body is JSON in UTF-8 within bounds, or it is refused with a code: never another exception."""

import json
from typing import Any

import pytest
from django.test import RequestFactory
from hypothesis import example, given, settings
from hypothesis import strategies as st

from runs.api.parser import StrictJSON, check_text
from runs.domain import limits
from runs.domain.codes import Refusal

FACTORY = RequestFactory()


def parse(body: bytes, kind: str = "application/json") -> Any:
    return StrictJSON().parse_body(FACTORY.post("/", data=body, content_type=kind))


def refusal(body: bytes, kind: str = "application/json") -> str:
    with pytest.raises(Refusal) as refused:
        parse(body, kind)
    assert len(refused.value.message) < 500
    return refused.value.code.name


def outcome(body: bytes) -> tuple[str, Any]:
    try:
        return "taken", parse(body)
    except Refusal as refused:
        return refused.code.name, None


texts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**30), 10**30)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=20,
)
PIECES = [b"{", b"}", b"[", b"]", b":", b",", b'"', b"\\", b"NaN", b"1e999", b"-", b"\xff", b"\xed\xa0\x80", b"\\u0000",
          b"\\ud800", b"null", b"true", b"0", b" ", b"\xef\xbb\xbf", b"\0"]  # fmt: skip


@given(values)
def test_json_is_taken_as_it_is(value: Any) -> None:
    assert parse(json.dumps(value).encode()) == value
    assert parse(json.dumps(value, ensure_ascii=False).encode()) == value


@settings(max_examples=500)
@given(st.binary(max_size=200) | st.lists(st.sampled_from(PIECES), max_size=30).map(b"".join))
@example(b"\xef\xbb\xbf{}")
@example(b'{"a": 1e999}')
@example(b"1" * 5000)
def test_any_bytes_are_json_or_a_refusal_and_what_is_taken_can_be_kept(body: bytes) -> None:
    code, value = outcome(body)
    assert code in ("taken", "invalid_json", "invalid_request")
    if code == "taken":
        text = json.dumps(value, ensure_ascii=False)
        assert "\0" not in text
        assert "\\u0000" not in text
        text.encode()


@pytest.mark.parametrize("body", [b"NaN", b"[Infinity]", b'{"a": -Infinity}', b"1e999", b"[-1e400]"])
def test_numbers_that_are_none_are_refused(body: bytes) -> None:
    assert refusal(body) == "invalid_json"


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", "invalid_json"),
        (b"{", "invalid_json"),
        (b"\xff\xfe{}", "invalid_json"),
        (b'{"a": "\xed\xa0\x80"}', "invalid_json"),
        (b'"\\u0000"', "invalid_request"),
        (b'{"\\u0000": 1}', "invalid_request"),
        (b'["\\ud800"]', "invalid_request"),
        (b'{"a": 1} {"b": 2}', "invalid_json"),
        (b"'single'", "invalid_json"),
        (b"[" * 100_000, "invalid_json"),
        (b"[" * 100_000 + b"]" * 100_000, "invalid_json"),
        (b'{"a":' * 50_000 + b"1" + b"}" * 50_000, "invalid_json"),
    ],
)
def test_what_is_no_json_or_cannot_be_kept_is_refused_by_its_code(body: bytes, code: str) -> None:
    assert refusal(body) == code


@pytest.mark.parametrize("depth", [limits.VALUE_DEPTH, limits.VALUE_DEPTH + 1])
def test_nesting_has_a_bound(depth: int) -> None:
    body = b"[" * depth + b"]" * depth
    if depth <= limits.VALUE_DEPTH:
        parse(body)
    else:
        assert refusal(body) == "invalid_json"


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "text/json"]
)
def test_other_media_types_are_refused(kind: str) -> None:
    assert refusal(b"{}", kind) == "unsupported_media_type"


@pytest.mark.parametrize("kind", ["application/json", "application/json; charset=utf-8", "Application/JSON", ""])
def test_json_under_any_spelling_is_taken(kind: str) -> None:
    assert parse(b"{}", kind) == {}


@given(values)
def test_what_can_be_kept_passes_the_check(value: Any) -> None:
    check_text(value)
