"""What each operation costs the database, exactly: statements sent and durable commits made. Counted, not timed.

Both are measured from outside the product. Statements are counted on the wire: the pool connects through a proxy on
a Unix socket that reads PostgreSQL's own messages (one Execute or simple Query is one statement, BEGIN and COMMIT
included). Commits are counted in the write-ahead log, which is what durability is: the distinct transactions that
changed a page of our tables and have a commit record there. `pg_stat_database` also counts reads and reports late,
and `pg_stat_wal` counts flushes of everybody; the log itself does neither.
"""

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from executor_site.api_handler import ApiHandler
from executor_site.correlation import Correlation
from executor_site.scope import ScopeMiddleware
from runs.store.transition import Connection
from tests.support.engine import BOUND_S, Site, until
from tests.support.pg import Rows, conn, database_url, rows, transactional_db

__all__ = ["conn", "database_url", "rows", "transactional_db"]


@dataclass(frozen=True)
class Cost:
    statements: int
    """Sent by the request on its own connection."""
    commits: int


COSTS = {
    # operation: statements (what they are), durable commits
    "inline, trivial": Cost(3, 2),  # token, submit, finish
    "inline, ten reads": Cost(3, 2),  # reads are written with the outcome
    "inline, one allowed effect": Cost(5, 4),  # + reserve, settle
    "inline, three allowed effects": Cost(9, 8),
    "inline, three effects gathered": Cost(7, 6),  # one reserve for all, a settle each
    "inline, one gated effect: to the pause": Cost(3, 2),  # token, submit, pause
    # token; begin, lock, decide (pause, run), resume, commit; load, reserve, settle, finish
    "resume of it": Cost(11, 4),
    "inline, refused before it runs": Cost(3, 2),
    "POST /runs": Cost(2, 1),  # token, submit
    "the same POST again": Cost(4, 0),  # token, submit, the first one's digest, its answer
    "GET a pause": Cost(2, 0),
    "cancel of a paused run": Cost(5, 2),  # token, status, ask, cancel, status
}
"""The budget of design.md, section 7, is 2 + 2k + 2p commits for k effects and p pauses; the table is exact."""


# -- measuring -------------------------------------------------------------------------------------------------


@dataclass
class Wire:
    """A proxy in front of the server; notes each statement with the application that sent it."""

    real: str
    sent: list[tuple[str, str]] = field(default_factory=list)
    tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        (length,) = struct.unpack("!i", head := await reader.readexactly(4))
        startup = await reader.readexactly(length - 4)
        parts = startup[4:].split(b"\0")
        application = dict(zip(parts[::2], parts[1::2], strict=False)).get(b"application_name", b"").decode()
        up_reader, up_writer = await asyncio.open_unix_connection(self.real)
        up_writer.write(head + startup)
        back = asyncio.create_task(_copy(up_reader, writer))
        try:
            await self._forward(application, reader, up_writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            up_writer.close()
            await asyncio.wait({back})
            writer.close()

    async def _forward(self, application: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        prepared: dict[bytes, bytes] = {}
        bound = b""
        while True:
            kind = await reader.readexactly(1)
            (length,) = struct.unpack("!i", size := await reader.readexactly(4))
            body = await reader.readexactly(length - 4)
            if kind == b"Q":
                self.sent.append((application, body.rstrip(b"\0").decode()))
            elif kind == b"P":
                name, query, _ = body.split(b"\0", 2)
                prepared[name] = query
            elif kind == b"B":
                _portal, bound, _ = body.split(b"\0", 2)
            elif kind == b"E":
                self.sent.append((application, prepared[bound].decode()))
            writer.write(kind + size + body)
            await writer.drain()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    except ConnectionError:
        pass
    writer.close()


@asynccontextmanager
async def proxied(url: str, directory: Path) -> AsyncIterator[tuple[Wire, str]]:
    params = conninfo_to_dict(url)
    port = params.get("port") or 5432
    if not str(params.get("host", "")).startswith("/"):
        pytest.skip("the proxy stands in front of a Unix socket")
    wire = Wire(f"{params['host']}/.s.PGSQL.{port}")
    server = await asyncio.start_unix_server(wire.connected, f"{directory}/.s.PGSQL.{port}")
    try:
        yield wire, make_conninfo(url, host=str(directory))
    finally:
        server.close()
        if wire.tasks:
            await asyncio.wait(wire.tasks, timeout=BOUND_S)


_COMMITS = """
WITH ours AS (
    SELECT pg_relation_filenode(oid) AS node FROM pg_class
    WHERE relkind IN ('r', 'i', 't') AND relname LIKE 'runs\\_%%'
), touched AS (
    SELECT DISTINCT b.xid FROM pg_get_wal_block_info(%(begin)s, %(end)s) b JOIN ours ON b.relfilenode = ours.node
    WHERE b.reldatabase = (SELECT oid FROM pg_database WHERE datname = current_database())
)
SELECT count(DISTINCT r.xid::text) AS n FROM pg_get_wal_records_info(%(begin)s, %(end)s) r JOIN touched USING (xid)
WHERE r.resource_manager = 'Transaction' AND r.record_type LIKE 'COMMIT%%'"""


@dataclass
class Meter:
    wire: Wire
    conn: Connection

    async def _position(self) -> str:
        """The end of the log, and all of it on disk: a synchronous commit of our own comes after it."""
        row = await (await self.conn.execute("SELECT pg_current_wal_insert_lsn()::text AS at")).fetchone()
        assert row is not None
        async with self.conn.transaction():
            await self.conn.execute("SET LOCAL synchronous_commit TO on")
            await self.conn.execute("SELECT pg_logical_emit_message(true, 'test', '')")
        return str(row["at"])

    async def measure(self, operation: Any) -> tuple[Any, Cost, list[str]]:
        """Do it; its answer, its cost and its statements."""
        begin = await self._position()
        self.wire.sent.clear()
        answer = await operation
        statements = [text for application, text in self.wire.sent if application == "executor web"]
        end = await self._position()
        row = await (await self.conn.execute(_COMMITS, {"begin": begin, "end": end})).fetchone()
        assert row is not None
        return answer, Cost(len(statements), row["n"]), [" ".join(text.split())[:90] for text in statements]


@dataclass
class Bench:
    site: Site
    meter: Meter
    client: httpx.AsyncClient

    async def costs(self, name: str, path: str, body: dict[str, Any] | None = None, **headers: str) -> dict[str, Any]:
        """Send the request, and hold its cost against the table."""
        send = self.client.get(path) if body is None else self.client.post(path, json=body, headers=headers)
        response, cost, statements = await self.meter.measure(send)
        assert response.status_code in (200, 202), response.text
        assert cost == COSTS[name], "\n".join([name, *statements])
        answer: dict[str, Any] = response.json()
        return answer

    async def execute(self, name: str, code: str) -> dict[str, Any]:
        return await self.costs(name, "/api/v1/executions", {"code": code})


@pytest.fixture
async def bench(
    database_url: str, rows: Rows, settings: Any, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Bench]:
    (extension,) = await rows.all("SELECT count(*) AS n FROM pg_available_extensions WHERE name = 'pg_walinspect'")
    if not extension["n"]:
        pytest.skip("this server cannot show its write-ahead log (pg_walinspect)")
    await rows.conn.execute("CREATE EXTENSION IF NOT EXISTS pg_walinspect")
    token = await rows.token(scopes=("run", "approve"))
    async with proxied(database_url, tmp_path_factory.mktemp("wire")) as (wire, url):
        settings.DATABASE_URL = url
        site = Site()
        await site.open()
        app: Any = Correlation(ScopeMiddleware(ApiHandler(), lambda: site))
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(
            transport=transport, base_url="http://localhost", headers={"Authorization": f"Bearer {token}"}
        ) as client:
            await client.post("/api/v1/executions", json={"code": "0"})
            try:
                yield Bench(site, Meter(wire, rows.conn), client)
            finally:
                await site.close()


# -- the table, walked -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "code", "calls"),
    [
        ("inline, trivial", "1 + 1", 0),
        ("inline, ten reads", "import demo\n[demo.get_item(id=str(i)) for i in range(10)]", 10),
        ("inline, one allowed effect", "import demo\ndemo.create_note(text='a')", 1),
        ("inline, three allowed effects", "import demo\n[demo.create_note(text=t) for t in 'abc']", 3),
        (
            "inline, three effects gathered",
            "import asyncio, demo\nawait asyncio.gather(*[demo.create_note(text=t) for t in 'abc'])",
            3,
        ),
        ("inline, refused before it runs", "x = = 1", 0),
    ],
)
async def test_an_inline_run_costs_what_the_table_says(bench: Bench, name: str, code: str, calls: int) -> None:
    answer = await bench.execute(name, code)
    assert answer["status"] == ("failed" if "refused" in name else "completed"), answer
    assert bench.site.calls.count() == calls


async def test_an_approval_costs_what_the_table_says(bench: Bench) -> None:
    code = "import demo\ndemo.create_charge(amount=1, ref='A')"
    paused = await bench.execute("inline, one gated effect: to the pause", code)
    pause = paused["execution"]["id"]
    await bench.costs("GET a pause", f"/api/v1/executions/{pause}")
    done = await bench.costs("resume of it", f"/api/v1/executions/{pause}/resume", {"action": "accept"})
    assert done["status"] == "completed"
    assert bench.site.calls.count() == 1


# The view answers in Ninja's old form; reported.
async def test_a_background_submission_costs_one_commit_and_its_repetition_none(bench: Bench) -> None:
    key = {"Idempotency-Key": "k"}
    first = await bench.costs("POST /runs", "/api/v1/runs", {"code": "1"}, **key)
    again = await bench.costs("the same POST again", "/api/v1/runs", {"code": "1"}, **key)
    assert first["run_id"] == again["run_id"]


async def test_a_cancel_costs_what_the_table_says(bench: Bench) -> None:
    paused = await bench.execute("inline, one gated effect: to the pause", "ask('go?')")
    answer = await bench.costs("cancel of a paused run", f"/api/v1/runs/{paused['run_id']}/cancel", {})
    assert answer["state"] == "cancelled"


def test_the_table_keeps_the_budget() -> None:
    """2 + 2k + 2p, of design.md section 7."""

    def budget(effects: int, pauses: int) -> int:
        return 2 + 2 * effects + 2 * pauses

    assert COSTS["inline, trivial"].commits == COSTS["inline, ten reads"].commits == budget(0, 0)
    assert COSTS["inline, one allowed effect"].commits == budget(1, 0)
    assert COSTS["inline, three allowed effects"].commits == budget(3, 0)
    assert COSTS["inline, three effects gathered"].commits <= budget(3, 0)
    whole = COSTS["inline, one gated effect: to the pause"].commits + COSTS["resume of it"].commits
    assert whole == budget(1, 1)


async def test_a_wake_up_is_one_statement_and_no_durable_commit(bench: Bench) -> None:
    """What the hub sends for waiting readers, on its own connection."""
    meter = bench.meter
    (run_id,) = [row["id"] for row in await (await meter.conn.execute("SELECT id FROM runs_run")).fetchall()]

    async def notify() -> None:
        bench.site.hub.notify(run_id)
        await until(lambda: [app for app, text in meter.wire.sent if "notify" in text], "it is sent")

    _, cost, _ = await meter.measure(notify())
    assert cost.commits == 0
    assert [app for app, _ in meter.wire.sent if app == "executor hub"] == ["executor hub"]
