"""Policies: lowest position first, the most restrictive of a tie, and later layers only tighten."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runs.domain.effects import Approver, EffectClass, PolicyAction
from runs.tools.base import ToolSpec
from runs.tools.policy import Decision, PatternInvalid, Policy, decide, match

ALLOW, ASK, BLOCK = PolicyAction.ALLOW, PolicyAction.REQUIRE_APPROVAL, PolicyAction.BLOCK
STRICT = {(ALLOW, "owner"): 0, (ALLOW, "staff"): 0, (ASK, "owner"): 1, (ASK, "staff"): 2}


def spec(effect: EffectClass = EffectClass.EFFECT, **binding: str) -> ToolSpec:
    return ToolSpec("demo", "create_charge", "", {}, None, effect, dict(binding))


def strictness(decision: Decision) -> int:
    return STRICT.get((decision.action, decision.approver.value), 3)


POLICIES = st.builds(
    Policy,
    st.sampled_from(["*", "demo.*", "demo.create_*", "demo.create_charge", "other.*", "*.delete_*"]),
    st.sampled_from(PolicyAction),
    st.sampled_from(Approver),
    st.integers(0, 3),
    st.uuids().map(str),
)
LAYERS = st.lists(st.lists(POLICIES, max_size=4), max_size=4)


@pytest.mark.parametrize(
    ("pattern", "address", "expected"),
    [
        ("*", "demo.get_item", True),
        ("demo.*", "demo.get_item", True),
        ("demo.*", "demo2.get_item", False),
        ("demo.create_*", "demo.create_charge", True),
        ("demo.create_*", "demo.recreate_charge", False),
        ("*.delete_*", "shop.delete_all", True),
        ("demo.*_item", "demo.get_item", True),
        ("demo.get_item", "demo.get_item", True),
        ("Demo.get_item", "demo.get_item", False),
        ("demo.*", "demo.a.b", False),
        ("d*o.*t*m", "demo.get_item", True),
    ],
)
def test_patterns_match_by_segment(pattern: str, address: str, expected: bool) -> None:
    assert match(pattern, address) is expected


@pytest.mark.parametrize("pattern", ["", "demo", "demo.", ".x", "a.b.c", "demo.get item", "demo.[a]", "x" * 201])
def test_invalid_patterns_are_refused(pattern: str) -> None:
    with pytest.raises(PatternInvalid):
        match(pattern, "demo.get_item")


@pytest.mark.timeout(10)
def test_a_pattern_of_many_stars_costs_little() -> None:
    assert not match("demo." + "a*" * 90 + "b", "demo." + "a" * 20_000)


def test_without_a_policy_the_effect_class_decides() -> None:
    assert decide(spec(EffectClass.READ), []).action is ALLOW
    for effect in (EffectClass.IDEMPOTENT, EffectClass.EFFECT):
        decision = decide(spec(effect), [[]])
        assert (decision.action, decision.approver, decision.policy_id) == (ASK, Approver.OWNER, None)


def test_a_trusted_source_may_declare_its_own_default() -> None:
    assert decide(spec(approval="none"), []).action is ALLOW
    assert decide(spec(EffectClass.READ, approval="staff"), []).approver is Approver.STAFF


@pytest.mark.acceptance_id("T10")
def test_the_lowest_position_decides_and_a_tie_goes_to_the_most_restrictive() -> None:
    layer = [
        Policy("*", BLOCK, position=2, id="late"),
        Policy("demo.*", ALLOW, position=1, id="loose"),
        Policy("demo.create_*", ASK, Approver.STAFF, 1, "tight"),
        Policy("demo.create_*", ASK, Approver.OWNER, 1, "middle"),
    ]
    assert decide(spec(), [layer]).policy_id == "tight"


@pytest.mark.acceptance_id("T10")
def test_a_scoped_view_can_only_tighten() -> None:
    site = [Policy("*", ASK, id="site")]
    assert decide(spec(), [site, [Policy("*", ALLOW, id="token")]]).policy_id == "site"
    assert decide(spec(), [site, [Policy("*", ASK, Approver.STAFF, id="token")]]).policy_id == "token"
    assert decide(spec(), [site, [Policy("other.*", BLOCK, id="token")]]).policy_id == "site"
    assert decide(spec(EffectClass.READ), [[], [Policy("*", BLOCK, id="token")]]).action is BLOCK


@given(LAYERS, st.lists(POLICIES, max_size=4), st.sampled_from(EffectClass))
def test_another_layer_never_loosens(layers: list[list[Policy]], more: list[Policy], effect: EffectClass) -> None:
    layers = layers or [[]]
    assert strictness(decide(spec(effect), [*layers, more])) >= strictness(decide(spec(effect), layers))


@given(LAYERS.filter(bool), st.randoms(), st.sampled_from(EffectClass))
def test_the_order_inside_a_layer_does_not_matter(
    layers: list[list[Policy]], random: object, effect: EffectClass
) -> None:
    shuffled = [list(layer) for layer in layers]
    for layer in shuffled:
        random.shuffle(layer)  # type: ignore[attr-defined]
    assert decide(spec(effect), shuffled) == decide(spec(effect), layers)
