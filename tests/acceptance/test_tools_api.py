"""The catalog over the API: search, one tool, policies. T1, T10 and S3 as far as they show there."""

from typing import Any

import httpx
import pytest

from tests.support.asgi import Site, database_url, document, operation, problem, site, transactional_db

__all__ = ["database_url", "site", "transactional_db"]

PATHS = {
    "/items": {"get": operation("list_items", summary="List the items"), "post": operation("create_item")},
    "/refunds": {"post": operation("create_refund", summary="Pay money back")},
}


@pytest.fixture
async def admin(site: Site) -> httpx.AsyncClient:
    client = await site.client("admin", "run")
    body = {"kind": "openapi", "name": "shop", "spec": document(PATHS), "base_url": "https://shop.example"}
    assert (await client.post("/api/v1/sources", json=body)).status_code == 201
    return client


async def policy(admin: httpx.AsyncClient, pattern: str, action: str, **more: Any) -> str:
    answer = await admin.post("/api/v1/policies", json={"pattern": pattern, "action": action} | more)
    assert answer.status_code == 201
    return str(answer.json()["id"])


async def action_of(client: httpx.AsyncClient, address: str) -> str:
    return str((await client.get(f"/api/v1/tools/{address}")).json()["policy"]["action"])


async def test_search_finds_by_words_and_pages(admin: httpx.AsyncClient) -> None:
    found = (await admin.get("/api/v1/tools", params={"query": "pay money back"})).json()
    assert found["tools"][0] == {
        "address": "shop.create_refund",
        "description": "Pay money back",
        "effect": "effect",
        "source": "shop",
        "policy": {"action": "require_approval", "approver": "owner"},
    }
    page = (await admin.get("/api/v1/tools", params={"limit": 1, "offset": 2})).json()
    assert ([tool["address"] for tool in page["tools"]], page["total"]) == (["shop.list_items"], 3)
    assert (await admin.get("/api/v1/tools", params={"source": "other"})).json() == {"tools": [], "total": 0}
    assert problem(await admin.get("/api/v1/tools", params={"limit": 101})) == (422, "invalid_request")
    assert problem(await admin.get("/api/v1/tools", params={"query": "x" * 501})) == (422, "invalid_request")


async def test_one_tool_comes_with_all_that_a_call_needs(admin: httpx.AsyncClient) -> None:
    tool = (await admin.get("/api/v1/tools/shop.list_items")).json()
    assert tool["input_schema"]["additionalProperties"] is False
    assert (tool["effect"], tool["source"], tool["name"]) == ("read", "shop", "list_items")
    assert tool["policy"]["reason"] == "default for a tool of class read"


@pytest.mark.acceptance_id("T1")
async def test_an_unknown_tool_is_answered_with_near_ones(admin: httpx.AsyncClient) -> None:
    answer = await admin.get("/api/v1/tools/shop.create_refnd")
    assert problem(answer) == (404, "not_found")
    assert "shop.create_refund" in answer.json()["error"]["detail"]["near"]
    assert problem(await admin.get("/api/v1/tools/zzz")) == (404, "not_found")


@pytest.mark.acceptance_id("T10")
async def test_a_blocked_tool_is_not_there_for_those_who_search(admin: httpx.AsyncClient) -> None:
    await policy(admin, "shop.create_refund", "block")
    listed = (await admin.get("/api/v1/tools")).json()
    assert ([tool["address"] for tool in listed["tools"]], listed["total"]) == (
        ["shop.create_item", "shop.list_items"],
        2,
    )
    answer = await admin.get("/api/v1/tools/shop.create_refund")
    assert problem(answer) == (404, "not_found")
    assert "create_refund" not in str(answer.json()["error"]["detail"])
    assert (await admin.get("/api/v1/tools", params={"query": "pay money back"})).json()["total"] == 0


@pytest.mark.acceptance_id("T10")
async def test_positions_decide_and_ties_go_to_the_strictest(admin: httpx.AsyncClient) -> None:
    assert await action_of(admin, "shop.create_item") == "require_approval"
    everything = await policy(admin, "*", "require_approval", position=50)
    assert await action_of(admin, "shop.list_items") == "require_approval"
    allowed = await policy(admin, "shop.*", "allow", position=10)
    assert await action_of(admin, "shop.create_item") == "allow"
    await policy(admin, "shop.create_*", "require_approval", approver="staff", position=10)
    strict = (await admin.get("/api/v1/tools/shop.create_item")).json()["policy"]
    assert (strict["action"], strict["approver"]) == ("require_approval", "staff")
    listed = (await admin.get("/api/v1/policies")).json()
    assert [item["pattern"] for item in listed["policies"]] == ["shop.*", "shop.create_*", "*"]
    for gone in (everything, allowed):
        assert (await admin.delete(f"/api/v1/policies/{gone}")).status_code == 204
    assert await action_of(admin, "shop.list_items") == "allow"
    assert (await admin.get("/api/v1/policies")).json()["total"] == 1


@pytest.mark.parametrize(
    "body",
    [
        {"pattern": "shop", "action": "allow"},
        {"pattern": "shop.*.x", "action": "allow"},
        {"pattern": "shop.*", "action": "permit"},
        {"pattern": "shop.*", "action": "allow", "approver": "anyone"},
        {"pattern": "shop.*", "action": "allow", "position": -1},
        {"pattern": "shop.*", "action": "allow", "note": ""},
        {"pattern": "a" * 201 + ".*", "action": "allow"},
        {"pattern": "", "action": "allow"},
    ],
)
async def test_a_policy_that_means_nothing_is_refused(admin: httpx.AsyncClient, body: dict[str, Any]) -> None:
    assert problem(await admin.post("/api/v1/policies", json=body)) == (422, "invalid_request")
    assert (await admin.get("/api/v1/policies")).json()["total"] == 0


@pytest.mark.acceptance_id("S3")
async def test_policies_are_the_admins(site: Site) -> None:
    operator = await site.client("run", "approve", "operate", is_staff=True)
    body = {"pattern": "*", "action": "allow"}
    assert problem(await operator.post("/api/v1/policies", json=body)) == (403, "insufficient_scope")
    assert problem(await operator.get("/api/v1/policies")) == (403, "insufficient_scope")
    assert problem(await operator.delete("/api/v1/policies/x")) == (403, "insufficient_scope")


async def test_a_policy_that_is_not_there_is_not_found(admin: httpx.AsyncClient) -> None:
    for policy_id in ("x", "00000000-0000-4000-8000-000000000000"):
        assert problem(await admin.delete(f"/api/v1/policies/{policy_id}")) == (404, "not_found")
