"""`shutdown` interrupts a sandbox and waits until it has unwound, seen on its process; nobody else is slowed (E14).

The observation is also made of broken products, and has to tell.
"""

import asyncio
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from runs.drivers.monty import MontySandbox
from runs.engine.engine import ExecutionEngine, RunEngine
from tests.support.engine import Site, bounded, cpu_ticks, sandbox_pids, until
from tests.support.pg import Rows

BUSY = "x = 0\nwhile True:\n    x = x + 1"
COMPUTE_S = 1.5
"""The compute time of a busy program: what a shutdown without an interrupt would wait for."""
QUICK_S = 0.75


async def end_of_a_busy_scope(site: Site, rows: Rows, owner: int) -> list[str]:
    """Close a scope whose program computes; what of E14 did not hold when `close` returned?"""
    run = await site.run(BUSY, owner=owner, timeout_s=COMPUTE_S)
    worker = await run.computing()
    loop = asyncio.get_running_loop()
    begun = loop.time()
    await bounded(run.scope.close())
    took = loop.time() - begun
    found = []
    if worker in sandbox_pids():
        found.append("the sandbox's process lives")
    if took > QUICK_S:
        found.append(f"it took {took:.2f} s: nothing was interrupted")
    if not run.execution.done.done():
        found.append("the execution has not unwound")
    state = (await rows.get("runs_run", run.run_id))["state"]
    if state != "suspended":
        found.append(f"the run is {state}, not handed on")
    if not run.execution.done.done():
        await bounded(run.execution.wait())
    return found


@pytest.mark.acceptance_id("E14")
async def test_a_scope_ends_only_after_its_computing_sandbox_is_dead_and_its_run_handed_on(
    site: Site, rows: Rows, owner: int
) -> None:
    assert await end_of_a_busy_scope(site, rows, owner) == []


@pytest.mark.acceptance_id("E14")
async def test_a_parked_sandbox_is_dead_when_the_scope_has_ended(site: Site, rows: Rows, owner: int) -> None:
    """Parked: it waits for the end of a short sleep, and computes nothing."""
    run = await site.run("sleep(0.9)", owner=owner)
    await until(lambda: site.workers.taken, "it holds a sandbox")
    worker = site.workers.taken[0].worker_pid
    await until(lambda: worker in sandbox_pids() and _sleeps(worker), "it is parked")
    await bounded(run.scope.close(), 0.8)
    assert worker not in sandbox_pids()
    assert run.execution.done.done()
    assert (await rows.get("runs_run", run.run_id))["state"] == "suspended"


def _sleeps(pid: int) -> bool:
    text = Path(f"/proc/{pid}/stat").read_text()
    return text[text.rindex(")") + 2] == "S"


def without_awaiting_shutdown(monkeypatch: pytest.MonkeyPatch) -> None:
    real, running = RunEngine.shutdown, []

    async def shutdown(self: RunEngine, *, within_s: float | None = None) -> None:
        running.append(asyncio.create_task(real(self, within_s=within_s)))

    monkeypatch.setattr(RunEngine, "shutdown", shutdown)


def without_the_interrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    async def interrupt(self: MontySandbox) -> None:
        """Waits for the program to end by itself."""

    monkeypatch.setattr(MontySandbox, "interrupt", interrupt)


def without_waiting_for_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    async def shutdown(self: RunEngine, *, within_s: float | None = None) -> None:
        for execution in self._executions:
            execution._task.cancel()

    monkeypatch.setattr(RunEngine, "shutdown", shutdown)


@pytest.mark.acceptance_id("E14")
@pytest.mark.parametrize("broken", [without_awaiting_shutdown, without_the_interrupt, without_waiting_for_the_process])
async def test_the_observation_tells_a_shutdown_that_does_not_wait_or_does_not_interrupt(
    site: Site, rows: Rows, owner: int, broken: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        broken(patched)
        assert await end_of_a_busy_scope(site, rows, owner) != []


@pytest.mark.acceptance_id("E14")
async def test_a_normal_request_is_not_slowed_by_anothers_shutdown(site: Site, owner: int) -> None:
    busy = await site.run(BUSY, owner=owner, timeout_s=COMPUTE_S)
    await busy.computing()
    closing = asyncio.create_task(busy.scope.close())
    loop = asyncio.get_running_loop()
    begun = loop.time()
    run = await site.run("1 + 1", owner=owner)
    assert (await run.body())["result"] == 2
    await bounded(run.scope.close())
    assert loop.time() - begun < QUICK_S
    await bounded(closing)


async def test_the_end_of_a_finished_scope_waits_for_nothing(site: Site, owner: int) -> None:
    run = await site.run("1 + 1", owner=owner)
    await run.body()
    await bounded(run.scope.close(), 0.2)


async def test_calls_in_flight_get_the_time_that_is_left_and_are_unknown_after_it(
    site: Site, rows: Rows, owner: int
) -> None:
    held = site.calls.hold("demo.create_note")
    run = await site.run("import demo\ndemo.create_note(text='a')", owner=owner)
    await held.arrival()
    await bounded(run.scope.close(within_s=0.05), 2)
    body = await run.body()
    assert (body["status"], body["effects"][0]["tool"]) == ("unconfirmed", "demo.create_note")
    assert (await rows.all("SELECT state FROM runs_effect"))[0]["state"] == "unknown"


async def test_a_call_that_may_be_repeated_is_handed_on_unsettled(site: Site, rows: Rows, owner: int) -> None:
    held = site.calls.hold("demo.put_item")
    run = await site.run("import demo\ndemo.put_item(id='1')", owner=owner)
    await held.arrival()
    await bounded(run.scope.close(within_s=0.05), 2)
    assert (await rows.get("runs_run", run.run_id))["state"] == "suspended"
    assert (await (await site.go_on(run.run_id)).body())["result"] == {"id": "1"}
    assert len({sent.key for sent in site.calls.sent}) == 1


async def test_many_scopes_end_within_one_budget(site: Site, owner: int) -> None:
    runs = [await site.run(BUSY, owner=owner, timeout_s=5) for _ in range(4)]
    await until(lambda: len(site.workers.taken) == 4, "all compute")
    pids = [sandbox.worker_pid for sandbox in site.workers.taken]
    await until(lambda: all(cpu_ticks(pid) > 1 for pid in pids), "all compute")
    await bounded(asyncio.gather(*(run.scope.close(within_s=1) for run in runs)), 3)
    assert sandbox_pids().isdisjoint(pids)


# -- the interface ---------------------------------------------------------------------------------------------

REQUIRED = ["execute", "execute_with_pause", "get_paused_execution", "paused_execution_count", "resume", "shutdown"]


@pytest.mark.acceptance_id("E14")
@pytest.mark.parametrize("missing", REQUIRED)
def test_a_wrapper_that_lacks_a_method_cannot_be_built(missing: str) -> None:
    body = {name: getattr(RunEngine, name) for name in ExecutionEngine.__abstractmethods__ if name != missing}
    wrapper = type("Wrapper", (ExecutionEngine,), body)
    with pytest.raises(TypeError, match=missing):
        wrapper()
    whole = type("Wrapper", (ExecutionEngine,), body | {missing: getattr(RunEngine, missing)})
    whole()


@pytest.mark.acceptance_id("E14")
def test_a_wrapper_that_lacks_shutdown_does_not_pass_the_type_check(tmp_path: Path) -> None:
    """The check runs on the abstract class alone, copied with its types: a second, instead of half a minute."""
    source = Path(sys.modules[ExecutionEngine.__module__].__file__ or "").read_text()
    start = source.index("class ExecutionEngine(ABC):")
    text = source[start : source.index("\nclass ", start + 1)]
    names = ("RunIdentity", "ProgramText", "Execution", "UUID")
    head = "from abc import ABC, abstractmethod\nfrom typing import Any\n" + "".join(
        f"class {name}: ...\n" for name in names
    )
    methods = "".join(
        f"    async def {name}(self, *args: Any, **kwargs: Any) -> Any: ...\n"
        for name in sorted(ExecutionEngine.__abstractmethods__ - {"shutdown"})
    )
    wrapper = f"\nclass Wrapper(ExecutionEngine):\n{methods}\n"
    shutdown = textwrap.indent("async def shutdown(self, *args: Any, **kwargs: Any) -> None: ...\n", "    ")
    (tmp_path / "lacks.py").write_text(f"{head}{text}{wrapper}\nWrapper()\n")
    (tmp_path / "whole.py").write_text(f"{head}{text}{wrapper}{shutdown}\nWrapper()\n")

    def check(name: str) -> str:
        command = [sys.executable, "-m", "mypy", "--config-file", "", "--cache-dir", str(tmp_path / name), f"{name}.py"]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60).stdout

    lacks = check("lacks")
    assert 'abstract attribute "shutdown"' in lacks, lacks
    assert "abstract" not in check("whole")
