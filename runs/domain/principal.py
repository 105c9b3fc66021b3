"""Who asks, and what they may do. Made anew for every request, so that a right that was lost is gone at once."""

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from runs.domain.codes import Refusal
from runs.domain.effects import Approver

ALL_SCOPES = frozenset({"run", "approve", "operate", "admin"})


@dataclass(frozen=True, slots=True)
class Principal:
    user_id: int
    username: str
    is_staff: bool
    scopes: frozenset[str]
    token_id: UUID | None = None
    """None: a person with a session in the browser."""

    @classmethod
    def of_token(cls, row: dict[str, Any]) -> "Principal":
        return cls(row["user_id"], row["username"], row["is_staff"], frozenset(row["scopes"]), row["token_id"])

    @classmethod
    def of_session(cls, user: Any) -> "Principal":
        """A logged-in person runs and decides; staff also operate and, as superusers, administer."""
        scopes = {"run", "approve"}
        if user.is_staff and (user.is_superuser or user.has_perm("runs.operate_run")):
            scopes.add("operate")
        if user.is_superuser:
            scopes.add("admin")
        return cls(user.pk, user.get_username(), user.is_staff, frozenset(scopes))

    @property
    def sees_all(self) -> bool:
        return self.is_staff and "operate" in self.scopes

    def sees(self, owner_id: int) -> bool:
        return self.user_id == owner_id or self.sees_all

    def require(self, scope: str) -> None:
        """Raises Refusal insufficient_scope."""
        if scope not in self.scopes:
            raise Refusal("insufficient_scope", f"This needs the scope {scope!r}.", {"required": [scope]})

    def require_sight(self, owner_id: int, what: str) -> None:
        """Another owner's object answers like one that does not exist."""
        if not self.sees(owner_id):
            raise Refusal("not_found", f"There is no such {what}.")

    def require_decision(self, approver: str) -> None:
        """Whether this principal may decide a pause of a run it sees. Raises Refusal."""
        self.require("approve")
        if approver == Approver.STAFF and not self.is_staff:
            raise Refusal("forbidden", "A policy lets only staff decide this call.")
