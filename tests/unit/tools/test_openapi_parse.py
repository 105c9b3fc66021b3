"""Documents become plain values, and hostile ones cost no more than their text."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runs.tools.bounds import MAX_DOCUMENT_BYTES
from runs.tools.errors import DocumentError
from runs.tools.openapi_parse import parse_document


def code_of(text: bytes) -> str:
    with pytest.raises(DocumentError) as caught:
        parse_document(text)
    return caught.value.code


def test_json_and_yaml_of_one_document_are_equal() -> None:
    text = b"""
openapi: "3.0.3"
info: {title: T, version: 1.0}
paths:
  /items:
    get: &get
      responses:
        200: {description: fine}
    put:
      <<: *get
      deprecated: true
x-date: 2026-01-02
x-no: no
x-null: ~
x-text: |
  line
x-hex: 0x1F
"""
    root = parse_document(text)
    assert root["paths"]["/items"]["put"] == {"responses": {"200": {"description": "fine"}}, "deprecated": True}
    assert (root["x-date"], root["x-no"], root["x-null"]) == ("2026-01-02", "no", None)
    assert (root["x-text"], root["x-hex"], root["info"]["version"]) == ("line\n", 31, 1.0)
    assert parse_document(json.dumps(root).encode()) == root


@given(
    st.dictionaries(
        st.text(max_size=5),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.text(max_size=5),
            lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
            max_leaves=8,
        ),
        min_size=1,
    )
)
def test_json_is_read_as_it_is_but_for_nul(value: dict[str, object]) -> None:
    text = json.dumps(value)
    if "\\u0000" not in text and "\\ud" not in text:
        assert parse_document(text.encode()) == value


def test_of_a_key_given_twice_the_last_one_counts() -> None:
    assert parse_document(b"a: 1\na: 2\n") == parse_document(b'{"a": 1, "a": 2}') == {"a": 2}


def test_nul_and_lone_surrogates_cannot_get_into_the_database() -> None:
    assert parse_document(rb'{"a\u0000": ["\ud800x", "\ud83d\ude00"]}') == {"a\ufffd": ["\ufffdx", "\U0001f600"]}


@pytest.mark.parametrize(
    "text",
    [
        b"? [a, b]\n: c\n",
        b"!!python/object/apply:os.system [x]",
        b"",
        b"[]",
        b"- a",
        b"just text",
        b"{",
        b"a: [",
        b"a: *b",
        b"a: &x [*x]",
        b"---\na: 1\n---\nb: 2\n",
        b"\xff\xfe\xff",
    ],
)
def test_what_is_no_document_is_refused(text: bytes) -> None:
    assert code_of(text) == "spec_invalid"


@pytest.mark.parametrize("number", [b"NaN", b"1e999", b"9" * 5000])
def test_numbers_that_json_does_not_know_are_text_at_most(number: bytes) -> None:
    assert parse_document(b'{"a": ' + number + b"}") == {"a": number.decode()}


def test_the_place_of_an_error_is_told() -> None:
    with pytest.raises(DocumentError, match="line 3"):
        parse_document(b"a: 1\nb: [\n")


@pytest.mark.acceptance_id("T12")
@pytest.mark.timeout(20)
def test_a_billion_laughs_are_refused() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    assert code_of("\n".join(lines).encode()) == "spec_too_large"


@pytest.mark.timeout(20)
@pytest.mark.parametrize("text", [b"[" * 100_000, b'{"a":' * 100_000, b"a: " + b"[" * 5_000 + b"]" * 5_000])
def test_deep_nesting_is_refused(text: bytes) -> None:
    assert code_of(text) == "spec_invalid"


@pytest.mark.timeout(20)
def test_nesting_by_aliases_is_refused() -> None:
    lines = ["a0: &a0 [x]"] + [f"a{n}: &a{n} [*a{n - 1}]" for n in range(1, 5_000)]
    assert code_of("\n".join(lines).encode()) == "spec_invalid"


def test_a_document_over_the_bound_is_refused_unread() -> None:
    assert code_of(b" " * (MAX_DOCUMENT_BYTES + 1)) == "spec_too_large"
