"""Connections: written, used, never read back; one's own are nobody else's."""

from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.core.management import call_command
from django.core.management.base import CommandError

from runs.tools.vault import Vault, VaultLocked
from tests.support.asgi import Site, database_url, document, operation, problem, site, transactional_db
from tests.support.pg import conn

__all__ = ["conn", "database_url", "site", "transactional_db"]

SECRET = "s3cr3t-value-that-nobody-sees"
SCHEMES = {
    "key": {"type": "apiKey", "in": "header", "name": "X-Key"},
    "login": {"type": "http", "scheme": "basic"},
    "odd": {"type": "mutualTLS"},
}


async def shop(site: Site) -> None:
    admin = await site.client("admin")
    spec = document(
        {"/items": {"get": operation("list_items", security=[{"key": []}]), "post": operation("create_item")}},
        components={"securitySchemes": SCHEMES},
    )
    body = {"kind": "openapi", "name": "shop", "spec": spec, "base_url": "https://shop.example"}
    assert (await admin.post("/api/v1/sources", json=body)).status_code == 201


def mine(**more: Any) -> dict[str, Any]:
    return {"source": "shop", "values": {"key": SECRET}} | more


@pytest.mark.acceptance_id("T11", "S3")
async def test_a_persons_connection_is_theirs_alone(site: Site, conn: Any) -> None:
    await shop(site)
    ann, bob = await site.client("run"), await site.client("run", user="bob")
    boss = await site.client("run", "operate", "admin", user="boss", is_staff=True)
    added = await ann.post("/api/v1/connections", json=mine())
    assert added.status_code == 201
    assert added.json()["schemes"] == ["key"]
    assert (added.json()["shared"], added.json()["owner"]) == (False, "ann")
    for other in (bob, boss):
        assert (await other.get("/api/v1/connections")).json() == {"connections": [], "total": 0}
        assert problem(await other.delete(f"/api/v1/connections/{added.json()['id']}")) == (404, "not_found")
    listed = await ann.get("/api/v1/connections?source=shop")
    assert listed.json()["total"] == 1
    assert SECRET not in added.text + listed.text
    row = await (await conn.execute("SELECT ciphertext FROM runs_connection")).fetchone()
    assert SECRET.encode() not in bytes(row["ciphertext"])
    assert (await ann.delete(f"/api/v1/connections/{added.json()['id']}")).status_code == 204
    assert problem(await ann.delete(f"/api/v1/connections/{added.json()['id']}")) == (404, "not_found")


async def test_a_shared_one_needs_the_scope_admin(site: Site) -> None:
    await shop(site)
    ann, admin = await site.client("run"), await site.client("admin", "run", user="boss")
    assert problem(await ann.post("/api/v1/connections", json=mine(shared=True))) == (403, "insufficient_scope")
    added = await admin.post("/api/v1/connections", json=mine(shared=True, name="for all"))
    assert (added.json()["shared"], added.json()["owner"], added.json()["name"]) == (True, None, "for all")
    assert problem(await ann.delete(f"/api/v1/connections/{added.json()['id']}")) == (403, "insufficient_scope")
    assert (await ann.get("/api/v1/connections")).json()["total"] == 1
    assert (await admin.delete(f"/api/v1/connections/{added.json()['id']}")).status_code == 204


async def test_a_second_one_is_a_conflict(site: Site) -> None:
    await shop(site)
    ann, admin = await site.client("run"), await site.client("admin", "run", user="boss")
    assert (await ann.post("/api/v1/connections", json=mine())).status_code == 201
    assert problem(await ann.post("/api/v1/connections", json=mine())) == (409, "name_taken")
    assert (await admin.post("/api/v1/connections", json=mine(shared=True))).status_code == 201
    assert problem(await admin.post("/api/v1/connections", json=mine(shared=True))) == (409, "name_taken")


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (mine(values={"nope": SECRET}), (422, "invalid_request")),
        (mine(values={"odd": SECRET}), (422, "invalid_request")),
        (mine(values={}), (422, "invalid_request")),
        (mine(values={"key": ""}), (422, "invalid_request")),
        (mine(values={"key": f"{SECRET}\r\nX-Evil: 1"}), (422, "invalid_request")),
        (mine(values={"login": SECRET}), (422, "invalid_request")),
        (mine(source="nope"), (404, "not_found")),
        (mine(values=7), (422, "invalid_request")),
        (mine(values={"key": 7}), (422, "invalid_request")),
    ],
)
async def test_values_that_do_not_fit_are_refused_without_repeating_them(
    site: Site, body: dict[str, Any], code: tuple[int, str]
) -> None:
    await shop(site)
    ann = await site.client("run")
    answer = await ann.post("/api/v1/connections", json=body)
    assert problem(answer) == code
    assert SECRET not in answer.text


async def test_an_unknown_scheme_is_answered_with_the_known_ones(site: Site) -> None:
    await shop(site)
    ann = await site.client("run")
    answer = await ann.post("/api/v1/connections", json=mine(values={"nope": SECRET}))
    assert answer.json()["error"]["detail"] == {"known": ["key", "login"]}


@pytest.mark.acceptance_id("T11")
async def test_a_tool_says_whether_its_connection_is_there(site: Site) -> None:
    await shop(site)
    ann = await site.client("run")
    need = (await ann.get("/api/v1/tools/shop.list_items")).json()["connection"]
    assert need == {"needed": True, "alternatives": [["key"]], "present": False}
    await ann.post("/api/v1/connections", json=mine())
    assert (await ann.get("/api/v1/tools/shop.list_items")).json()["connection"]["present"] is True
    free = (await ann.get("/api/v1/tools/shop.create_item")).json()["connection"]
    assert free == {"needed": False, "alternatives": [], "present": False}


async def test_credentials_are_rotated_to_the_newest_key(site: Site, settings: Any, conn: Any, capsys: Any) -> None:
    await shop(site)
    old = list(settings.CREDENTIAL_KEYS)
    ann = await site.client("run")
    await ann.post("/api/v1/connections", json=mine())
    settings.CREDENTIAL_KEYS = ["new" * 12, *old]
    await sync_to_async(call_command)("rotate_credentials")
    row = await (await conn.execute("SELECT ciphertext FROM runs_connection")).fetchone()
    assert Vault(["new" * 12]).open(bytes(row["ciphertext"])) == {"key": SECRET}
    with pytest.raises(VaultLocked):
        Vault(old).open(bytes(row["ciphertext"]))
    assert SECRET not in capsys.readouterr().out


async def test_what_no_key_opens_is_named_and_left_alone(site: Site, settings: Any, conn: Any) -> None:
    await shop(site)
    ann = await site.client("run")
    added = (await ann.post("/api/v1/connections", json=mine())).json()
    before = await (await conn.execute("SELECT ciphertext FROM runs_connection")).fetchone()
    settings.CREDENTIAL_KEYS = ["other" * 8]
    with pytest.raises(CommandError, match=added["id"]):
        await sync_to_async(call_command)("rotate_credentials")
    assert before == await (await conn.execute("SELECT ciphertext FROM runs_connection")).fetchone()
