"""Each request has its own engine on its own connection, and nothing of it outlives it (E15, E16).

Every observation is also made of a broken product (a mutant), and has to tell.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import pytest

from executor_site.scope import Scope
from runs.engine.context import RunIdentity
from runs.engine.engine import ExecutionEngine, ProgramText, RunEngine
from runs.services.submit import run_submit
from runs.store.transition import Connection
from tests.integration.scope.observe import start, watched_site
from tests.support.engine import Site, bounded, until

Break = Callable[[pytest.MonkeyPatch], None]


@dataclass
class Seen:
    engines: set[int] = field(default_factory=set)
    pids: dict[str, list[int]] = field(default_factory=dict)
    """The backend that each read of a request ran on."""
    in_activity: int = 0
    strays: list[str] = field(default_factory=list)

    def problems(self) -> list[str]:
        """What of E15 did not hold; empty for a product that keeps its promise."""
        found = list(self.strays)
        if len(self.engines) != 3:
            found.append(f"{len(self.engines)} engines for three requests")
        first = {pids[0] for pids in self.pids.values()}
        if len(first) != 3 or self.in_activity != 3:
            found.append(f"{len(first)} backends, {self.in_activity} seen by the server")
        if len(set(self.pids.get("slow", []))) != 1:
            found.append(f"the slow request read on {self.pids.get('slow')}")
        return found


async def _backend(engine: ExecutionEngine) -> int:
    """The backend that a statement of this engine really runs on, asked of the server."""
    assert isinstance(engine, RunEngine)
    row = await (await engine._context.conn.execute("SELECT pg_backend_pid() AS pid")).fetchone()
    assert row is not None
    return int(row["pid"])


async def three_overlapping_requests(observer: Connection) -> Seen:
    """A slow request reads, waits, and reads again after the fast one has ended; a third one is there throughout."""
    seen, engines = Seen(), []
    async with watched_site() as (site, notes):
        everybody, fast_may_end, over = asyncio.Barrier(3), asyncio.Event(), asyncio.Event()

        async def read(scope: Scope, name: str) -> None:
            engine = await scope.engine()
            engines.append(engine)
            seen.engines.add(id(engine))
            await engine.paused_execution_count()
            pid = await _backend(engine)
            seen.pids.setdefault(name, []).append(pid)
            await bounded(everybody.wait())

        async def slow(scope: Scope) -> None:
            await read(scope, "slow")
            await bounded(over.wait())
            engine = await scope.engine()
            await engine.paused_execution_count()
            seen.pids["slow"].append(await _backend(engine))

        async def fast(scope: Scope) -> None:
            await read(scope, "fast")
            await bounded(fast_may_end.wait())

        async def third(scope: Scope) -> None:
            await read(scope, "third")
            await bounded(over.wait())

        tasks = {name: start(site, name, work) for name, work in (("slow", slow), ("fast", fast), ("third", third))}
        try:
            await until(lambda: len(seen.pids) == 3, "all three have read")
            rows = await (
                await observer.execute(
                    "SELECT pid FROM pg_stat_activity WHERE application_name = 'executor web' AND pid = ANY(%s)",
                    ([pids[0] for pids in seen.pids.values()],),
                )
            ).fetchall()
            seen.in_activity = len(rows)
            fast_may_end.set()
            await bounded(tasks["fast"])
        finally:
            fast_may_end.set()
            over.set()
            done = await asyncio.gather(*tasks.values(), return_exceptions=True)
        seen.strays = notes.strays() + [f"a request failed: {error!r}" for error in done if error is not None]
    return seen


@pytest.mark.acceptance_id("E15")
async def test_three_overlapping_requests_have_three_engines_on_three_connections(observer: Connection) -> None:
    seen = await three_overlapping_requests(observer)
    assert seen.problems() == []
    assert len(seen.pids["slow"]) == 2


def shared_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """One engine for all requests, over whichever connection came first."""
    real, shared = Scope.engine, []

    async def engine(self: Scope) -> ExecutionEngine:
        if not shared:
            shared.append(await real(self))
        await self.connection()
        return shared[0]  # type: ignore[no-any-return]

    monkeypatch.setattr(Scope, "engine", engine)


def engine_on_a_fresh_connection_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection goes back after every read."""

    async def engine(self: Scope) -> ExecutionEngine:
        conn = self._conn
        if conn is not None:
            self._conn = self._engine = None
            other = await self._resources.pool.getconn()
            await self._resources.pool.putconn(conn)
            self._conn = other
        elif self._engine is None:
            await self.connection()
        assert self._conn is not None
        return RunEngine(self._context(self._conn, await self.catalog()), self._resources.active)

    monkeypatch.setattr(Scope, "engine", engine)


def connection_given_back_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection goes back at once; the engine works on with it."""
    real = Scope.engine

    async def engine(self: Scope) -> ExecutionEngine:
        found = await real(self)
        if self._conn is not None:
            await self._resources.pool.putconn(self._conn)
            self._conn = None
        return found

    monkeypatch.setattr(Scope, "engine", engine)


@pytest.mark.acceptance_id("E15")
@pytest.mark.parametrize("broken", [shared_engine, engine_on_a_fresh_connection_each_time, connection_given_back_first])
async def test_the_observation_tells_a_product_that_shares(
    observer: Connection, broken: Break, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken(monkeypatch)
    assert (await three_overlapping_requests(observer)).problems() != []


# -- background work -------------------------------------------------------------------------------------------


async def work_left_behind(owner: int) -> list[str]:
    """A view starts a program whose call hangs a while, and answers without waiting for it. What outlives it?"""
    found: list[str] = []
    async with watched_site() as (site, notes):
        held = site.calls.hold("demo.create_note")

        async def view(scope: Scope) -> None:
            await _begin(scope, site, owner, "import demo\ndemo.create_note(text='a')\nx = demo.get_item(id='1')")
            await held.arrival()
            asyncio.get_running_loop().call_later(0.05, held.release)

        await start(site, "left", view)
        found += [
            f"task {task.get_name()}" for task in asyncio.all_tasks() if task.get_name().startswith(("run", "call"))
        ]
        given = next((at for at, line in enumerate(notes.lines) if line[0] == "given"), len(notes.lines))
        if not any(line[0] == "given" for line in notes.lines):
            found.append("the connection was not given back")
        # Whatever was left would work on now: let it, then look for what it did.
        await until(lambda: not _engine_tasks(), "nothing works any more")
        found += [f"{who} sent on after its end" for what, _, who in notes.lines[given:] if what == "sent"]
        found += notes.strays()
    return found


def _engine_tasks() -> list[str]:
    return [task.get_name() for task in asyncio.all_tasks() if task.get_name().startswith(("run ", "call "))]


async def _begin(scope: Scope, site: Site, owner: int, code: str) -> None:
    conn, engine, run_id = await scope.connection(), await scope.engine(), uuid4()
    await run_submit(
        conn, run_id=run_id, inline=True, process=site.process_id, origin="inline", owner=owner, token=None,
        code=code, inputs={}, timeout_s=5,
    )  # fmt: skip
    await engine.execute_with_pause(RunIdentity(run_id, 1, owner, run_id, 5), ProgramText(code, {}))


@pytest.mark.acceptance_id("E16", "E13")
async def test_nothing_of_a_request_outlives_it(owner: int) -> None:
    assert await work_left_behind(owner) == []


def shutdown_not_awaited(monkeypatch: pytest.MonkeyPatch) -> None:
    real = RunEngine.shutdown
    running: list[Any] = []

    async def shutdown(self: RunEngine, *, within_s: float | None = None) -> None:
        running.append(asyncio.create_task(real(self, within_s=within_s)))

    monkeypatch.setattr(RunEngine, "shutdown", shutdown)


def no_shutdown_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    async def shutdown(self: RunEngine, *, within_s: float | None = None) -> None:
        self._executions.clear()

    monkeypatch.setattr(RunEngine, "shutdown", shutdown)


def connection_before_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection goes back first, then the engine is ended."""

    async def close(self: Scope, *, within_s: float | None = None) -> None:
        self._closed = True
        conn, self._conn = self._conn, None
        if conn is not None:
            await self._resources.pool.putconn(conn)
        if self._engine is not None:
            await self._engine.shutdown(within_s=within_s)

    monkeypatch.setattr(Scope, "close", close)


@pytest.mark.acceptance_id("E16")
@pytest.mark.parametrize("broken", [shutdown_not_awaited, no_shutdown_at_all, connection_before_engine])
async def test_the_observation_tells_a_product_that_leaves_work_behind(
    owner: int, broken: Break, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken(monkeypatch)
    assert await work_left_behind(owner) != []


@pytest.mark.acceptance_id("E13", "E16")
async def test_a_request_whose_client_went_away_still_ends_its_engine_before_its_connection(owner: int) -> None:
    """The server cancels the request's task; the scope's end is not cut short by it."""
    async with watched_site() as (site, notes):
        held = site.calls.hold("demo.create_note")

        async def view(scope: Scope) -> None:
            await _begin(scope, site, owner, "import demo\ndemo.create_note(text='a')")
            await held.arrival()
            await asyncio.Event().wait()

        task = start(site, "gone", view)
        await held.arrival()
        task.cancel()
        await until(lambda: notes.lines and site.active.ids(), "the scope is being closed")
        task.cancel()
        held.release()
        with pytest.raises(asyncio.CancelledError):
            await bounded(task)
        assert _engine_tasks() == []
        assert notes.strays() == []
        assert notes.lines[-1][0] == "given"


async def test_a_scope_that_has_ended_gives_no_connection_and_no_engine() -> None:
    async with watched_site() as (site, notes):
        scope = Scope(site)
        await scope.engine()
        await scope.close()
        await scope.close()
        with pytest.raises(RuntimeError):
            await scope.connection()
        with pytest.raises(RuntimeError):
            await scope.engine()
        assert [line[0] for line in notes.lines if line[0] != "sent"] == ["taken", "given"]


async def test_a_scope_that_used_nothing_takes_nothing() -> None:
    async with watched_site() as (site, notes):
        await Scope(site).close()
        assert notes.lines == []
