"""Reading the catalog: sources with their granted tools and the policies, at one version."""

import asyncio
import json
from typing import Any

from runs.domain.effects import Approver, EffectClass, PolicyAction
from runs.store.transition import Connection
from runs.tools.base import ToolSpec
from runs.tools.catalog import Catalog, SourceEntry
from runs.tools.policy import Policy

Rows = list[dict[str, Any]]

_SOURCES = "SELECT id, name, kind, base_url, module, honours_key FROM runs_source ORDER BY name"
_TOOLS = """
SELECT s.name AS source, t.name, t.description, t.input_schema::text, t.output_schema::text, t.effect,
    t.binding::text, t.sensitive
FROM runs_tool t JOIN runs_source s ON s.id = t.source_id WHERE t.granted ORDER BY s.name, t.name"""
_POLICIES = "SELECT id, pattern, action, approver, position FROM runs_policy"


async def catalog_load(conn: Connection, version: int) -> Catalog:
    """The catalog as it is now, under the version that was read before it: it can only be fresher than it says.

    Decoding and indexing thousands of schemas takes seconds, so a thread does it: this loop goes on answering.
    """
    sources = await (await conn.execute(_SOURCES)).fetchall()
    tools = await (await conn.execute(_TOOLS)).fetchall()
    policies = await (await conn.execute(_POLICIES)).fetchall()
    return await asyncio.to_thread(_build, version, sources, tools, policies)


def _build(version: int, sources: Rows, tools: Rows, policies: Rows) -> Catalog:
    catalog = Catalog(
        version,
        {row["name"]: SourceEntry(**row) for row in sources},
        [_tool(row) for row in tools],
        [
            Policy(
                row["pattern"], PolicyAction(row["action"]), Approver(row["approver"]), row["position"], str(row["id"])
            )
            for row in policies
        ],
    )
    catalog.index_now()
    return catalog


def _tool(row: dict[str, Any]) -> ToolSpec:
    output = row["output_schema"]
    return ToolSpec(
        source=row["source"],
        name=row["name"],
        description=row["description"],
        input_schema=json.loads(row["input_schema"]),
        output_schema=None if output is None else json.loads(output),
        effect=EffectClass(row["effect"]),
        binding=json.loads(row["binding"]),
        sensitive=frozenset(row["sensitive"]),
    )


_CONNECTION = """
SELECT ciphertext FROM runs_connection
WHERE source_id = %s AND (owner_id = %s OR owner_id IS NULL) ORDER BY owner_id NULLS LAST LIMIT 1"""


async def connection_ciphertext(conn: Connection, source_id: object, owner_id: int) -> bytes | None:
    """The credentials a user's runs use for a source: their own before the shared ones."""
    row = await (await conn.execute(_CONNECTION, (source_id, owner_id))).fetchone()
    return None if row is None else bytes(row["ciphertext"])
