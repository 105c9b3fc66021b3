"""The site's own functions as tools: schemas from signatures, outcomes that say no more than is known."""

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from runs.domain.effects import Approver, EffectClass, PolicyAction
from runs.tools.arguments import ArgumentsInvalid, validate_arguments
from runs.tools.base import CallContext, CallOutcome, Refused, Succeeded, ToolSpec, Unknown, Unrepresentable
from runs.tools.policy import decide
from runs.tools.python import PythonSource
from runs.tools.python_schema import read_signature
from tests.unit.tools import sample_functions

SOURCE = PythonSource("site", "tests.unit.tools.sample_functions")
TOOLS = {spec.name: spec for spec in SOURCE.tools}


@pytest.fixture(autouse=True)
def released() -> Iterator[None]:
    sample_functions.release.clear()
    sample_functions.started.clear()
    yield
    sample_functions.release.set()


async def call(name: str, timeout_s: float = 10.0, **arguments: Any) -> CallOutcome:
    checked = validate_arguments(TOOLS[name], [], arguments)
    return await SOURCE.invoke(TOOLS[name], checked, CallContext("run-1", "key-1", timeout_s))


def test_public_functions_with_a_text_or_a_mark_are_tools() -> None:
    assert {"add", "order", "documented", "who"} <= TOOLS.keys()
    assert not {"undocumented", "_private", "tool", "PurePath", "Order"} & TOOLS.keys()


def test_marks_say_effect_class_and_default_approval() -> None:
    assert (TOOLS["add"].effect, TOOLS["documented"].effect) == (EffectClass.READ, EffectClass.EFFECT)
    decision = decide(TOOLS["order"], [])
    assert (decision.action, decision.approver) == (PolicyAction.REQUIRE_APPROVAL, Approver.STAFF)
    assert decide(TOOLS["add"], []).action is PolicyAction.ALLOW


def test_signatures_become_schemas() -> None:
    assert TOOLS["add"].input_schema == {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer", "default": 2}},
        "required": ["a"],
        "additionalProperties": False,
    }
    assert TOOLS["add"].output_schema == {"type": "integer"}
    schema = TOOLS["order"].input_schema
    assert set(schema["$defs"]) == {"Line", "Size", "Address"}
    assert schema["properties"]["speed"]["enum"] == ["slow", "fast"]
    for spec in SOURCE.tools:
        Draft202012Validator.check_schema(spec.input_schema)


def test_the_context_is_no_argument() -> None:
    assert TOOLS["who"].input_schema["properties"] == {}


async def test_synchronous_and_asynchronous_functions_are_called() -> None:
    assert await call("add", a=1) == Succeeded(3)
    assert await call("order", lines=[{"sku": "x"}], size="S", due="2026-01-02") == Succeeded(
        {"lines": [{"sku": "x", "count": 1}], "due": date(2026, 1, 2).isoformat()}
    )


async def test_run_and_key_reach_a_function_that_asks_for_them() -> None:
    assert await call("who") == Succeeded({"run": "run-1", "key": "key-1"})


async def test_arguments_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ArgumentsInvalid):
        await call("order", lines=[{"sku": 1}], size="S")
    outcome = await SOURCE.invoke(TOOLS["add"], {"a": "x"}, CallContext("r", "k", 1))
    assert isinstance(outcome, Refused)
    assert (outcome.code, outcome.sent) == ("invalid_arguments", False)


async def test_a_function_that_is_gone_is_refused() -> None:
    spec = ToolSpec("site", "gone", "", {}, None, EffectClass.READ)
    assert isinstance(await SOURCE.invoke(spec, {}, CallContext("r", "k", 1)), Refused)


@pytest.mark.acceptance_id("T2")
@pytest.mark.parametrize("name", ["fails", "fails_later"])
async def test_an_unexpected_exception_is_opaque_and_logged_under_its_id(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    for kind in ("bug", "exit"):
        outcome = await call(name, kind=kind)
        assert isinstance(outcome, Refused)
        assert outcome.code == "tool_failed"
        assert "secret detail" not in repr(outcome)
        assert outcome.message.rpartition(" ")[2].rstrip(".") in caplog.text
    assert "secret detail" in caplog.text


async def test_a_tool_error_speaks_for_itself() -> None:
    assert await call("fails", kind="told") == Refused("tool_failed", "Not enough money.")


@pytest.mark.acceptance_id("T6")
async def test_results_become_json_or_are_not_representable() -> None:
    assert await call("odd", kind="set") == Succeeded([1, 2])
    assert await call("odd", kind="path") == Succeeded("/a")
    for kind in ("object", "nan", "loop"):
        assert isinstance(await call("odd", kind=kind), Unrepresentable)


@pytest.mark.acceptance_id("T4")
@pytest.mark.parametrize("name", ["blocks", "waits", "stubborn"])
async def test_an_effect_past_its_deadline_is_unknown(name: str) -> None:
    assert isinstance(await call(name, timeout_s=0.05), Unknown)


async def test_a_read_past_its_deadline_is_a_time_out() -> None:
    outcome = await call("blocks_reading", timeout_s=0.05)
    assert isinstance(outcome, Refused)
    assert outcome.code == "upstream_timeout"


async def test_a_call_that_never_got_a_thread_was_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    with ThreadPoolExecutor(1) as threads:
        monkeypatch.setattr("runs.tools.python._threads", threads)
        first = asyncio.create_task(call("blocks"))
        await asyncio.to_thread(sample_functions.started.wait)
        outcome = await call("blocks", timeout_s=0.05)
        sample_functions.release.set()
        assert await first == Succeeded("late")
    assert isinstance(outcome, Refused)
    assert outcome.sent is False


async def test_cancelling_a_call_cancels_a_coroutine() -> None:
    sample_functions.calls.clear()
    task = asyncio.create_task(call("stubborn"))
    for _ in range(3):
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    for _ in range(3):
        await asyncio.sleep(0)
    assert sample_functions.calls == ["cancelled"]


def test_signatures_that_json_cannot_fill_are_told_at_registration() -> None:
    def positional(a: int, /) -> None: ...
    def many(*values: int) -> None: ...
    def opaque(handle: asyncio.Event) -> None: ...

    for function in (positional, many, opaque):
        with pytest.raises(TypeError, match=function.__name__):
            read_signature(function)
