"""Effect classes and effect keys: what a tool call may do to the world, and the name under which it does it once.

Pure: no Django, no clock, no I/O.
"""

import hashlib
import json
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class EffectClass(StrEnum):
    """What a repeated call would do (spec/design.md, "Effects")."""

    READ = "read"
    """Changes nothing; may be repeated freely and is not in the ledger's durable path."""
    IDEMPOTENT = "idempotent"
    """Repeating it with the same arguments changes nothing more; only the source's owner may say so."""
    EFFECT = "effect"
    """The default: sent at most once per key; never re-sent by the machine when its outcome is unknown."""


class PolicyAction(StrEnum):
    """What happens when the agent calls a tool, from the least to the most restrictive."""

    ALLOW = "allow"
    REQUIRE_APPROVAL = "require_approval"
    BLOCK = "block"


class Approver(StrEnum):
    """Who may decide an approval: the run's owner (or staff), or staff only."""

    OWNER = "owner"
    STAFF = "staff"


class EffectState(StrEnum):
    RESERVED = "reserved"
    """Committed before the request leaves; found so after a crash it means *unknown*."""
    SETTLED = "settled"
    UNKNOWN = "unknown"
    RELEASED = "released"
    """A named operator found that it did not happen: it may be sent once more, under the same key."""


def canonical_json(value: Any) -> str:
    """One text for one JSON value, whatever the order of its keys. Raises ValueError for NaN and infinities."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def arguments_digest(arguments: dict[str, Any]) -> str:
    return hashlib.sha256(canonical_json(arguments).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class CallSite:
    """Where in a logical run a call was made: stable over restores, because Monty's call ids continue."""

    lineage: str
    """Id of the first run of the lineage (its own id for a run that follows no other), without dashes."""
    feed: int
    index: int
    tool: str


def effect_key(site: CallSite, arguments: dict[str, Any]) -> str:
    """The idempotency key sent upstream: readable prefix, and a digest of everything that names the call."""
    text = "\n".join((site.lineage, str(site.feed), str(site.index), site.tool, arguments_digest(arguments)))
    return f"{site.lineage[:8]}-{site.feed}-{site.index}-{hashlib.sha256(text.encode()).hexdigest()[:32]}"


def sent_again_after_loss(effect: EffectClass, honours_key: bool) -> bool:
    """Whether a call found reserved but not settled may be sent again, with the same key, by the machine itself."""
    return effect is not EffectClass.EFFECT or honours_key
