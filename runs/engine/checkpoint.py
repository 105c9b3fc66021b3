"""The checkpoint: Monty's snapshot and the broker's half of the state, authenticated as one.

Monty's snapshots are not authenticated (of 400 bit-flipped ones 35 ran on, notes/monty.md), so nothing is
restored before its HMAC is checked.
"""

import hashlib
import hmac
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any
from uuid import UUID

from runs.domain import limits
from runs.domain.effects import canonical_json
from runs.drivers.monty import SNAPSHOT_FORMAT
from runs.store.ledger import StoredCheckpoint

STATE_VERSION = 1
FORMAT = SNAPSHOT_FORMAT * 1000 + STATE_VERSION
"""What this host can read; it takes only checkpoints up to it (roll forward only)."""


class CheckpointInvalid(Exception):
    """Its HMAC or its shape is wrong: nothing of it may be run."""


class CheckpointTooLarge(Exception):
    """The program's state is over limits.CHECKPOINT_BYTES."""


@dataclass(slots=True)
class CallRecord:
    """A call the program made and has no answer to yet, as its arguments came over the border."""

    index: int
    name: str
    args: list[Any]
    kwargs: dict[str, Any]
    wake_at: float | None = None
    """A sleep's end, in seconds since the epoch by the database's clock."""


@dataclass(slots=True)
class BrokerState:
    """The half of a run's state that is ours."""

    calls: dict[int, CallRecord] = field(default_factory=dict)
    """Calls without an answer, by index."""
    call_count: int = 0
    logs: list[str] = field(default_factory=list)
    log_bytes: int = 0
    emitted: list[Any] = field(default_factory=list)
    emitted_bytes: int = 0

    def to_json(self) -> dict[str, Any]:
        return {
            "version": STATE_VERSION,
            "calls": [asdict(call) for call in self.calls.values()],
            "call_count": self.call_count,
            "logs": self.logs,
            "log_bytes": self.log_bytes,
            "emitted": self.emitted,
            "emitted_bytes": self.emitted_bytes,
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "BrokerState":
        try:
            calls = {record["index"]: CallRecord(**record) for record in data["calls"]}
            return cls(
                calls,
                data["call_count"],
                data["logs"],
                data["log_bytes"],
                data["emitted"],
                data["emitted_bytes"],
            )
        except (KeyError, TypeError) as error:
            raise CheckpointInvalid(f"the broker's state is malformed: {error}") from error


class CheckpointKeys:
    """Signs with the first key, accepts all: a key is rotated by putting a new one in front."""

    def __init__(self, keys: Sequence[str]) -> None:
        self._keys = [hashlib.sha256(b"checkpoint\0" + key.encode()).digest() for key in keys]

    def seal(self, run_id: UUID, snapshot: bytes, state: BrokerState) -> StoredCheckpoint:
        """Raises CheckpointTooLarge."""
        data = state.to_json()
        if len(snapshot) > limits.CHECKPOINT_BYTES:
            raise CheckpointTooLarge(f"{len(snapshot):,} bytes")
        return StoredCheckpoint(snapshot, data, _mac(self._keys[0], run_id, FORMAT, snapshot, data), FORMAT)

    def open(self, run_id: UUID, stored: dict[str, Any]) -> tuple[bytes, BrokerState]:
        """Raises CheckpointInvalid."""
        snapshot, data, mac = stored["snapshot"], stored["state"], stored["mac"]
        written_as: int = stored["format"]
        if not any(hmac.compare_digest(_mac(key, run_id, written_as, snapshot, data), mac) for key in self._keys):
            raise CheckpointInvalid("the checkpoint's signature does not match")
        return snapshot, BrokerState.from_json(data)


def _mac(key: bytes, run_id: UUID, written_as: int, snapshot: bytes, data: dict[str, Any]) -> bytes:
    mac = hmac.new(key, digestmod=hashlib.sha256)
    mac.update(run_id.bytes)
    mac.update(written_as.to_bytes(4, "big"))
    mac.update(hashlib.sha256(snapshot).digest())
    mac.update(canonical_json(data).encode())
    return mac.digest()
