"""The test database for tests of what commits: its address, an autocommit connection, and a factory of rows.

Each test gets empty tables: they are emptied when it ends, past the triggers and in one round trip (Django's flush
truncates and recreates permissions, which costs more than most of these tests). A lock that a test left behind
fails this within LOCK_TIMEOUT, so a leaked transaction fails the test that leaked it.
"""

import os
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo
from psycopg.rows import dict_row
from psycopg.types.json import Jsonb

from runs.domain.effects import EffectClass, EffectState
from runs.domain.process import ProcessIdentity
from runs.domain.states import CODED, HELD, NOT_STARTED, TERMINAL, RunKind, RunState
from runs.drivers.identity import identity_of
from runs.store.access import token_digest
from runs.store.ledger import StoredCheckpoint
from runs.store.transition import Connection

LOCK_TIMEOUT = "5s"
_TABLES = """
SELECT string_agg(format('DELETE FROM %I', tablename), ';') FROM pg_tables
WHERE schemaname = 'public' AND tablename <> 'runs_catalogversion'
    AND (tablename LIKE 'runs\\_%' OR tablename LIKE 'django\\_q\\_%'
        OR tablename IN ('auth_user', 'django_session', 'django_admin_log'))"""


async def connect(url: str, *, name: str = "test") -> Connection:
    return await psycopg.AsyncConnection.connect(url, autocommit=True, row_factory=dict_row, application_name=name)


@pytest.fixture
def transactional_db(django_db_setup: None, django_db_blocker: Any, settings: Any) -> Iterator[str]:
    """Takes the place of pytest-django's fixture of this name; pytest-django makes the test database by this name."""
    from django.db import connection, connections

    with django_db_blocker.unblock():
        name = str(connection.settings_dict["NAME"])
        # Emptying is not for a database that somebody uses: without a test database Django is still on the real one.
        assert name.startswith("test_"), f"{name} is not a test database"
        url = make_conninfo(settings.DATABASE_URL, dbname=name)
        settings.DATABASE_URL = url
        try:
            yield url
        finally:
            connections.close_all()
            with psycopg.connect(url, autocommit=True) as conn:
                found = conn.execute(_TABLES).fetchone()
                assert found is not None
                settings_now = f"SET lock_timeout = '{LOCK_TIMEOUT}'; SET session_replication_role = replica"
                conn.execute(f"{settings_now};{found[0]}".encode())


@pytest.fixture
def database_url(transactional_db: str) -> str:
    """The test database's address, also in `settings.DATABASE_URL`; its tables are empty again afterwards."""
    return transactional_db


@pytest.fixture
async def conn(database_url: str) -> AsyncIterator[Connection]:
    """An autocommit connection of the test's own, rows as dicts: the store's kind of connection."""
    async with await connect(database_url) as connection:
        yield connection


@pytest.fixture
async def observer(database_url: str) -> AsyncIterator[Connection]:
    """Another connection: it sees only what is committed."""
    async with await connect(database_url, name="observer") as connection:
        yield connection


@pytest.fixture
def rows(conn: Connection) -> "Rows":
    return Rows(conn)


def checkpoint(data: bytes = b"snapshot") -> StoredCheckpoint:
    """A checkpoint whose content nobody reads."""
    return StoredCheckpoint(data, {}, b"mac", 1)


class Rows:
    """Writes rows as they are asked for, past the triggers (not past the constraints): any state can be the start."""

    def __init__(self, conn: Connection) -> None:
        self.conn = conn
        self._owner: int | None = None
        self._process: UUID | None = None

    async def insert(self, table: str, **columns: Any) -> Any:
        """One row; dicts and lists go as JSON. Returns its `id`, or its first column."""
        values = [Jsonb(v) if isinstance(v, dict | list) and table != "runs_token" else v for v in columns.values()]
        query = sql.SQL("INSERT INTO {} ({}) VALUES ({}) RETURNING {}").format(
            sql.Identifier(table),
            sql.SQL(", ").join(map(sql.Identifier, columns)),
            sql.SQL(", ").join(sql.Placeholder() for _ in columns),
            sql.Identifier(_KEYS.get(table, "id")),
        )
        async with self.conn.transaction():
            await self.conn.execute("SET LOCAL session_replication_role = replica")
            row = await (await self.conn.execute(query, values)).fetchone()
        assert row is not None
        return next(iter(row.values()))

    async def user(self, **columns: Any) -> int:
        return int(
            await self.insert(
                "auth_user",
                **{
                    "username": f"user-{uuid4().hex[:8]}",
                    "password": "!",
                    "first_name": "",
                    "last_name": "",
                    "email": "",
                    "is_staff": False,
                    "is_superuser": False,
                    "is_active": True,
                    "date_joined": await self.now(),
                    **columns,
                },
            )
        )

    async def now(self) -> Any:
        row = await (await self.conn.execute("SELECT now() AS now")).fetchone()
        assert row is not None
        return row["now"]

    async def owner(self) -> int:
        """The user that rows belong to where a test does not care."""
        if self._owner is None:
            self._owner = await self.user()
        return self._owner

    async def token(self, *, user: int | None = None, scopes: tuple[str, ...] = ("run",), **columns: Any) -> str:
        """The token itself; its row has only the digest."""
        token = uuid4().hex
        await self.insert(
            "runs_token",
            **{
                "id": uuid4(),
                "user_id": user or await self.owner(),
                "name": "test",
                "digest": token_digest(token),
                "scopes": list(scopes),
                **columns,
            },
        )
        return token

    async def process(self, *, identity: ProcessIdentity | None = None, **columns: Any) -> UUID:
        """A process row; without an identity: one of this very process, alive."""
        found = identity or identity_of(os.getpid())
        process_id: UUID = await self.insert(
            "runs_process",
            **{
                "id": uuid4(),
                "role": "web",
                "host": found.host,
                "boot_id": found.boot_id,
                "pid_namespace": found.pid_namespace,
                "pid": found.pid,
                "started_ticks": found.started_ticks,
                **columns,
            },
        )
        return process_id

    async def holder(self) -> UUID:
        """The process that holds runs where a test does not care."""
        if self._process is None:
            self._process = await self.process()
        return self._process

    async def run_columns(
        self,
        state: RunState = RunState.RUNNING,
        *,
        kind: RunKind = RunKind.CODE,
        epoch: int = 1,
        cancel_asked: bool = False,
        **columns: Any,
    ) -> dict[str, Any]:
        """A whole, consistent row in this state."""
        now, run_id = await self.now(), uuid4()
        held = state in HELD
        return {
            "id": run_id,
            "kind": kind.value,
            "state": state.value,
            "origin": "inline",
            "owner_id": await self.owner(),
            "lineage": run_id,
            "code": "1",
            "inputs": {},
            "timeout_s": 30.0,
            "epoch": epoch,
            "decisions": 0,
            "event_seq": 0,
            "process_id": await self.holder() if held else None,
            "lease_expires_at": now.replace(year=now.year + 1, day=1) if held else None,
            "command_started_at": None if state in NOT_STARTED else now,
            "finished_at": now if state in TERMINAL else None,
            "error_code": "sandbox_crashed" if state in CODED else None,
            "cancel_requested_at": now if cancel_asked else None,
            **columns,
        }

    async def run(self, state: RunState = RunState.RUNNING, **columns: Any) -> UUID:
        run_id: UUID = await self.insert("runs_run", **await self.run_columns(state, **columns))
        return run_id

    async def effect(
        self,
        run_id: UUID,
        state: EffectState = EffectState.RESERVED,
        effect: EffectClass = EffectClass.EFFECT,
        **columns: Any,
    ) -> str:
        settled = state is EffectState.SETTLED
        key: str = await self.insert(
            "runs_effect",
            **{
                "key": uuid4().hex,
                "run_id": run_id,
                "epoch": 1,
                "call_index": 0,
                "tool": "demo.create_note",
                "effect": effect.value,
                "honours_key": False,
                "args": {},
                "state": state.value,
                "settled_at": await self.now() if settled else None,
                "answer": {"kind": "succeeded", "value": 1} if settled else None,
                **columns,
            },
        )
        return key

    async def pause(self, run_id: UUID, **columns: Any) -> UUID:
        now = await self.now()
        pause_id: UUID = await self.insert(
            "runs_pausedexecution",
            **{
                "id": uuid4(),
                "run_id": run_id,
                "call_index": 0,
                "kind": "approval",
                "tool": "demo.create_charge",
                "args": {"amount": 5},
                "message": "Allow?",
                "approver": "owner",
                "expires_at": now.replace(year=now.year + 1, day=1),
                **columns,
            },
        )
        return pause_id

    async def outcome(self, run_id: UUID, **columns: Any) -> UUID:
        outcome: UUID = await self.insert(
            "runs_settledoutcome",
            **{"id": uuid4(), "run_id": run_id, "seq": 1, "status": "completed", "body": {"status": "completed"}}
            | columns,
        )
        return outcome

    async def get(self, table: str, key: Any) -> dict[str, Any]:
        query = sql.SQL("SELECT * FROM {} WHERE {} = %s").format(
            sql.Identifier(table), sql.Identifier(_KEYS.get(table, "id"))
        )
        row = await (await self.conn.execute(query, (key,))).fetchone()
        assert row is not None, f"no {key} in {table}"
        return row

    async def all(self, query: str, *params: Any) -> list[dict[str, Any]]:
        return await (await self.conn.execute(query.encode(), params)).fetchall()

    async def one(self, query: str, *params: Any) -> Any:
        """The first column of the first row."""
        return next(iter((await self.all(query, *params))[0].values()))

    async def kinds(self, run_id: UUID) -> list[str]:
        """What happened to a run, in order."""
        found = await self.all("SELECT kind FROM runs_event WHERE run_id = %s ORDER BY seq", run_id)
        return [row["kind"] for row in found]

    async def snapshot(self, run_id: UUID) -> dict[str, Any]:
        """Everything stored of a run: for "nothing was written"."""
        tables = ("runs_effect", "runs_event", "runs_checkpoint", "runs_pausedexecution", "runs_attempt")
        found: dict[str, Any] = {
            table: await self.all(f"SELECT * FROM {table} WHERE run_id = %s ORDER BY 1, 2", run_id) for table in tables
        }
        return found | {"run": await self.get("runs_run", run_id)}


_KEYS = {"runs_effect": "key", "runs_checkpoint": "run_id"}


def dead_identity() -> ProcessIdentity:
    """A process of this very machine that is provably gone: our pid, another start."""
    own = identity_of(os.getpid())
    return replace(own, started_ticks=own.started_ticks - 1)


def foreign_identity() -> ProcessIdentity:
    """A process of another machine: nobody here can say whether it lives."""
    return replace(identity_of(os.getpid()), host="elsewhere")
