"""Credentials of sources: written, used by calls, never read back. Synchronous; who may do what is decided here."""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from django.conf import settings

from runs.domain import limits
from runs.domain.codes import Refusal
from runs.domain.principal import Principal
from runs.models import Source
from runs.selectors.sources import connection_shown, connections_visible, source_named
from runs.store.connections import connection_create, connection_delete, connections_reencrypt
from runs.tools.vault import Vault, VaultLocked


def connection_add(
    principal: Principal, *, source: str, values: Mapping[str, str], shared: bool, name: str
) -> dict[str, Any]:
    """Committed on return. Raises Refusal: insufficient_scope, not_found (source), invalid_request, name_taken."""
    principal.require("admin" if shared else "run")
    found = source_named(source)
    if found is None:
        raise Refusal("not_found", f"There is no source {source[:100]!r}.")
    check_values(found, values)
    stored = connection_create(
        source_id=found.pk,
        owner_id=None if shared else principal.user_id,
        name=name,
        ciphertext=Vault(settings.CREDENTIAL_KEYS).seal(values),
        schemes=sorted(values),
        by=principal.user_id,
    )
    if stored is None:
        whose = "a shared connection" if shared else "a connection of yours"
        raise Refusal("name_taken", f"There is {whose} for {source!r} already; delete it first.")
    return connection_shown(connections_visible(principal.user_id).get(pk=stored.pk))


def connection_remove(principal: Principal, connection_id: str) -> None:
    """Committed on return. Another user's does not exist. Raises Refusal: not_found, insufficient_scope."""
    unknown = Refusal("not_found", "There is no such connection.")
    try:
        found = connections_visible(principal.user_id).filter(pk=UUID(connection_id)).first()
    except ValueError:
        found = None
    if found is None:
        raise unknown
    principal.require("admin" if found.owner_id is None else "run")
    if not connection_delete(found.pk):
        raise unknown


def check_values(source: Source, values: Mapping[str, str]) -> None:
    """Raises Refusal invalid_request; the message names schemes, never a value."""
    usable = {name: scheme["kind"] for name, scheme in source.security.items() if scheme["kind"] != "unsupported"}
    known = ", ".join(sorted(usable)) or "none: it takes no credentials"
    unknown = sorted(values.keys() - usable.keys())
    if unknown or not values:
        shown = ", ".join(name[:100] for name in unknown[:5]) or "nothing"
        raise Refusal(
            "invalid_request",
            f"values has {shown}; the security schemes of {source.name!r} are: {known}.",
            {"known": sorted(usable)},
        )
    for name, value in values.items():
        if not 0 < len(value) <= limits.SECRET_CHARS:
            raise Refusal("invalid_request", f"The value for {name!r} has 1 to {limits.SECRET_CHARS:,} characters.")
        if any(ord(char) < 32 or ord(char) == 127 for char in value):
            # It becomes a header, where a line break would begin another one.
            raise Refusal("invalid_request", f"The value for {name!r} has control characters, a line break perhaps.")
        if usable[name] == "basic" and ":" not in value:
            raise Refusal("invalid_request", f"The value for {name!r} is written `user:password`.")


def credentials_rotate() -> tuple[int, list[str]]:
    """Re-encrypt all with the newest key; how many, and the ids of those that no configured key opens."""
    vault = Vault(settings.CREDENTIAL_KEYS)

    def rotate(ciphertext: bytes) -> bytes | None:
        try:
            return vault.rotate(ciphertext)
        except VaultLocked:
            return None

    return connections_reencrypt(rotate)
