"""Reading who a bearer token is: one statement, which also tells the catalog's version. Tokens are written by
`runs/store/tokens.py`."""

import hashlib
from typing import Any

from runs.store.transition import Connection

_FIND = """
SELECT t.id AS token_id, t.scopes, u.id AS user_id, u.username, u.is_staff, u.is_superuser,
    (SELECT version FROM runs_catalogversion) AS catalog_version
FROM runs_token t JOIN auth_user u ON u.id = t.user_id
WHERE t.digest = %s AND t.revoked_at IS NULL AND (t.expires_at IS NULL OR t.expires_at > now()) AND u.is_active"""


def token_digest(token: str) -> bytes:
    """Tokens are 256 random bits, so a plain hash is enough: there is nothing to guess."""
    return hashlib.sha256(token.encode()).digest()


async def token_find(conn: Connection, token: str) -> dict[str, Any] | None:
    """The token's user, scopes and the catalog's version; None for an unknown, revoked or expired one."""
    return await (await conn.execute(_FIND, (token_digest(token),))).fetchone()


async def catalog_version(conn: Connection) -> int:
    row = await (await conn.execute("SELECT version FROM runs_catalogversion")).fetchone()
    return 0 if row is None else int(row["version"])
