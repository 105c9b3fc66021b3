"""Reading the catalog: sources with their granted tools and the policies, at one version."""

from runs.domain.effects import Approver, EffectClass, PolicyAction
from runs.store.transition import Connection
from runs.tools.base import ToolSpec
from runs.tools.catalog import Catalog, SourceEntry
from runs.tools.policy import Policy

_SOURCES = "SELECT id, name, kind, base_url, module, honours_key FROM runs_source ORDER BY name"
_TOOLS = """
SELECT s.name AS source, t.name, t.description, t.input_schema, t.output_schema, t.effect, t.binding, t.sensitive
FROM runs_tool t JOIN runs_source s ON s.id = t.source_id WHERE t.granted ORDER BY s.name, t.name"""
_POLICIES = "SELECT id, pattern, action, approver, position FROM runs_policy"


async def catalog_load(conn: Connection, version: int) -> Catalog:
    """The catalog as it is now, under the version that was read before it: it can only be fresher than it says."""
    sources = await (await conn.execute(_SOURCES)).fetchall()
    tools = await (await conn.execute(_TOOLS)).fetchall()
    policies = await (await conn.execute(_POLICIES)).fetchall()
    return Catalog(
        version,
        {row["name"]: SourceEntry(**row) for row in sources},
        [
            ToolSpec(
                source=row["source"],
                name=row["name"],
                description=row["description"],
                input_schema=row["input_schema"],
                output_schema=row["output_schema"],
                effect=EffectClass(row["effect"]),
                binding=row["binding"],
                sensitive=frozenset(row["sensitive"]),
            )
            for row in tools
        ],
        [
            Policy(
                row["pattern"], PolicyAction(row["action"]), Approver(row["approver"]), row["position"], str(row["id"])
            )
            for row in policies
        ],
    )


_CONNECTION = """
SELECT ciphertext FROM runs_connection
WHERE source_id = %s AND (owner_id = %s OR owner_id IS NULL) ORDER BY owner_id NULLS LAST LIMIT 1"""


async def connection_ciphertext(conn: Connection, source_id: object, owner_id: int) -> bytes | None:
    """The credentials a user's runs use for a source: their own before the shared ones."""
    row = await (await conn.execute(_CONNECTION, (source_id, owner_id))).fetchone()
    return None if row is None else bytes(row["ciphertext"])
