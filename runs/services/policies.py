"""What is allowed, asked or blocked: adding and removing policies. Synchronous; scope admin."""

from typing import Any
from uuid import UUID

from runs.domain import limits
from runs.domain.codes import Refusal
from runs.domain.effects import Approver, PolicyAction
from runs.domain.principal import Principal
from runs.selectors.sources import policy_shown
from runs.store.policies import policy_create, policy_delete
from runs.tools.policy import PatternInvalid, check_pattern


def policy_add(
    principal: Principal, *, pattern: str, action: PolicyAction, approver: Approver, position: int
) -> dict[str, Any]:
    """Committed on return; the next call of any process goes by it. Raises Refusal."""
    principal.require("admin")
    try:
        check_pattern(pattern)
    except PatternInvalid as error:
        raise Refusal("invalid_request", f"pattern: {error}.") from None
    policy = policy_create(
        pattern=pattern,
        action=action,
        approver=approver,
        position=position,
        by=principal.user_id,
        at_most=limits.POLICIES,
    )
    if policy is None:
        raise Refusal("invalid_request", f"There are {limits.POLICIES:,} policies, the most there may be.")
    return policy_shown(policy)


def policy_remove(principal: Principal, policy_id: str) -> None:
    """Committed on return. Raises Refusal: insufficient_scope, not_found."""
    principal.require("admin")
    try:
        removed = policy_delete(UUID(policy_id))
    except ValueError:
        removed = False
    if not removed:
        raise Refusal("not_found", "There is no such policy.")
