"""Sends a call to wherever its source is: an HTTP service, or a Python function of this site."""

from collections.abc import Sequence
from typing import Any

from django.conf import settings
from psycopg_pool import AsyncConnectionPool

from runs.selectors.catalog import connection_ciphertext
from runs.store.transition import Connection
from runs.tools.base import CallContext, CallOutcome, Refused, ToolSpec
from runs.tools.catalog import SourceEntry
from runs.tools.credentials import Credentials
from runs.tools.http import HttpInvoker
from runs.tools.http_client import make_client
from runs.tools.netguard import AddressGuard
from runs.tools.python import PythonSource
from runs.tools.vault import Vault, VaultLocked


def address_guard() -> AddressGuard:
    """Which addresses tools and documents may have here, from the settings."""
    return AddressGuard(settings.UPSTREAM_ALLOW_LOOPBACK, settings.UPSTREAM_ALLOW)


class SourceInvoker:
    """One per process: its HTTP client is pooled. Credentials are read for each call, so a change holds at once."""

    def __init__(self, pool: AsyncConnectionPool[Connection], keys: Sequence[str]) -> None:
        self._pool = pool
        self._vault = Vault(keys)
        self.guard = address_guard()
        self.client = make_client(self.guard)
        self._http = HttpInvoker(self.client, self.guard)
        self._python: dict[str, PythonSource] = {}

    async def close(self) -> None:
        await self.client.aclose()

    async def invoke(
        self, source: SourceEntry, spec: ToolSpec, arguments: dict[str, Any], owner_id: int, context: CallContext
    ) -> CallOutcome:
        if source.kind == "python":
            return await self._function(source).invoke(spec, arguments, context)
        credentials = Credentials({})
        if spec.binding.get("security"):
            try:
                credentials = await self._credentials(source, owner_id)
            except VaultLocked:
                message = f"The connection of {source.name!r} cannot be read with the configured keys."
                return Refused("connection_missing", message, sent=False)
        return await self._http.invoke(spec, source.base_url, arguments, credentials, context)

    def _function(self, source: SourceEntry) -> PythonSource:
        found = self._python.get(source.module)
        if found is None:
            found = self._python[source.module] = PythonSource(source.name, source.module)
        return found

    async def _credentials(self, source: SourceEntry, owner_id: int) -> Credentials:
        # A connection of the pool's, for this one statement: the scope's own may be in a transaction.
        async with self._pool.connection() as conn:
            ciphertext = await connection_ciphertext(conn, source.id, owner_id)
        return Credentials({} if ciphertext is None else self._vault.open(ciphertext))
