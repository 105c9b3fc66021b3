"""Policies: which action a call of a tool takes, from layers of patterns. Pure."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from runs.domain.effects import Approver, EffectClass, PolicyAction
from runs.tools.base import ToolSpec
from runs.tools.bounds import MAX_PATTERN_CHARS

_PATTERN = re.compile(r"\*|[A-Za-z0-9_*]+\.[A-Za-z0-9_*]+")

_STRICTNESS: dict[tuple[PolicyAction, Approver], int] = {
    (PolicyAction.ALLOW, Approver.OWNER): 0,
    (PolicyAction.ALLOW, Approver.STAFF): 0,
    (PolicyAction.REQUIRE_APPROVAL, Approver.OWNER): 1,
    (PolicyAction.REQUIRE_APPROVAL, Approver.STAFF): 2,
    (PolicyAction.BLOCK, Approver.OWNER): 3,
    (PolicyAction.BLOCK, Approver.STAFF): 3,
}
"""From the least to the most restrictive; who approves only counts where somebody does."""

_DEFAULTS: dict[EffectClass, PolicyAction] = {
    EffectClass.READ: PolicyAction.ALLOW,
    EffectClass.IDEMPOTENT: PolicyAction.REQUIRE_APPROVAL,
    EffectClass.EFFECT: PolicyAction.REQUIRE_APPROVAL,
}

DECLARED_APPROVAL = "approval"
"""Key of a binding under which a *trusted* source (the site's own Python functions) states its default."""

_DECLARED: dict[str, tuple[PolicyAction, Approver]] = {
    "none": (PolicyAction.ALLOW, Approver.OWNER),
    "owner": (PolicyAction.REQUIRE_APPROVAL, Approver.OWNER),
    "staff": (PolicyAction.REQUIRE_APPROVAL, Approver.STAFF),
}


class PatternInvalid(ValueError):
    """A policy's pattern is neither `*` nor `source.tool` with `*` as wildcard inside the two names."""


@dataclass(frozen=True, slots=True)
class Policy:
    """One line of a layer: tools whose address matches `pattern` take `action`."""

    pattern: str
    action: PolicyAction
    approver: Approver = Approver.OWNER
    position: int = 0
    """Lower positions decide first."""
    id: str | None = None

    @property
    def strictness(self) -> int:
        return _STRICTNESS[self.action, self.approver]


@dataclass(frozen=True, slots=True)
class Decision:
    """What a call of the tool takes, and why."""

    action: PolicyAction
    approver: Approver
    policy_id: str | None
    """The deciding policy; None where the tool's own default decides."""
    reason: str


def check_pattern(pattern: str) -> str:
    """`pattern` itself. Raises PatternInvalid with what is allowed."""
    if len(pattern) > MAX_PATTERN_CHARS:
        raise PatternInvalid(f"a pattern has at most {MAX_PATTERN_CHARS} characters")
    if not _PATTERN.fullmatch(pattern):
        raise PatternInvalid("a pattern is `*` or `source.tool`, where `*` stands for any part of a name")
    return pattern


def match(pattern: str, address: str) -> bool:
    """Whether the pattern covers the address `source.tool`; case counts. Raises PatternInvalid."""
    check_pattern(pattern)
    if pattern == "*":
        return True
    parts, names = pattern.split("."), address.split(".")
    return len(parts) == len(names) and all(_glob(part, name) for part, name in zip(parts, names, strict=True))


def decide(spec: ToolSpec, layers: Sequence[Sequence[Policy]]) -> Decision:
    """The action for a call of `spec`: by the first layer (the site's) or the default, tightened by the rest.

    Within a layer the matching policies of the lowest position decide, the most restrictive of them. A later
    layer can only tighten: where none of its policies matches, or a looser one, nothing changes. Of equally
    restrictive layers the earlier one is named.
    """
    site = layers[0] if layers else ()
    policy = _of_layer(spec.address, site)
    decision = _default(spec) if policy is None else _by(policy)
    for layer in layers[1:]:
        policy = _of_layer(spec.address, layer)
        if policy is not None and policy.strictness > _STRICTNESS[decision.action, decision.approver]:
            decision = _by(policy)
    return decision


def _of_layer(address: str, layer: Iterable[Policy]) -> Policy | None:
    matching = [policy for policy in layer if match(policy.pattern, address)]
    if not matching:
        return None
    return min(matching, key=lambda policy: (policy.position, -policy.strictness, policy.pattern, policy.id or ""))


def _by(policy: Policy) -> Decision:
    reason = f"policy `{policy.pattern}` at position {policy.position}"
    return Decision(policy.action, policy.approver, policy.id, reason)


def _default(spec: ToolSpec) -> Decision:
    declared = _DECLARED.get(str(spec.binding.get(DECLARED_APPROVAL)))
    if declared is not None:
        return Decision(*declared, None, f"declared by the source {spec.source}")
    return Decision(_DEFAULTS[spec.effect], Approver.OWNER, None, f"default for a tool of class {spec.effect}")


def _glob(pattern: str, name: str) -> bool:
    """`*` as any text. Greedy with one way back: at most |pattern| by |name| steps, unlike a regex."""
    p = n = 0
    star, resume = -1, 0
    while n < len(name):
        if p < len(pattern) and pattern[p] == "*":
            star, resume = p, n
            p += 1
        elif p < len(pattern) and pattern[p] == name[n]:
            p += 1
            n += 1
        elif star >= 0:
            resume += 1
            p, n = star + 1, resume
        else:
            return False
    return all(char == "*" for char in pattern[p:])
