"""Reading sources, connections and policies for the API: who may see what is checked by the caller. ORM, read only."""

from typing import Any
from uuid import UUID

from django.db.models import Count, Q, QuerySet

from runs.domain import limits
from runs.models import Connection, Policy, Source
from runs.selectors.runs import shown


def source_named(name: str) -> Source | None:
    return Source.objects.filter(name=name).first()


def source_page(*, limit: int, offset: int) -> tuple[list[dict[str, Any]], int]:
    """By name, with the number of tools and of those that wait for a review."""
    sources = Source.objects.annotate(
        tool_count=Count("tools"), waiting=Count("tools", filter=Q(tools__granted=False))
    ).defer("skipped", "security")
    page = sources.order_by("name")[offset : offset + limit]
    return [
        {**_head(source), "tools": source.tool_count, "ungranted": source.waiting} for source in page
    ], Source.objects.count()


def source_shown(source: Source) -> dict[str, Any]:
    return {**_head(source), "security": source.security, "skipped": source.skipped}


def _head(source: Source) -> dict[str, Any]:
    return {
        "name": source.name,
        "kind": source.kind,
        "title": source.title,
        "base_url": source.base_url,
        "spec_url": source.spec_url,
        "honours_key": source.honours_key,
        "created_at": shown(source.created_at),
        "refreshed_at": shown(source.refreshed_at),
    }


def tools_shown(source: Source, *, limit: int | None = None, offset: int = 0) -> list[dict[str, Any]]:
    """The source's tools by name, those not granted too: this is where they are reviewed."""
    rows = source.tools.order_by("name").values("name", "description", "effect", "granted")
    if limit is not None:
        rows = rows[offset : offset + limit]
    return [
        {
            "address": f"{source.name}.{row['name']}",
            "description": row["description"][: limits.SHOWN_DESCRIPTION_CHARS],
            "effect": row["effect"],
            "granted": row["granted"],
        }
        for row in rows.iterator()
    ]


def connections_visible(user_id: int) -> QuerySet[Connection]:
    """Shared ones, and the user's own: another user's are not there."""
    return Connection.objects.select_related("source", "owner", "created_by").filter(
        Q(owner__isnull=True) | Q(owner_id=user_id)
    )


def connection_page(user_id: int, *, source: str | None, limit: int, offset: int) -> tuple[list[dict[str, Any]], int]:
    found = connections_visible(user_id).defer("ciphertext")
    if source:
        found = found.filter(source__name=source)
    page = found.order_by("source__name", "owner_id", "id")[offset : offset + limit]
    return [connection_shown(connection) for connection in page], found.count()


def connection_shown(connection: Connection) -> dict[str, Any]:
    """Everything but the values, which nobody reads back."""
    return {
        "id": str(connection.pk),
        "source": connection.source.name,
        "name": connection.name,
        "shared": connection.owner_id is None,
        "owner": connection.owner.get_username() if connection.owner else None,
        "schemes": connection.schemes,
        "created_at": shown(connection.created_at),
        "created_by": connection.created_by.get_username() if connection.created_by else None,
    }


def has_connection(source_id: UUID, user_id: int, alternatives: list[dict[str, Any]]) -> bool:
    """Whether a user's runs have credentials that meet one of a tool's alternatives."""
    mine = Connection.objects.filter(Q(owner_id=user_id) | Q(owner__isnull=True), source_id=source_id)
    # The user's own connection is used before the shared one, and alone: the two are not mixed.
    first = mine.order_by("owner_id").values_list("schemes", flat=True).first()
    return first is not None and any(alternative.keys() <= set(first) for alternative in alternatives if alternative)


def policy_page(*, limit: int, offset: int) -> tuple[list[Policy], int]:
    """In the order in which they decide."""
    policies = Policy.objects.select_related("created_by").order_by("position", "pattern", "id")
    return list(policies[offset : offset + limit]), Policy.objects.count()


def policy_shown(policy: Policy) -> dict[str, Any]:
    return {
        "id": str(policy.pk),
        "pattern": policy.pattern,
        "action": policy.action,
        "approver": policy.approver,
        "position": policy.position,
        "created_at": shown(policy.created_at),
        "created_by": policy.created_by.get_username() if policy.created_by else None,
    }
