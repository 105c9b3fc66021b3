"""A checkpoint opens only as it was sealed: every flipped bit, another run and another key are refused."""

import json
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runs.domain import limits
from runs.engine.checkpoint import (
    BrokerState,
    CallRecord,
    CheckpointInvalid,
    CheckpointKeys,
    CheckpointTooLarge,
)
from runs.store.ledger import StoredCheckpoint

RUN = UUID("12345678-1234-5678-1234-567812345678")
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
calls = st.builds(
    CallRecord,
    index=st.integers(0, 1000),
    name=st.text(max_size=20),
    args=st.lists(json_values, max_size=3),
    kwargs=st.dictionaries(st.text(max_size=5), json_values, max_size=3),
    wake_at=st.none() | st.floats(0, 1e10),
)
states = st.builds(
    BrokerState,
    calls=st.lists(calls, max_size=3, unique_by=lambda call: call.index).map(
        lambda c: {call.index: call for call in c}
    ),
    call_count=st.integers(0, 1000),
    logs=st.lists(st.text(), max_size=3),
    log_bytes=st.integers(0, 10**7),
    emitted=st.lists(json_values, max_size=3),
    emitted_bytes=st.integers(0, 10**6),
)


def as_read(stored: StoredCheckpoint) -> dict[str, object]:
    """As the database gives it back: the state went through its JSON."""
    return {
        "snapshot": stored.snapshot,
        "state": json.loads(json.dumps(stored.state)),
        "mac": stored.mac,
        "format": stored.format,
    }


@given(snapshot=st.binary(max_size=200), state=states)
def test_what_was_sealed_opens_as_it_was(snapshot: bytes, state: BrokerState) -> None:
    keys = CheckpointKeys(["key"])
    assert keys.open(RUN, as_read(keys.seal(RUN, snapshot, state))) == (snapshot, state)


@given(data=st.data(), snapshot=st.binary(min_size=1, max_size=200), state=states)
def test_one_flipped_bit_anywhere_is_refused(data: st.DataObject, snapshot: bytes, state: BrokerState) -> None:
    keys = CheckpointKeys(["key"])
    sealed = as_read(keys.seal(RUN, snapshot, state))
    part = data.draw(st.sampled_from(["snapshot", "mac"]))
    whole = bytearray(sealed[part])  # type: ignore[call-overload]
    at = data.draw(st.integers(0, len(whole) * 8 - 1))
    whole[at // 8] ^= 1 << at % 8
    with pytest.raises(CheckpointInvalid):
        keys.open(RUN, {**sealed, part: bytes(whole)})


@given(state=states, other=states)
def test_another_state_under_the_same_signature_is_refused(state: BrokerState, other: BrokerState) -> None:
    keys = CheckpointKeys(["key"])
    sealed = as_read(keys.seal(RUN, b"x", state))
    forged = {**sealed, "state": json.loads(json.dumps(other.to_json()))}
    if forged["state"] == sealed["state"]:
        keys.open(RUN, forged)
    else:
        with pytest.raises(CheckpointInvalid):
            keys.open(RUN, forged)


@given(snapshot=st.binary(max_size=50))
def test_another_run_another_key_and_no_signature_are_refused(snapshot: bytes) -> None:
    sealed = as_read(CheckpointKeys(["key"]).seal(RUN, snapshot, BrokerState()))
    for keys, run_id, changed in (
        (CheckpointKeys(["key"]), uuid4(), {}),
        (CheckpointKeys(["another"]), RUN, {}),
        (CheckpointKeys(["key"]), RUN, {"mac": b""}),
        (CheckpointKeys(["key"]), RUN, {"mac": bytes(32)}),
        (CheckpointKeys(["key"]), RUN, {"snapshot": snapshot + b"\0"}),
    ):
        with pytest.raises(CheckpointInvalid):
            keys.open(run_id, {**sealed, **changed})


def test_keys_rotate_by_a_new_one_in_front() -> None:
    old, both, new = CheckpointKeys(["old"]), CheckpointKeys(["new", "old"]), CheckpointKeys(["new"])
    sealed = as_read(old.seal(RUN, b"x", BrokerState()))
    assert both.open(RUN, sealed)[0] == b"x"
    with pytest.raises(CheckpointInvalid):
        new.open(RUN, sealed)
    assert new.open(RUN, as_read(both.seal(RUN, b"y", BrokerState())))[0] == b"y", "signed with the first"


def test_a_malformed_state_is_refused_even_under_a_right_signature() -> None:
    keys = CheckpointKeys(["key"])

    class Malformed(BrokerState):
        def to_json(self) -> dict[str, object]:
            return {"version": 1, "calls": [{"index": 1}]}

    with pytest.raises(CheckpointInvalid):
        keys.open(RUN, as_read(keys.seal(RUN, b"x", Malformed())))


def test_a_state_over_the_bound_is_not_sealed() -> None:
    keys = CheckpointKeys(["key"])
    keys.seal(RUN, bytes(limits.CHECKPOINT_BYTES), BrokerState())
    with pytest.raises(CheckpointTooLarge):
        keys.seal(RUN, bytes(limits.CHECKPOINT_BYTES + 1), BrokerState())
