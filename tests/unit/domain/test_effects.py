"""An effect key names one call of one logical run, the same in every process and for every order of arguments."""

import json
import subprocess
import sys
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runs.domain.effects import (
    CallSite,
    EffectClass,
    arguments_digest,
    canonical_json,
    effect_key,
    sent_again_after_loss,
)

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
ARGUMENTS = st.dictionaries(st.text(min_size=1), VALUES, max_size=4)
SITES = st.builds(
    CallSite,
    st.uuids().map(lambda u: u.hex),
    st.integers(0, 50),
    st.integers(0, 1000),
    st.from_regex(r"[a-z]{1,8}\.[a-z]{1,8}", fullmatch=True),
)
SITE = CallSite("0123456789abcdef0123456789abcdef", 2, 7, "demo.create_charge")


def _reversed(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _reversed(inner) for key, inner in reversed(value.items())}
    return [_reversed(inner) for inner in value] if isinstance(value, list) else value


@given(SITES, ARGUMENTS)
def test_the_order_of_arguments_does_not_change_a_key(site: CallSite, arguments: dict[str, Any]) -> None:
    assert effect_key(site, arguments) == effect_key(site, _reversed(arguments))


@given(ARGUMENTS)
def test_canonical_json_is_the_same_value_and_survives_storage(arguments: dict[str, Any]) -> None:
    stored = json.loads(canonical_json(arguments))
    assert stored == arguments
    assert arguments_digest(stored) == arguments_digest(arguments)


@given(SITES, ARGUMENTS, SITES, ARGUMENTS)
def test_two_calls_share_a_key_only_if_they_are_the_same_call(
    site: CallSite, arguments: dict[str, Any], other: CallSite, others: dict[str, Any]
) -> None:
    same = (site, canonical_json(arguments)) == (other, canonical_json(others))
    assert (effect_key(site, arguments) == effect_key(other, others)) == same


def test_each_part_of_a_call_changes_its_key() -> None:
    sites = [
        CallSite(lineage, feed, index, tool)
        for lineage, feed, index, tool in product(("a" * 32, "a" * 31 + "b"), (1, 11), (1, 11), ("d.a", "d.b"))
    ]
    keys = [effect_key(site, arguments) for site in sites for arguments in ({}, {"n": 1}, {"n": 1.0}, {"n": True})]
    assert len(set(keys)) == len(keys)


def test_a_key_is_what_it_was_when_calls_were_stored_under_it() -> None:
    """Pinned: a change of the scheme would make every call of a paused run look new, and send it again."""
    expected = "01234567-2-7-13f1c4d65d232a665e565bab705c108e"
    assert effect_key(SITE, {"ref": "A-1", "amount": 5}) == expected


def test_another_process_with_another_hash_seed_makes_the_same_key() -> None:
    program = (
        "from runs.domain.effects import CallSite, effect_key;"
        f"print(effect_key({SITE!r}, {{'amount': 5, 'ref': 'A-1', 'tags': ['x', 'y']}}))"
    )
    keys = {
        subprocess.run(
            [sys.executable, "-c", program], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout
        for seed in ("1", "2")
    }
    assert keys == {effect_key(SITE, {"tags": ["x", "y"], "ref": "A-1", "amount": 5}) + "\n"}


@given(SITES, ARGUMENTS)
def test_a_key_fits_a_header_and_its_column(site: CallSite, arguments: dict[str, Any]) -> None:
    key = effect_key(site, arguments)
    assert key.isascii()
    assert key.replace("-", "").isalnum()
    assert len(key) <= 100


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_a_number_that_is_not_json_has_no_key(number: float) -> None:
    with pytest.raises(ValueError, match="JSON"):
        effect_key(SITE, {"amount": number})


@pytest.mark.acceptance_id("T4")
@pytest.mark.parametrize(("effect", "honours"), list(product(EffectClass, (False, True))))
def test_the_machine_repeats_a_lost_call_only_where_that_does_no_harm(effect: EffectClass, honours: bool) -> None:
    harmless = effect in (EffectClass.READ, EffectClass.IDEMPOTENT) or honours
    assert sent_again_after_loss(effect, honours) == harmless
