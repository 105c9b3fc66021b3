"""Addresses inside are not reached, however they are written, and what was checked is what is connected to."""

import asyncio
from collections.abc import AsyncIterator, Sequence

import httpx
import pytest

from runs.tools.bounds import MAX_ADDRESSES
from runs.tools.errors import DocumentError
from runs.tools.fetch import fetch_document
from runs.tools.http_client import make_client
from runs.tools.netguard import AddressGuard, AddressRefused, NameUnknown
from tests.unit.tools.upstream import Request, answer, answering, upstream

PUBLIC = "93.184.216.34"


def resolving(*answers: Sequence[str]) -> tuple[list[str], object]:
    """A resolver that gives one answer after the other, and the names it was asked for."""
    asked: list[str] = []

    async def resolver(host: str, port: int) -> Sequence[str]:
        asked.append(host)
        return answers[min(len(asked), len(answers)) - 1]

    return asked, resolver


async def refused(guard: AddressGuard, host: str) -> bool:
    try:
        await guard.addresses(host, 80)
    except AddressRefused:
        return True
    return False


INSIDE = [
    "127.0.0.1",
    "127.8.9.10",
    "0.0.0.0",
    "10.0.0.1",
    "172.16.5.4",
    "192.168.1.1",
    "169.254.1.1",
    "169.254.169.254",
    "100.64.0.1",
    "100.100.100.200",
    "168.63.129.16",
    "192.0.0.192",
    "198.18.0.1",
    "224.0.0.1",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "fe80::1",
    "fe80::1%eth0",
    "fc00::1",
    "fd00:ec2::254",
    "fec0::1",
    "ff02::1",
    "::ffff:10.0.0.1",
    "::ffff:127.0.0.1",
    "::10.0.0.1",
    "2002:0a00:0001::1",
    "2001:0:0:0:0:0:f5ff:fffe",
    "64:ff9b::10.0.0.1",
    "64:ff9b:1::a00:1",
    "2001:db8::1",
]


@pytest.mark.acceptance_id("T12")
@pytest.mark.parametrize("address", INSIDE)
async def test_addresses_inside_are_refused_as_literals_and_behind_names(address: str) -> None:
    _, resolver = resolving([address])
    guard = AddressGuard(resolver=resolver)  # type: ignore[arg-type]
    assert await refused(guard, address)
    assert await refused(guard, "name.example")
    host = f"[{address}]" if ":" in address else address
    with pytest.raises(AddressRefused):
        guard.check_url(f"https://{host}/x")


@pytest.mark.parametrize(
    "address", [PUBLIC, "2606:2800:220:1:248:1893:25c8:1946", f"::ffff:{PUBLIC}", f"64:ff9b::{PUBLIC}"]
)
async def test_public_addresses_are_allowed(address: str) -> None:
    _, resolver = resolving([address])
    assert await AddressGuard(resolver=resolver).addresses("name.example", 443) == [address]  # type: ignore[arg-type]


@pytest.mark.parametrize("host", ["2130706433", "0x7f.1", "127.1", "017700000001", "localhost"])
async def test_other_spellings_of_loopback_are_refused(host: str) -> None:
    assert await refused(AddressGuard(), host)


@pytest.mark.parametrize(
    "url",
    [
        "ftp://a.example/",
        "file:///etc/passwd",
        "http://user:pw@a.example/",
        "http://u@a/",
        "http:///x",
        "//a",
        "http://[x",
        "http://a:99999/",
    ],
)
def test_addresses_that_cannot_be_right_are_refused(url: str) -> None:
    with pytest.raises(AddressRefused):
        AddressGuard(allow_loopback=True).check_url(url)


async def test_local_mode_allows_loopback_and_nothing_else_inside() -> None:
    guard = AddressGuard(allow_loopback=True)
    assert await guard.addresses("127.0.0.1", 80) == ["127.0.0.1"]
    assert await guard.addresses("::ffff:127.0.0.1", 80)
    assert await refused(guard, "10.0.0.1")
    assert await refused(guard, "0.0.0.0")


async def test_listed_networks_and_names_are_allowed() -> None:
    _, resolver = resolving(["10.1.2.3"])
    guard = AddressGuard(allowed=["10.1.0.0/16", "api.internal", "*.corp.example"], resolver=resolver)  # type: ignore[arg-type]
    assert await guard.addresses("10.1.2.3", 80)
    assert await guard.addresses("::ffff:10.1.2.3", 80)
    assert await refused(guard, "10.2.2.3")
    outside = AddressGuard(allowed=["api.internal", "*.corp.example"], resolver=resolver)  # type: ignore[arg-type]
    assert await outside.addresses("API.internal.", 80)
    assert await outside.addresses("a.corp.example", 80)
    assert await refused(outside, "corp.example")
    assert await refused(outside, "evilcorp.example")


@pytest.mark.parametrize("address", ["169.254.169.254", "fd00:ec2::254", "0.0.0.0"])
async def test_a_listed_name_never_leads_to_metadata(address: str) -> None:
    _, resolver = resolving([address])
    assert await refused(AddressGuard(allowed=["api.internal"], resolver=resolver), "api.internal")  # type: ignore[arg-type]


def test_an_entry_that_is_neither_name_nor_network_is_an_error() -> None:
    with pytest.raises(ValueError, match="neither"):
        AddressGuard(allowed=["http://x/"])


async def test_of_several_addresses_the_inner_ones_are_left_out_and_the_number_is_bounded() -> None:
    _, resolver = resolving(["10.0.0.1", *(f"93.184.216.{n}" for n in range(20))])
    found = await AddressGuard(resolver=resolver).addresses("a.example", 80)  # type: ignore[arg-type]
    assert found == [f"93.184.216.{n}" for n in range(MAX_ADDRESSES)]


async def test_an_unknown_name_is_told_apart_from_a_refused_one() -> None:
    async def resolver(host: str, port: int) -> Sequence[str]:
        raise OSError("no such name")

    with pytest.raises(NameUnknown):
        await AddressGuard(resolver=resolver).addresses("a.example", 80)


async def test_a_resolver_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    async def resolver(host: str, port: int) -> Sequence[str]:
        await asyncio.Event().wait()
        return []

    monkeypatch.setattr("runs.tools.netguard.RESOLVE_TIMEOUT_S", 0.01)
    with pytest.raises(NameUnknown):
        await AddressGuard(resolver=resolver).addresses("a.example", 80)


@pytest.mark.acceptance_id("T12")
async def test_every_connection_of_the_client_goes_through_the_guard() -> None:
    async with upstream(answering()) as server, make_client(AddressGuard()) as client:
        with pytest.raises(AddressRefused):
            await client.get(server.url)
        with pytest.raises(AddressRefused):
            await client.get(server.url, extensions={"executor_effect": True})
        assert server.connections == 0


@pytest.mark.acceptance_id("T12")
async def test_a_name_that_changes_its_address_after_the_check_changes_nothing() -> None:
    async with upstream(answering()) as server:
        asked, resolver = resolving(["127.0.0.1"], ["10.0.0.1"])
        guard = AddressGuard(allow_loopback=True, resolver=resolver)  # type: ignore[arg-type]
        async with make_client(guard) as client:
            response = await client.get(f"http://rebind.example:{server.port}/")
            assert response.status_code == 200
            assert server.requests[0].headers["host"] == f"rebind.example:{server.port}"
            # Asked once: what was checked is what was connected to.
            assert asked == ["rebind.example"]


async def test_a_dead_address_is_passed_over() -> None:
    async with upstream(answering()) as server:
        _, resolver = resolving(["127.0.0.2", "127.0.0.1"])
        async with make_client(AddressGuard(allow_loopback=True, resolver=resolver)) as client:  # type: ignore[arg-type]
            assert (await client.get(f"http://two.example:{server.port}/")).status_code == 200


async def test_the_client_keeps_no_cookies_and_follows_no_redirects() -> None:
    handler = answering(b"", status="302 Found", headers={"Set-Cookie": "a=b", "Location": "/other"})
    async with upstream(handler) as server, make_client(AddressGuard(allow_loopback=True)) as client:
        for _ in range(2):
            assert (await client.get(server.url)).status_code == 302
        assert [request.target for request in server.requests] == ["/", "/"]
        assert not any("cookie" in request.headers for request in server.requests)


async def test_addresses_with_keys_are_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(0)
    async with upstream(answering()) as server, make_client(AddressGuard(allow_loopback=True)) as client:
        await client.get(f"{server.url}/x?key=secret-value")
    assert "secret-value" not in caplog.text


@pytest.fixture
async def local() -> AsyncIterator[tuple[AddressGuard, httpx.AsyncClient]]:
    guard = AddressGuard(allow_loopback=True)
    async with make_client(guard) as client:
        yield guard, client


async def failed(local: tuple[AddressGuard, httpx.AsyncClient], url: str, timeout_s: float = 5.0) -> str:
    with pytest.raises(DocumentError) as caught:
        await fetch_document(url, *local, timeout_s=timeout_s)
    assert "secret" not in str(caught.value)
    return caught.value.code


async def test_a_document_is_fetched_over_redirects(local: tuple[AddressGuard, httpx.AsyncClient]) -> None:
    async def handler(request: Request, writer: asyncio.StreamWriter) -> None:
        if request.target == "/end":
            writer.write(answer(b"openapi: 3.0.0"))
        else:
            writer.write(answer(b"", status="301 Moved", headers={"Location": "/end"}))

    async with upstream(handler) as server:
        assert await fetch_document(f"{server.url}/start", *local) == b"openapi: 3.0.0"


@pytest.mark.acceptance_id("T12")
@pytest.mark.parametrize(
    "target",
    ["http://169.254.169.254/latest/meta-data", "http://10.0.0.1/", "file:///etc/passwd", "http://[::ffff:a00:1]/"],
)
async def test_a_document_is_not_fetched_from_inside_not_even_over_a_redirect(
    local: tuple[AddressGuard, httpx.AsyncClient], target: str
) -> None:
    assert await failed(local, target) == "address_refused"
    async with upstream(answering(b"", status="302 Found", headers={"Location": target})) as server:
        assert await failed(local, f"{server.url}/?key=secret") == "address_refused"


async def test_what_goes_wrong_with_a_download_is_told(
    local: tuple[AddressGuard, httpx.AsyncClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def hang(request: Request, writer: asyncio.StreamWriter) -> None:
        await asyncio.Event().wait()

    async with upstream(answering(status="404 Not Found")) as server:
        assert await failed(local, server.url) == "spec_unreachable"
    assert await failed(local, server.url) == "spec_unreachable"
    async with upstream(answering(b"", status="302 Found", headers={"Location": "/"})) as server:
        assert await failed(local, server.url) == "spec_unreachable"
    async with upstream(hang) as server:
        assert await failed(local, server.url, 0.05) == "spec_unreachable"
    monkeypatch.setattr("runs.tools.fetch.MAX_DOCUMENT_BYTES", 10)
    async with upstream(answering(b"x" * 11)) as server:
        assert await failed(local, server.url) == "spec_too_large"
