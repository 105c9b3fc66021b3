"""An engine on the test database: real Monty, real store, a tool side that does as it is told.

`Site` is one process's resources; `site.run(...)` starts a program through RunEngine as the services do. The
invoker counts what arrives and knows nothing of keys: what it counts is what an upstream would have seen.
"""

import asyncio
import contextlib
import inspect
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from unittest import mock
from uuid import UUID, uuid4

import pytest
from django.conf import settings

from executor_site.housekeeping import Housekeeper
from executor_site.resources import Resources
from executor_site.scope import Scope
from runs.domain.effects import EffectClass, PolicyAction
from runs.domain.principal import Principal
from runs.drivers.monty import MontyPool, MontySandbox
from runs.engine.context import RunIdentity
from runs.engine.engine import ExecutionEngine, ProgramText
from runs.engine.execution import Execution
from runs.services.resume import pause_resume
from runs.services.submit import run_execute
from runs.store.submit import run_submit
from runs.store.transition import Connection
from runs.tools.base import CallContext, CallOutcome, Succeeded, ToolSpec
from runs.tools.catalog import Catalog, SourceEntry
from runs.tools.policy import Policy
from tests.support.pg import Rows

BOUND_S = 10.0
"""How long anything here is waited for before the test fails."""

T = TypeVar("T")


async def bounded(awaitable: Awaitable[T], seconds: float = BOUND_S) -> T:
    return await asyncio.wait_for(awaitable, seconds)


async def until(condition: Callable[[], Any], what: str, seconds: float = BOUND_S) -> Any:
    """Wait until a condition of the outside world holds (a process table, a row); returns its value."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while True:
        value = condition()
        if inspect.isawaitable(value):
            value = await value
        if value:
            return value
        assert loop.time() < deadline, f"{what} did not come true within {seconds:g} s"
        await asyncio.sleep(0.002)


# -- what is called --------------------------------------------------------------------------------------------


def tool(
    name: str,
    effect: EffectClass = EffectClass.READ,
    *,
    source: str = "demo",
    required: Sequence[str] = (),
    **more: Any,
) -> ToolSpec:
    """A tool that takes `id`, `text`, `ref` (text) and `amount` (a whole number)."""
    text: dict[str, Any] = {"type": "string"}
    properties = {"id": text, "text": text, "ref": text, "amount": {"type": "integer"}}
    schema = {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}
    return ToolSpec(source, name, f"{name} of {source}", schema, None, effect, **more)


TOOLS = (
    tool("get_item", required=["id"]),
    tool("create_note", EffectClass.EFFECT, required=["text"]),
    tool("create_charge", EffectClass.EFFECT, required=["amount", "ref"]),
    tool("put_item", EffectClass.IDEMPOTENT, required=["id"]),
    tool("forbidden", EffectClass.EFFECT),
    tool("send", EffectClass.EFFECT, source="keyed", required=["text"]),
)
"""One of each kind: read, effect allowed, effect that needs approval, idempotent, blocked, effect of a source that
honours the key."""
POLICIES = (
    Policy("demo.create_note", PolicyAction.ALLOW),
    Policy("demo.put_item", PolicyAction.ALLOW),
    Policy("keyed.send", PolicyAction.ALLOW),
    Policy("demo.forbidden", PolicyAction.BLOCK),
)


def catalog(tools: Sequence[ToolSpec] = TOOLS, policies: Sequence[Policy] = POLICIES) -> Catalog:
    sources = {
        name: SourceEntry(uuid4(), name, "openapi", "http://upstream.test", "", honours_key=name == "keyed")
        for name in {spec.source for spec in tools}
    }
    return Catalog(1, sources, tools, policies)


@dataclass(frozen=True, slots=True)
class Sent:
    """One call as it arrived at the other side."""

    tool: str
    arguments: dict[str, Any]
    key: str
    run_id: str
    owner_id: int


Behaviour = CallOutcome | BaseException | Callable[[Sent], CallOutcome | Awaitable[CallOutcome]]


class Held:
    """A call that is not answered before the test says so."""

    def __init__(self, outcome: Behaviour) -> None:
        self.arrived = asyncio.Event()
        self.outcome = outcome
        self._released = asyncio.Event()

    def release(self, outcome: Behaviour | None = None) -> None:
        if outcome is not None:
            self.outcome = outcome
        self._released.set()

    async def arrival(self) -> None:
        await bounded(self.arrived.wait())

    async def answer(self) -> Behaviour:
        self.arrived.set()
        await self._released.wait()
        return self.outcome


class FakeInvoker:
    """Satisfies `runs.engine.context.Invoker`. Unscripted calls succeed with their own arguments."""

    def __init__(self) -> None:
        self.sent: list[Sent] = []
        self._script: dict[str, list[Behaviour | Held]] = {}
        self._always: dict[str, Behaviour] = {}

    def on(self, address: str, behaviour: Behaviour) -> None:
        """Every call of the tool from now on."""
        self._always[address] = behaviour

    def next(self, address: str, *behaviours: Behaviour) -> None:
        """The next calls of the tool, one each."""
        self._script.setdefault(address, []).extend(behaviours)

    def hold(self, address: str, outcome: Behaviour | None = None) -> Held:
        """The next call of the tool is kept until it is released."""
        held = Held(outcome if outcome is not None else Succeeded("held", 200))
        self._script.setdefault(address, []).append(held)
        return held

    def count(self, address: str | None = None) -> int:
        """How many calls arrived, whatever their keys."""
        return sum(address in (None, sent.tool) for sent in self.sent)

    async def invoke(
        self, source: SourceEntry, spec: ToolSpec, arguments: dict[str, Any], owner_id: int, context: CallContext
    ) -> CallOutcome:
        sent = Sent(spec.address, dict(arguments), context.idempotency_key, context.run_id, owner_id)
        self.sent.append(sent)
        script = self._script.get(spec.address)
        behaviour: Behaviour | Held | None = script.pop(0) if script else self._always.get(spec.address)
        if isinstance(behaviour, Held):
            behaviour = await behaviour.answer()
        if behaviour is None:
            return Succeeded(dict(arguments), 200)
        if isinstance(behaviour, BaseException):
            raise behaviour
        if callable(behaviour):
            answered = behaviour(sent)
            return await answered if inspect.isawaitable(answered) else answered
        return behaviour

    async def close(self) -> None:
        """What the resources' invoker has."""


# -- the process -----------------------------------------------------------------------------------------------


class WatchedPool(MontyPool):
    """The real pool; remembers what it gave out, so that a test can look at the processes."""

    def __init__(self, *, max_processes: int) -> None:
        super().__init__(directory=settings.VAR_DIR / "run", max_processes=max_processes)
        self.taken: list[MontySandbox] = []

    async def checkout(self, *, compute_s: float, tools: Any, on_print: Callable[[str], None]) -> MontySandbox:
        sandbox = await super().checkout(compute_s=compute_s, tools=tools, on_print=on_print)
        self.taken.append(sandbox)
        return sandbox


class Site(Resources):
    """The resources of one process on the test database; `hand_on` is noted instead of queued."""

    def __init__(self, *, tools: Catalog | None = None, processes: int = 4, pool_size: int = 12) -> None:
        self.workers = WatchedPool(max_processes=processes)
        self.calls = FakeInvoker()
        # Not made and replaced afterwards: the real one reads the system's certificates, a quarter of a second.
        with mock.patch("executor_site.resources.SourceInvoker", return_value=self.calls):
            super().__init__(role="web", pool_size=pool_size, sandboxes=self.workers)
        self.handed_on: list[UUID] = []
        self.scopes: list[Scope] = []
        self._tools = tools or catalog()

    async def catalog(self, conn: Connection, version: int) -> Catalog:
        return self._tools

    def hand_on(self, run_id: UUID) -> None:
        self.handed_on.append(run_id)

    def scope(self) -> Scope:
        """A scope of one request; whatever the test leaves open is closed with the site."""
        scope = Scope(self)
        self.scopes.append(scope)
        return scope

    async def close(self) -> None:
        for scope in self.scopes:
            await bounded(scope.close(within_s=0.5))
        await super().close()

    async def run(
        self,
        code: str,
        *,
        owner: int,
        scope: Scope | None = None,
        inputs: Mapping[str, Any] | None = None,
        timeout_s: float = 10.0,
        auto_approve_by: tuple[int, str] | None = None,
    ) -> "Started":
        """Submit a program inline and start it through this scope's engine, as `run_execute` does."""
        scope = scope or self.scope()
        conn, engine = await scope.connection(), await scope.engine()
        run_id = uuid4()
        await run_submit(
            conn, run_id=run_id, inline=True, process=self.process_id, origin="inline", owner=owner, token=None,
            code=code, inputs=inputs or {}, timeout_s=timeout_s,
            auto_approve_by=None if auto_approve_by is None else auto_approve_by[0],
        )  # fmt: skip
        by = None if auto_approve_by is None else auto_approve_by[1]
        identity = RunIdentity(run_id, 1, owner, run_id, timeout_s, by)
        program = ProgramText(code, inputs or {})
        execution = await (engine.execute if by else engine.execute_with_pause)(identity, program)
        return Started(self, run_id, scope, engine, execution)

    async def go_on(self, run_id: UUID, *, scope: Scope | None = None) -> "Started":
        """Resume a suspended run in a scope of its own: a new engine, as another host would."""
        scope = scope or self.scope()
        engine = await scope.engine()
        execution = await engine.resume(run_id)
        assert execution is not None, "somebody else holds the run"
        return Started(self, run_id, scope, engine, execution)


@dataclass(slots=True)
class Started:
    site: Site
    run_id: UUID
    scope: Scope
    engine: ExecutionEngine
    execution: Execution

    async def body(self, seconds: float = BOUND_S) -> dict[str, Any]:
        """The stored answer of its next stop."""
        body = await bounded(asyncio.shield(self.execution.done), seconds)
        assert body is not None, "the run was handed on"
        return body

    async def handed_on(self) -> None:
        assert await bounded(asyncio.shield(self.execution.done)) is None

    async def computing(self) -> int:
        """Wait until its program computes in a worker; the worker's pid."""
        await until(lambda: self.site.workers.taken, "a sandbox is taken")
        pid = self.site.workers.taken[-1].worker_pid
        await until(lambda: cpu_ticks(pid) > 2, "the program computes")
        return pid


@pytest.fixture
async def site(database_url: str) -> AsyncIterator[Site]:
    made = Site()
    await made.open()
    try:
        yield made
    finally:
        await made.close()


@pytest.fixture
async def owner(rows: Rows) -> int:
    return await rows.user(username="ann")


@pytest.fixture
def ann(owner: int) -> Principal:
    """A person who runs and decides."""
    return Principal(owner, "ann", False, frozenset({"run", "approve"}))


# -- the process table -----------------------------------------------------------------------------------------


def sandbox_pids() -> set[int]:
    """The living Monty workers of this process, from /proc: zombies are dead."""
    found = set()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError, ValueError):
            stat = (entry / "stat").read_text()
            state, parent = stat[stat.rindex(")") + 2 :].split()[:2]
            if int(parent) == os.getpid() and state != "Z" and b"monty" in (entry / "cmdline").read_bytes():
                found.add(int(entry.name))
    return found


def cpu_ticks(pid: int) -> int:
    text = Path(f"/proc/{pid}/stat").read_text()
    fields = text[text.rindex(")") + 2 :].split()
    return int(fields[11]) + int(fields[12])


# -- through the services --------------------------------------------------------------------------------------


async def decide(
    site: Site, principal: Principal, execution_id: str, action: str = "accept", **more: Any
) -> dict[str, Any]:
    """Decide a pause in a request of its own, as POST /executions/{id}/resume does."""
    scope = site.scope()
    try:
        options = {"wait_s": BOUND_S, "via": "api", **more}
        return await bounded(pause_resume(scope, principal, execution_id=execution_id, action=action, **options))
    finally:
        await scope.close()


async def execute(site: Site, principal: Principal, code: str, **more: Any) -> dict[str, Any]:
    """Run a program in a request of its own, as POST /executions does."""
    scope = site.scope()
    try:
        options = {"inputs": {}, "timeout_s": 10.0, "wait_s": BOUND_S, **more}
        return await bounded(run_execute(scope, principal, code=code, **options))
    finally:
        await scope.close()


async def beat(site: Site) -> None:
    """One heartbeat of the process, as its housekeeper sends it."""
    async with site.pool.connection() as conn:
        await Housekeeper(site, sweeps=False)._beat(conn)
