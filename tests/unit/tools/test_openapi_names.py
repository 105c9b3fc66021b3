"""Names of tools and arguments are identifiers, stable, and never shared."""

import keyword
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runs.tools.bounds import MAX_NAME_CHARS
from runs.tools.openapi_names import PLACES, argument_names, tool_names

OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(["get", "post", "delete"]),
        st.from_regex(r"(/[a-zA-Z0-9_.{}-]{0,12}){1,4}", fullmatch=True),
        st.none() | st.text(max_size=20) | st.sampled_from(["list", "getItem", "get_item", "get-item", "import"]),
    ),
    unique_by=lambda operation: operation[:2],
    max_size=12,
)
KEYS = st.lists(
    st.tuples(st.sampled_from(PLACES), st.text(max_size=8) | st.sampled_from(["id", "ID", "i-d", "id_query", "class"])),
    unique=True,
    max_size=12,
)


def name(method: str, path: str, operation_id: str | None = None) -> str:
    return tool_names([(method, path, operation_id)])[0]


@pytest.mark.parametrize(
    ("operation_id", "expected"),
    [
        ("createCharge", "create_charge"),
        ("users.list-all", "users_list_all"),
        ("getHTTPResponse", "get_http_response"),
        ("GetItems_V2", "get_items_v2"),
        ("import", "import_"),
        ("list", "list_"),
        ("2fa/enable", "op_2fa_enable"),
        ("Préférences", "preferences"),
        ("__init__", "init"),
        ("列表", "get_items_by_id"),
        ("", "get_items_by_id"),
        (None, "get_items_by_id"),
    ],
)
def test_a_name_comes_from_the_operation_id_or_else_from_method_and_path(
    operation_id: str | None, expected: str
) -> None:
    assert name("get", "/items/{id}", operation_id) == expected


def test_operations_that_would_share_a_name_all_get_a_longer_one() -> None:
    names = tool_names([("get", "/users", "list"), ("get", "/items", "list"), ("get", "/x", "other")])
    assert names == ["list_get_users", "list_get_items", "other"]


def test_long_names_are_cut_and_stay_different() -> None:
    one, two = tool_names([("get", "/a", "x" * 200 + "a"), ("get", "/b", "x" * 200 + "b")])
    assert one != two
    assert max(len(one), len(two)) <= MAX_NAME_CHARS


@given(OPERATIONS, st.integers())
def test_names_are_different_identifiers_whatever_the_order(
    operations: list[tuple[str, str, str | None]], seed: int
) -> None:
    names = tool_names(operations)
    assert len(set(names)) == len(names)
    assert all(n.isidentifier() and not keyword.iskeyword(n) and len(n) <= MAX_NAME_CHARS + 1 for n in names)
    shuffled = list(zip(operations, names, strict=True))
    random.Random(seed).shuffle(shuffled)
    assert tool_names([operation for operation, _ in shuffled]) == [n for _, n in shuffled]


@given(OPERATIONS, OPERATIONS)
def test_a_name_does_not_pass_to_another_operation_because_a_sibling_appears(
    old: list[tuple[str, str, str | None]], more: list[tuple[str, str, str | None]]
) -> None:
    added = [operation for operation in more if operation[:2] not in {o[:2] for o in old}]
    everything = [*old, *added]
    before = dict(zip(tool_names(old), old, strict=True))
    after = dict(zip(tool_names(everything), everything, strict=True))
    for shared in before.keys() & after.keys():
        # Only an operation that is called so by itself may take a name over.
        assert after[shared][:2] == before[shared][:2] or name(*after[shared]) == shared


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ([("header", "X-Request-ID")], ["x_request_id"]),
        ([("path", "id"), ("query", "id")], ["id", "id_query"]),
        ([("query", "id"), ("path", "id"), ("header", "id")], ["id_query", "id", "id_header"]),
        ([("query", "class"), ("query", "type")], ["class_", "type"]),
        ([("query", "a-b"), ("query", "a_b")], ["a_b_query", "a_b"]),
        ([("path", "id"), ("query", "id"), ("query", "id_query")], ["id", None, "id_query"]),
        ([("query", "$filter"), ("query", "1st")], ["filter", "arg_1st"]),
    ],
)
def test_arguments_are_named_by_their_places(keys: list[tuple[str, str]], expected: list[str | None]) -> None:
    names = argument_names(keys)
    assert all(names[key] == wanted for key, wanted in zip(keys, expected, strict=True) if wanted is not None)


@given(KEYS, st.integers())
def test_argument_names_are_different_identifiers_whatever_the_order(keys: list[tuple[str, str]], seed: int) -> None:
    names = argument_names(keys)
    assert len(set(names.values())) == len(keys)
    assert all(n.isidentifier() and not keyword.iskeyword(n) for n in names.values())
    shuffled = list(keys)
    random.Random(seed).shuffle(shuffled)
    assert argument_names(shuffled) == names
