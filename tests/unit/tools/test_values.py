"""`to_json`: what programs and tools hand over becomes plain, bounded JSON, or is refused with its place."""

import json
from collections import namedtuple
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import PurePosixPath
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runs.tools.values import NotJSON, to_json

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner),
    max_leaves=20,
)


@dataclass
class Point:
    x: int
    y: tuple[int, ...]


class Size(Enum):
    SMALL = "S"


Pair = namedtuple("Pair", "a b")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ((1, [2, (3,)]), [1, [2, [3]]]),
        ({3, 1, 2}, [1, 2, 3]),
        (frozenset(["b", "a"]), ["a", "b"]),
        (Pair(1, 2), [1, 2]),
        (datetime(2026, 1, 2, 3, 4, tzinfo=UTC), "2026-01-02T03:04:00+00:00"),
        (date(2026, 1, 2), "2026-01-02"),
        (timedelta(minutes=1.5), 90.0),
        (Decimal("5.00"), 5),
        (Decimal("0.5"), 0.5),
        (Decimal("0.12345678901234567890123"), "0.12345678901234567890123"),
        (b"\x00\xff", "AP8="),
        (PurePosixPath("/a/b"), "/a/b"),
        (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (Size.SMALL, "S"),
        (Point(1, (2,)), {"x": 1, "y": [2]}),
        ({7: "a", None: "b", True: "c"}, {"7": "a", "null": "b", "true": "c"}),
    ],
)
def test_values_of_programs_become_plain_json(value: object, expected: object) -> None:
    assert to_json(value) == expected


@given(JSON_VALUES)
def test_json_passes_unchanged_and_its_size_is_counted_exactly(value: object) -> None:
    size = len(json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode())
    assert to_json(value, max_bytes=size) == value
    if size > 0:
        with pytest.raises(NotJSON):
            to_json(value, max_bytes=size - 1)


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ({"a": [1, float("nan")]}, "$.a[1]"),
        (float("inf"), "$"),
        (Decimal("NaN"), "$"),
        ({"a": object()}, "$.a"),
        (["\ud800"], "$[0]"),
        ({(1, 2): 3}, "$"),
        ({1: "a", "1": "b"}, "$"),
        ([10**5000], "$[0]"),
        (3 + 4j, "$"),
    ],
)
def test_what_has_no_json_form_is_refused_with_its_place(value: object, path: str) -> None:
    with pytest.raises(NotJSON) as caught:
        to_json(value)
    assert caught.value.path == path


def test_a_cycle_is_refused() -> None:
    loop: list[object] = []
    loop.append({"again": loop})
    with pytest.raises(NotJSON, match="contains itself"):
        to_json(loop)


def test_depth_is_bounded() -> None:
    deep: object = 1
    for _ in range(10_000):
        deep = [deep]
    with pytest.raises(NotJSON, match="levels deep"):
        to_json(deep)


def test_one_object_referred_to_a_billion_times_costs_no_more_than_the_bound() -> None:
    bomb: list[object] = ["x"]
    for _ in range(40):
        bomb = [bomb, bomb]
    with pytest.raises(NotJSON, match="larger than"):
        to_json(bomb, max_bytes=10_000)


def test_bytes_are_refused_by_size_before_they_are_encoded() -> None:
    with pytest.raises(NotJSON, match="larger than"):
        to_json(bytes(2_000), max_bytes=1_000)


@pytest.mark.parametrize("value", ["a\0b", ["x", {"k": "\0"}], {"\0": 1}])
def test_a_nul_character_is_refused_because_the_database_could_not_keep_it(value: object) -> None:
    with pytest.raises(NotJSON, match="NUL"):
        to_json(value)
