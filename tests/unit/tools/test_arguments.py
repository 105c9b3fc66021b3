"""Arguments are checked against the tool's schema, and a refusal tells what was expected and what came."""

from decimal import Decimal
from typing import Any

import pytest

from runs.domain.effects import EffectClass
from runs.tools.arguments import ArgumentsInvalid, validate_arguments
from runs.tools.base import ToolSpec
from runs.tools.bounds import MAX_VALIDATORS
from runs.tools.validators import cached_validators


def spec(properties: dict[str, Any], required: list[str] | None = None, **more: Any) -> ToolSpec:
    schema = {"type": "object", "properties": properties, "additionalProperties": False, "required": required or []}
    return ToolSpec(
        "demo", "create_charge", "", schema | more, None, EffectClass.EFFECT, sensitive=frozenset(["token"])
    )


CHARGE = spec({"ref": {"type": "string"}, "amount": {"type": "integer"}, "note": {"type": "string"}}, ["amount"])


def refused(tool: ToolSpec, *args: object, **kwargs: object) -> ArgumentsInvalid:
    with pytest.raises(ArgumentsInvalid) as caught:
        validate_arguments(tool, args, kwargs)
    return caught.value


def test_positional_arguments_fill_required_properties_first_then_the_declared_order() -> None:
    assert validate_arguments(CHARGE, [5, "A-1"], {"note": "x"}) == {"amount": 5, "ref": "A-1", "note": "x"}


def test_too_many_positional_arguments_are_refused() -> None:
    assert "at most 3 arguments" in refused(CHARGE, 1, 2, 3, 4).message


def test_an_argument_given_twice_is_refused() -> None:
    assert refused(CHARGE, 5, amount=6).path == "amount"


@pytest.mark.acceptance_id("E3")
def test_an_unknown_name_is_refused_with_near_ones() -> None:
    error = refused(CHARGE, amount=5, amont=6)
    assert error.near == ("amount",)
    assert "'amont'" in error.message
    assert "did you mean 'amount'" in error.message


def test_a_missing_argument_is_named_with_its_kind() -> None:
    error = refused(CHARGE, ref="x")
    assert (error.path, "'amount' (integer)" in error.message) == ("amount", True)


@pytest.mark.acceptance_id("E3")
def test_a_wrong_type_names_the_argument_what_was_expected_and_what_came() -> None:
    assert refused(CHARGE, amount="ten").message == (
        "demo.create_charge: argument 'amount': expected integer, got \"ten\" (string)"
    )


def test_a_boolean_is_no_integer() -> None:
    assert "got true (boolean)" in refused(CHARGE, amount=True).message


def test_the_place_inside_a_nested_argument_is_named() -> None:
    lines = {"type": "array", "items": {"type": "object", "properties": {"size": {"enum": ["S", "M"]}}}}
    error = refused(spec({"lines": lines}), lines=[{"size": "S"}, {"size": "XL"}])
    assert error.path == "lines[1].size"
    assert 'one of ["S", "M"]' in error.message


def test_secret_values_never_stand_in_a_message() -> None:
    tool = spec({"token": {"type": "string", "maxLength": 3}, "deep": {"type": "object"}})
    assert "hunter2" not in refused(tool, token="hunter2").message


def test_values_are_normalised_before_they_are_checked() -> None:
    assert validate_arguments(CHARGE, [], {"amount": Decimal("5.00")}) == {"amount": 5}


def test_a_value_without_json_form_is_refused_with_its_place() -> None:
    assert refused(CHARGE, amount=float("nan")).path == "amount"


def test_defaults_are_left_to_the_upstream() -> None:
    assert validate_arguments(spec({"size": {"type": "string", "default": "S"}}), [], {}) == {}


def test_formats_are_not_asserted() -> None:
    assert validate_arguments(spec({"at": {"type": "string", "format": "date"}}), ["soon"], {}) == {"at": "soon"}


def test_recursive_schemas_are_followed() -> None:
    node = {"type": "object", "properties": {"next": {"$ref": "#/$defs/Node"}}, "additionalProperties": False}
    tool = spec({"root": {"$ref": "#/$defs/Node"}}, **{"$defs": {"Node": node}})
    assert validate_arguments(tool, [], {"root": {"next": {"next": {}}}})
    assert refused(tool, root={"next": {"nxt": {}}}).path == "root.next"


@pytest.mark.timeout(10)
def test_a_catastrophic_pattern_costs_linear_time() -> None:
    tool = spec({"name": {"type": "string", "pattern": "^(a+)+$"}})
    assert "pattern" in refused(tool, name="a" * 50_000 + "!").message
    assert validate_arguments(tool, ["aaa"], {})


def test_a_pattern_that_the_engine_does_not_know_is_not_asserted() -> None:
    assert validate_arguments(spec({"name": {"type": "string", "pattern": "(?=x)y"}}), ["y"], {})


@pytest.mark.timeout(10)
def test_unique_items_are_checked_in_linear_time() -> None:
    tool = spec({"items": {"type": "array", "uniqueItems": True}})
    assert validate_arguments(tool, [[{"n": n} for n in range(50_000)]], {})
    assert refused(tool, items=[{"a": 1}, {"a": 1}]).path == "items"


def test_a_broken_schema_is_an_answer_not_a_crash() -> None:
    assert "own schema cannot be used" in refused(spec({"a": {"$ref": "#/$defs/Missing"}}), a=1).message
    assert "own schema cannot be used" in refused(spec({"a": {"$ref": "http://127.0.0.1:1/x"}}), a=1).message


def test_an_optional_group_needs_its_required_members() -> None:
    tool = spec({"a": {}, "b": {}}, dependentRequired={"a": ["a", "b"], "b": ["a", "b"]})
    assert validate_arguments(tool, [], {}) == {}
    assert "'b'" in refused(tool, a=1).message


def test_the_cache_of_compiled_schemas_is_bounded() -> None:
    for number in range(MAX_VALIDATORS + 20):
        validate_arguments(spec({f"a{number}": {"type": "integer"}}), [1], {})
    assert cached_validators() <= MAX_VALIDATORS
