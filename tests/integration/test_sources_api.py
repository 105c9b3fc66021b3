"""Sources over the API: what adding finds, what a refresh may change, what is refused; nothing is half done."""

import asyncio
import json
from typing import Any

import pytest

from runs.domain import limits
from tests.support.asgi import Site, big_document, database_url, document, operation, problem, site, transactional_db
from tests.support.pg import conn
from tests.unit.tools.upstream import answering, upstream

__all__ = ["conn", "database_url", "site", "transactional_db"]

BASE = "https://shop.example"
KEYS = {"key": {"type": "apiKey", "in": "header", "name": "X-Key"}}
PATHS = {
    "/items": {"get": operation("list_items"), "post": operation("create_item", summary="Make one")},
    "/items/{id}": {
        "put": operation(
            "put_item",
            parameters=[{"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}],
            **{"x-executor-effect": "idempotent"},
        )
    },
}


def shop(paths: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    return {"kind": "openapi", "name": "shop", "spec": document(paths or PATHS), "base_url": BASE} | more


def addresses(answer: dict[str, Any]) -> dict[str, str]:
    return {tool["address"]: tool["effect"] for tool in answer["tools"]}


async def test_adding_answers_the_tools_found_and_the_next_request_sees_them(site: Site) -> None:
    admin, agent = await site.client("admin"), await site.client("run", user="bob")
    added = await admin.post("/api/v1/sources", json=shop())
    assert added.status_code == 201
    answer = added.json()
    assert (answer["name"], answer["kind"], answer["title"], answer["base_url"]) == ("shop", "openapi", "Shop", BASE)
    assert addresses(answer) == {"shop.create_item": "effect", "shop.list_items": "read", "shop.put_item": "effect"}
    assert answer["skipped"] == []
    found = (await agent.get("/api/v1/tools", params={"source": "shop"})).json()
    assert found["total"] == 3


@pytest.mark.parametrize(
    "spec", [json.dumps(document(PATHS)), "openapi: 3.0.3\ninfo: {title: Y, version: '1'}\npaths: {}\n"]
)
async def test_a_document_may_be_text(site: Site, spec: str) -> None:
    admin = await site.client("admin")
    assert (await admin.post("/api/v1/sources", json=shop(spec=spec))).status_code == 201


async def test_skipped_operations_say_where_and_why(site: Site) -> None:
    admin = await site.client("admin")
    paths = PATHS | {"/broken/{id}": {"get": operation("broken")}}
    answer = (await admin.post("/api/v1/sources", json=shop(paths))).json()
    assert [item["where"] for item in answer["skipped"]] == ["#/paths/~1broken~1{id}/get"]


@pytest.mark.parametrize(
    "name",
    [
        "Shop",
        "my-shop",
        "1shop",
        "class",
        "match",
        "json",
        "asyncio",
        "print",
        "emit",
        "search_tools",
        "_shop",
        "s" * 64,
        "über",
        "",
    ],
)
async def test_a_name_that_code_could_not_import_is_refused(site: Site, name: str) -> None:
    admin = await site.client("admin")
    assert problem(await admin.post("/api/v1/sources", json=shop(name=name))) == (422, "invalid_request")


async def test_a_taken_name_is_a_conflict_also_at_the_same_time(site: Site) -> None:
    admin = await site.client("admin")
    both = await asyncio.gather(*(admin.post("/api/v1/sources", json=shop()) for _ in range(3)))
    assert sorted(answer.status_code for answer in both) == [201, 409, 409]
    assert problem(await admin.post("/api/v1/sources", json=shop())) == (409, "name_taken")


@pytest.mark.acceptance_id("S3")
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/api/v1/sources"),
        ("PATCH", "/api/v1/sources/shop"),
        ("DELETE", "/api/v1/sources/shop"),
        ("POST", "/api/v1/sources/shop/refresh"),
    ],
)
async def test_only_the_scope_admin_writes(site: Site, method: str, path: str) -> None:
    operator = await site.client("run", "approve", "operate", is_staff=True)
    assert problem(await operator.request(method, path, json={})) == (403, "insufficient_scope")
    stranger = await site.client()
    assert problem(await stranger.request(method, path, json={})) == (401, "unauthorized")


async def test_operators_read_and_agents_do_not(site: Site) -> None:
    operator, agent = await site.client("operate", is_staff=True), await site.client("run", user="bob")
    assert (await operator.get("/api/v1/sources")).json() == {"sources": [], "total": 0}
    assert problem(await agent.get("/api/v1/sources")) == (403, "insufficient_scope")


@pytest.mark.parametrize(
    "body",
    [
        {"kind": "openapi", "name": "shop"},
        shop(spec_url="https://shop.example/openapi.json"),
        shop(kind="soap"),
        shop(surprise=1),
        {"name": "shop"},
        [],
        shop(spec=7),
    ],
)
async def test_a_body_that_does_not_fit_is_told_where(site: Site, body: Any) -> None:
    admin = await site.client("admin")
    answer = await admin.post("/api/v1/sources", json=body)
    assert problem(answer) == (422, "invalid_request")
    assert answer.json()["error"]["detail"][0]["where"].startswith("body")


@pytest.mark.parametrize("content", [b"", b"{", b"\xff", b"[" * 100_000, b'{"a": NaN}'])
async def test_a_body_that_is_no_json_is_refused(site: Site, content: bytes) -> None:
    admin = await site.client("admin")
    headers = {"Content-Type": "application/json"}
    assert problem(await admin.post("/api/v1/sources", content=content, headers=headers)) == (400, "invalid_json")


async def test_text_that_cannot_be_stored_is_refused(site: Site) -> None:
    admin = await site.client("admin")
    await admin.post("/api/v1/sources", json=shop())
    half = json.dumps({"kind": "openapi", "name": "other", "spec": "openapi: \ud800"})
    headers = {"Content-Type": "application/json"}
    answer = await admin.post("/api/v1/sources", content=half.encode(), headers=headers)
    assert answer.status_code == 422
    for body in ({"grant": ["a\0b"]}, {"effects": {"a\0b": "read"}}, {"base_url": "https://a\0b.example"}):
        assert problem(await admin.patch("/api/v1/sources/shop", json=body)) == (422, "invalid_request")
    for path in ("/api/v1/sources/a%00b", "/api/v1/tools/a%00b"):
        assert problem(await admin.get(path))[0] in (403, 404)


async def test_another_media_type_is_refused(site: Site) -> None:
    admin = await site.client("admin")
    answer = await admin.post("/api/v1/sources", content=b"a=b", headers={"Content-Type": "text/plain"})
    assert problem(answer) == (415, "unsupported_media_type")


@pytest.mark.parametrize(
    ("spec", "code"),
    [
        ("no document", "spec_invalid"),
        ({"swagger": "2.0", "paths": {}}, "spec_unsupported"),
        ({"openapi": "4.0.0", "paths": {}}, "spec_unsupported"),
    ],
)
async def test_an_unusable_document_leaves_nothing_behind(site: Site, spec: Any, code: str) -> None:
    admin = await site.client("admin")
    assert problem(await admin.post("/api/v1/sources", json=shop(spec=spec)))[1] == code
    assert (await admin.get("/api/v1/sources")).json()["total"] == 0


@pytest.mark.acceptance_id("T12")
@pytest.mark.parametrize(
    "address",
    [
        "http://169.254.169.254/latest",
        "http://10.0.0.7",
        "http://[::ffff:10.0.0.1]/",
        "http://user:secret@shop.example",
        "file:///etc/passwd",
        "http://0.0.0.0",
    ],
)
async def test_addresses_that_the_site_must_not_talk_to_are_refused(site: Site, address: str) -> None:
    admin = await site.client("admin")
    for body in (shop(base_url=address), {"kind": "openapi", "name": "shop", "spec_url": address}):
        status, code = problem(await admin.post("/api/v1/sources", json=body))
        assert (status, code) in {(422, "address_refused"), (422, "spec_invalid")}
    assert (await admin.post("/api/v1/sources", json=shop())).status_code == 201
    status, code = problem(await admin.patch("/api/v1/sources/shop", json={"base_url": address}))
    assert (status, code) == (422, "address_refused")
    assert (await admin.get("/api/v1/sources/shop")).json()["base_url"] == BASE


@pytest.mark.acceptance_id("T12")
async def test_a_private_server_that_the_document_names_is_refused(site: Site) -> None:
    admin = await site.client("admin")
    spec = document(PATHS, servers=[{"url": "http://192.168.1.1"}])
    answer = await admin.post("/api/v1/sources", json={"kind": "openapi", "name": "shop", "spec": spec})
    assert problem(answer) == (422, "address_refused")


@pytest.mark.acceptance_id("T12")
async def test_loopback_is_refused_where_the_setting_says_so(site: Site, settings: Any) -> None:
    settings.UPSTREAM_ALLOW_LOOPBACK = False
    admin = await site.client("admin")
    answer = await admin.post("/api/v1/sources", json=shop(base_url="http://127.0.0.1:9"))
    assert problem(answer) == (422, "address_refused")


async def test_a_document_is_fetched_by_address_and_again_with_each_refresh(site: Site) -> None:
    admin = await site.client("admin")
    async with upstream(answering(json.dumps(document(PATHS)).encode())) as server:
        body = {"kind": "openapi", "name": "shop", "spec_url": f"{server.url}/openapi.json?key=s3cret"}
        added = await admin.post("/api/v1/sources", json=body)
        assert added.status_code == 201
        assert added.json()["base_url"] == server.url
        server.handler = answering(json.dumps(document({"/items": PATHS["/items"]})).encode())
        refreshed = await admin.post("/api/v1/sources/shop/refresh")
        assert refreshed.json()["removed"] == ["shop.put_item"]
        server.handler = answering(b"gone", status="500 No")
        failed = await admin.post("/api/v1/sources/shop/refresh")
        assert problem(failed) == (422, "spec_unreachable")
        assert "s3cret" not in failed.text
    assert len((await admin.get("/api/v1/sources/shop")).json()["tools"]) == 2


@pytest.mark.acceptance_id("T12")
async def test_operations_that_a_refresh_brings_wait_for_a_review(site: Site) -> None:
    admin, agent = await site.client("admin"), await site.client("run", user="bob")
    await admin.post("/api/v1/sources", json=shop())
    more = PATHS | {"/orders": {"post": operation("create_order")}, "/refunds": {"post": operation("create_refund")}}
    refreshed = (await admin.post("/api/v1/sources/shop/refresh", json={"spec": document(more)})).json()
    assert refreshed["added"] == ["shop.create_order", "shop.create_refund"]
    assert (refreshed["changed"], refreshed["removed"]) == ([], [])
    assert problem(await agent.get("/api/v1/tools/shop.create_order")) == (404, "not_found")
    assert (await agent.get("/api/v1/tools/shop.create_item")).status_code == 200
    assert (await admin.get("/api/v1/sources")).json()["sources"][0]["ungranted"] == 2
    granted = await admin.patch("/api/v1/sources/shop", json={"grant": ["create_order"]})
    assert granted.status_code == 200
    assert (await agent.get("/api/v1/tools/shop.create_order")).status_code == 200
    assert problem(await agent.get("/api/v1/tools/shop.create_refund")) == (404, "not_found")
    await admin.patch("/api/v1/sources/shop", json={"grant": "all"})
    assert (await agent.get("/api/v1/tools/shop.create_refund")).status_code == 200


async def test_a_refresh_without_change_changes_nothing(site: Site) -> None:
    admin = await site.client("admin")
    await admin.post("/api/v1/sources", json=shop())
    refreshed = (await admin.post("/api/v1/sources/shop/refresh", json={"spec": document(PATHS)})).json()
    assert (refreshed["added"], refreshed["changed"], refreshed["removed"]) == ([], [], [])


async def test_a_changed_operation_keeps_its_grant(site: Site) -> None:
    admin, agent = await site.client("admin"), await site.client("run", user="bob")
    await admin.post("/api/v1/sources", json=shop())
    paths = PATHS | {"/items": PATHS["/items"] | {"post": operation("create_item", summary="Changed")}}
    refreshed = (await admin.post("/api/v1/sources/shop/refresh", json={"spec": document(paths)})).json()
    assert refreshed["changed"] == ["shop.create_item"]
    assert (await agent.get("/api/v1/tools/shop.create_item")).json()["description"] == "Changed"


@pytest.mark.acceptance_id("T12")
async def test_a_name_that_means_another_request_loses_its_grant(site: Site) -> None:
    """A document could otherwise put DELETE behind a name that was granted for a harmless request."""
    admin, agent = await site.client("admin"), await site.client("run", user="bob")
    await admin.post("/api/v1/sources", json=shop())
    paths = {"/everything": {"delete": operation("create_item")}}
    await admin.post("/api/v1/sources/shop/refresh", json={"spec": document(paths)})
    assert problem(await agent.get("/api/v1/tools/shop.create_item")) == (404, "not_found")


async def test_an_inline_source_is_refreshed_with_its_new_document_only(site: Site) -> None:
    admin = await site.client("admin")
    await admin.post("/api/v1/sources", json=shop())
    assert problem(await admin.post("/api/v1/sources/shop/refresh")) == (422, "invalid_request")


async def test_a_refresh_does_not_move_the_service(site: Site) -> None:
    admin = await site.client("admin")
    await admin.post("/api/v1/sources", json=shop())
    spec = document(PATHS, servers=[{"url": "https://elsewhere.example"}])
    refreshed = (await admin.post("/api/v1/sources/shop/refresh", json={"spec": spec})).json()
    assert refreshed["base_url"] == BASE


async def test_the_owners_word_on_effects_outlives_a_refresh(site: Site) -> None:
    admin = await site.client("admin")
    await admin.post("/api/v1/sources", json=shop())
    changed = await admin.patch("/api/v1/sources/shop", json={"effects": {"put_item": "idempotent"}})
    assert addresses(changed.json())["shop.put_item"] == "idempotent"
    refreshed = (await admin.post("/api/v1/sources/shop/refresh", json={"spec": document(PATHS)})).json()
    assert addresses(refreshed)["shop.put_item"] == "idempotent"
    assert refreshed["changed"] == []


async def test_a_document_speaks_of_effects_only_where_it_is_trusted(site: Site) -> None:
    admin = await site.client("admin")
    answer = (await admin.post("/api/v1/sources", json=shop(trust_effects=True))).json()
    assert addresses(answer)["shop.put_item"] == "idempotent"
    refreshed = (await admin.post("/api/v1/sources/shop/refresh", json={"spec": document(PATHS)})).json()
    assert addresses(refreshed)["shop.put_item"] == "idempotent"


async def test_a_change_is_whole_or_nothing(site: Site) -> None:
    admin = await site.client("admin")
    await admin.post("/api/v1/sources", json=shop())
    body = {"honours_key": True, "effects": {"put_item": "idempotent"}, "grant": ["no_such"]}
    refused = await admin.patch("/api/v1/sources/shop", json=body)
    assert problem(refused) == (422, "invalid_request")
    assert refused.json()["error"]["detail"] == {"unknown": ["no_such"]}
    now = (await admin.get("/api/v1/sources/shop")).json()
    assert now["honours_key"] is False
    assert addresses(now)["shop.put_item"] == "effect"


async def test_a_source_from_this_sites_functions(site: Site) -> None:
    admin = await site.client("admin")
    added = await admin.post("/api/v1/sources", json={"kind": "python", "name": "sample"})
    assert added.status_code == 201
    assert addresses(added.json())["sample.add"] == "read"
    refreshed = await admin.post("/api/v1/sources/sample/refresh")
    assert refreshed.json()["changed"] == []
    other = await admin.post("/api/v1/sources", json={"kind": "python", "name": "os_tools"})
    assert problem(other) == (422, "invalid_request")


async def test_a_removed_source_is_gone_with_its_tools_and_connections(site: Site, conn: Any) -> None:
    admin, agent = await site.client("admin", "run"), await site.client("run", user="bob")
    await admin.post("/api/v1/sources", json=shop(spec=document(PATHS, components={"securitySchemes": KEYS})))
    kept = await admin.post("/api/v1/connections", json={"source": "shop", "values": {"key": "k"}, "shared": True})
    assert kept.status_code == 201
    assert (await admin.delete("/api/v1/sources/shop")).status_code == 204
    assert problem(await admin.delete("/api/v1/sources/shop")) == (404, "not_found")
    assert problem(await admin.get("/api/v1/sources/shop")) == (404, "not_found")
    assert (await agent.get("/api/v1/tools")).json() == {"tools": [], "total": 0}
    row = await (await conn.execute("SELECT count(*) AS n FROM runs_connection")).fetchone()
    assert row["n"] == 0


async def test_lists_come_in_bounded_pages(site: Site) -> None:
    admin = await site.client("admin")
    for name in ("a_shop", "b_shop"):
        await admin.post("/api/v1/sources", json=shop(name=name))
    page = (await admin.get("/api/v1/sources?limit=1&offset=1")).json()
    assert ([source["name"] for source in page["sources"]], page["total"]) == (["b_shop"], 2)
    assert problem(await admin.get(f"/api/v1/sources?limit={limits.PAGE_MAX + 1}")) == (422, "invalid_request")
    tools = (await admin.get("/api/v1/sources/a_shop?limit=2&offset=2")).json()
    assert ([tool["address"] for tool in tools["tools"]], tools["total"]) == (["a_shop.put_item"], 3)


async def test_two_processes_see_a_change_with_their_next_request(site: Site) -> None:
    """Another process has resources of its own; the catalog's version in the database is what they share."""
    from executor_site.resources import Resources
    from executor_site.scope import Scope

    admin = await site.client("admin")
    other = Resources(role="web")
    await other.open()
    try:
        for expected in (0, 3):
            scope = Scope(other)
            assert len((await scope.catalog()).tools) == expected
            await scope.close()
            await admin.post("/api/v1/sources", json=shop())
        await admin.post("/api/v1/policies", json={"pattern": "shop.*", "action": "block"})
        scope = Scope(other)
        catalog = await scope.catalog()
        assert not any(catalog.visible(spec) for spec in catalog.tools.values())
        await scope.close()
    finally:
        await other.close()


@pytest.mark.acceptance_id("T12")
async def test_a_large_document_is_imported_in_a_process_of_its_own(site: Site, monkeypatch: Any) -> None:
    monkeypatch.setattr(limits, "IMPORT_HERE_BYTES", 100_000)
    admin = await site.client("admin")
    spec = big_document(150_000).decode()
    added = await admin.post("/api/v1/sources", json={"kind": "openapi", "name": "big", "spec": spec})
    assert added.status_code == 201
    assert (await admin.get("/api/v1/tools?source=big")).status_code == 403
    again = await admin.post("/api/v1/sources", json={"kind": "openapi", "name": "big", "spec": spec})
    assert problem(again) == (409, "name_taken")
    refreshed = await admin.post("/api/v1/sources/big/refresh", json={"spec": spec})
    assert refreshed.json()["changed"] == []


async def test_an_import_that_takes_too_long_is_ended_and_leaves_nothing(site: Site, monkeypatch: Any) -> None:
    monkeypatch.setattr(limits, "IMPORT_HERE_BYTES", 100)
    monkeypatch.setattr(limits, "IMPORT_TIMEOUT_S", 0.01)
    admin = await site.client("admin")
    assert problem(await admin.post("/api/v1/sources", json=shop())) == (413, "spec_too_large")
    assert (await admin.get("/api/v1/sources")).json()["total"] == 0


async def test_more_imports_than_may_wait_are_told_to_come_back(site: Site, monkeypatch: Any) -> None:
    monkeypatch.setattr(limits, "IMPORTS_WAITING", 1)
    admin = await site.client("admin")
    answers = await asyncio.gather(*(admin.post("/api/v1/sources", json=shop(name=f"s{i}")) for i in range(4)))
    statuses = sorted(answer.status_code for answer in answers)
    assert statuses == [201, 201, 503, 503]
    refused = next(answer for answer in answers if answer.status_code == 503)
    assert refused.json()["error"]["code"] == "overloaded"
    assert int(refused.headers["Retry-After"]) > 0
