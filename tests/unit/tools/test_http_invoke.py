"""Calls over HTTP: what an upstream may do, and the outcome that says no more than is known.

Every case runs against a real server on a loopback port; nothing sleeps, faults are events.
"""

import asyncio
import base64
import gzip
import json
import zlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from runs.domain.effects import EffectClass
from runs.tools.base import CallContext, CallOutcome, Refused, Succeeded, ToolSpec, Unknown, Unrepresentable
from runs.tools.bounds import MAX_ERROR_BODY_BYTES, MAX_REDIRECTS
from runs.tools.credentials import HIDDEN, Credentials
from runs.tools.http import HttpInvoker
from runs.tools.http_client import make_client
from runs.tools.netguard import AddressGuard
from tests.unit.tools.upstream import Handler, Request, Upstream, answer, answering, upstream

READ, EFFECT, IDEMPOTENT = EffectClass.READ, EffectClass.EFFECT, EffectClass.IDEMPOTENT
SECRET = "s3cr3t-t0ken/+value"
BEARER = [{"token": {"kind": "bearer"}}]


def spec(effect: EffectClass = READ, method: str | None = None, path: str = "/x", **binding: Any) -> ToolSpec:
    made = {
        "method": method or ("GET" if effect is READ else "POST"),
        "path": path,
        "parameters": [],
        "body": None,
        "security": [],
        "server": None,
    }
    return ToolSpec("demo", "call", "", {}, None, effect, made | binding)


@pytest.fixture
async def invoker() -> AsyncIterator[HttpInvoker]:
    guard = AddressGuard(allow_loopback=True)
    async with make_client(guard) as client:
        yield HttpInvoker(client, guard)


async def call(
    invoker: HttpInvoker,
    server: Upstream | str,
    tool: ToolSpec | None = None,
    arguments: dict[str, Any] | None = None,
    credentials: Credentials | None = None,
    timeout_s: float = 10.0,
) -> CallOutcome:
    base = server if isinstance(server, str) else server.url
    context = CallContext("run-1", "key-1", timeout_s)
    return await invoker.invoke(tool or spec(), base, arguments or {}, credentials or Credentials(), context)


async def outcome_of(invoker: HttpInvoker, handler: Handler, effect: EffectClass = READ, **options: Any) -> CallOutcome:
    async with upstream(handler) as server:
        return await call(invoker, server, spec(effect), **options)


def writing(raw: bytes) -> Handler:
    """Sends exactly these bytes and closes."""

    async def handler(request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(raw)
        await writer.drain()
        writer.close()

    return handler


async def hang(request: Request, writer: asyncio.StreamWriter) -> None:
    await asyncio.Event().wait()


# -- what is sent ---------------------------------------------------------------------------------


@pytest.mark.acceptance_id("T3")
async def test_an_effect_carries_its_key_and_the_run(invoker: HttpInvoker) -> None:
    async with upstream(answering(b'{"ok": true}')) as server:
        for effect in (EFFECT, IDEMPOTENT):
            assert await call(invoker, server, spec(effect)) == Succeeded({"ok": True}, 200)
            assert server.requests[-1].headers["idempotency-key"] == "key-1"
            assert server.requests[-1].headers["x-run-id"] == "run-1"


async def test_a_read_carries_the_run_and_no_key(invoker: HttpInvoker) -> None:
    async with upstream(answering()) as server:
        await call(invoker, server)
    assert server.requests[0].headers["x-run-id"] == "run-1"
    assert "idempotency-key" not in server.requests[0].headers


async def test_arguments_reach_path_query_header_and_body(invoker: HttpInvoker) -> None:
    def place(name: str, where: str) -> dict[str, Any]:
        return {
            "name": name,
            "in": where,
            "style": "simple",
            "explode": True,
            "reserved": False,
            "content": None,
            "arg": name,
        }

    tool = spec(
        EFFECT,
        path="/items/{id}",
        parameters=[place("id", "path"), place("q", "query"), place("X-A", "header")],
        body={
            "media": "application/json",
            "encoding": "json",
            "required": True,
            "whole": False,
            "arguments": {"n": "n"},
            "files": [],
        },
    )
    async with upstream(answering()) as server:
        await call(invoker, f"{server.url}/v1", tool, {"id": "../é?", "q": "a&b", "X-A": " hé ", "n": 1})
    request = server.requests[0]
    assert request.target == "/v1/items/..%2F%C3%A9%3F?q=a%26b"
    assert request.headers["x-a"].encode("latin-1").decode() == "hé"
    assert (json.loads(request.body), request.headers["content-type"]) == ({"n": 1}, "application/json")


async def test_an_operation_s_own_server_is_called(invoker: HttpInvoker) -> None:
    async with upstream(answering()) as server:
        assert isinstance(await call(invoker, "http://127.0.0.1:1", spec(server=server.url)), Succeeded)


async def test_arguments_that_make_no_request_are_refused_unsent(invoker: HttpInvoker) -> None:
    outcome = await call(invoker, "http://127.0.0.1:1", spec(path="/x/{id}"))
    assert isinstance(outcome, Refused)
    assert (outcome.code, outcome.sent) == ("invalid_arguments", False)


# -- answers --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "body", "value"),
    [
        ("application/json", b'{"a": [1, null]}', {"a": [1, None]}),
        ("application/problem+json; charset=utf-8", b"[1]", [1]),
        ("application/json", b"", None),
        ("application/json", b" \n", None),
        ("text/plain; charset=latin-1", "hé".encode("latin-1"), "hé"),
        ("text/html", "hé".encode(), "hé"),
        ("text/plain; charset=nonsense", b"x", "x"),
        ("image/png", b"\x89PNG", {"content_type": "image/png", "base64": base64.b64encode(b"\x89PNG").decode()}),
        ("", b'{"a": 1}', {"a": 1}),
        ("", b"plain", "plain"),
        ("", b"\xff", {"content_type": "application/octet-stream", "base64": "/w=="}),
    ],
)
async def test_answers_become_values(invoker: HttpInvoker, kind: str, body: bytes, value: Any) -> None:
    assert await outcome_of(invoker, answering(body, headers={"Content-Type": kind})) == Succeeded(value, 200)


async def test_no_content_is_none(invoker: HttpInvoker) -> None:
    handler = writing(b"HTTP/1.1 204 No Content\r\n\r\n")
    assert await outcome_of(invoker, handler, EFFECT) == Succeeded(None, 204)


@pytest.mark.parametrize(
    ("encoding", "pack"),
    [("gzip", gzip.compress), ("deflate", zlib.compress), ("deflate", lambda b: zlib.compress(b)[2:-4])],
)
async def test_compressed_answers_are_unpacked(invoker: HttpInvoker, encoding: str, pack: Any) -> None:
    handler = answering(pack(b'{"a": "' + b"x" * 100_000 + b'"}'), headers={"Content-Encoding": encoding})
    assert await outcome_of(invoker, handler) == Succeeded({"a": "x" * 100_000}, 200)


@pytest.mark.acceptance_id("T6")
@pytest.mark.parametrize("effect", [READ, EFFECT])
@pytest.mark.parametrize("body", [b"{", b"NaN", b"[" * 100_000, b"\xff\xfe"])
async def test_broken_json_of_a_success_is_a_success_that_cannot_be_represented(
    invoker: HttpInvoker, effect: EffectClass, body: bytes
) -> None:
    outcome = await outcome_of(invoker, answering(body), effect)
    assert isinstance(outcome, Unrepresentable)
    assert outcome.status == 200


@pytest.mark.acceptance_id("T2")
@pytest.mark.parametrize("effect", [READ, EFFECT])
@pytest.mark.parametrize("status", [400, 404, 409, 429, 500, 503])
async def test_a_failure_is_told_with_status_and_bounded_body(
    invoker: HttpInvoker, effect: EffectClass, status: int
) -> None:
    outcome = await outcome_of(invoker, answering(b"e" * 100_000, status=f"{status} Oh"), effect)
    assert isinstance(outcome, Refused)
    assert (outcome.code, outcome.status, outcome.sent) == ("upstream_error", status, True)
    assert outcome.body is not None
    assert len(outcome.body) == MAX_ERROR_BODY_BYTES + 1


async def test_a_failure_whose_body_breaks_off_is_still_that_failure(invoker: HttpInvoker) -> None:
    handler = writing(b"HTTP/1.1 422 No\r\nContent-Length: 99\r\n\r\nbecause")
    outcome = await outcome_of(invoker, handler, EFFECT)
    assert isinstance(outcome, Refused)
    assert (outcome.status, (outcome.body or "").startswith("because")) == (422, True)


# -- bounds ---------------------------------------------------------------------------------------


@pytest.fixture
def small_answers(monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr("runs.tools.http.MAX_RESPONSE_BYTES", 100_000)
    return 100_000


async def test_a_flood_is_not_read_beyond_the_bound(invoker: HttpInvoker, small_answers: int) -> None:
    sent = 0

    async def flood(request: Request, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n")
        while not writer.is_closing():
            writer.write(b"x" * 65_536)
            sent += 65_536
            await writer.drain()

    for effect in (READ, EFFECT):
        outcome = await outcome_of(invoker, flood, effect)
        assert isinstance(outcome, Unrepresentable)
        assert outcome.status == 200
    # What the kernel's buffers hold, and no more.
    assert sent < 100 * small_answers


async def test_a_compressed_bomb_is_counted_unpacked(invoker: HttpInvoker, small_answers: int) -> None:
    bomb = gzip.compress(bytes(200 * small_answers))
    assert len(bomb) < small_answers
    outcome = await outcome_of(invoker, answering(bomb, headers={"Content-Encoding": "gzip"}))
    assert isinstance(outcome, Unrepresentable)


@pytest.mark.parametrize("headers", [{"Content-Encoding": "br"}, {"Content-Encoding": "gzip"}])
async def test_a_compression_that_cannot_be_undone_is_a_success_not_representable(
    invoker: HttpInvoker, headers: dict[str, str]
) -> None:
    for body in (b"not compressed", gzip.compress(b"x" * 1000)[:-20]):
        assert isinstance(await outcome_of(invoker, answering(body, headers=headers), EFFECT), Unrepresentable)


async def test_an_exact_fit_is_whole(invoker: HttpInvoker, small_answers: int) -> None:
    outcome = await outcome_of(invoker, answering(b"x" * small_answers, headers={"Content-Type": "text/plain"}))
    assert outcome == Succeeded("x" * small_answers, 200)


# -- faults ---------------------------------------------------------------------------------------

FAULTS: dict[str, Handler] = {
    "closes before answering": writing(b""),
    "closes in the status line": writing(b"HTTP/1.1 20"),
    "closes in the headers": writing(b"HTTP/1.1 200 OK\r\nContent-"),
    "says more length than it sends": writing(b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{}"),
    "ends a chunk early": writing(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nff\r\n{}"),
    "is not HTTP": writing(b"SSH-2.0-OpenSSH\r\n\r\n"),
}


@pytest.mark.acceptance_id("T4")
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("effect", [EFFECT, IDEMPOTENT])
async def test_an_effect_without_a_whole_answer_is_unknown_and_sent_once(
    invoker: HttpInvoker, fault: str, effect: EffectClass
) -> None:
    async with upstream(FAULTS[fault]) as server:
        outcome = await call(invoker, server, spec(effect))
    assert isinstance(outcome, Unknown)
    assert len(server.requests) == 1


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_read_without_a_whole_answer_is_a_failure(invoker: HttpInvoker, fault: str) -> None:
    outcome = await outcome_of(invoker, FAULTS[fault])
    assert isinstance(outcome, Refused)
    assert (outcome.code, outcome.sent) == ("upstream_error", True)


async def test_less_length_than_sent_is_what_the_length_says(invoker: HttpInvoker) -> None:
    assert isinstance(
        await outcome_of(invoker, writing(answer(b'{"a": 1}', headers={"Content-Length": "3"}))), Unrepresentable
    )


@pytest.mark.acceptance_id("T4")
async def test_a_call_past_its_deadline_is_unknown_for_an_effect_and_a_time_out_for_a_read(
    invoker: HttpInvoker,
) -> None:
    effect = await outcome_of(invoker, hang, EFFECT, timeout_s=0.2)
    read = await outcome_of(invoker, hang, READ, timeout_s=0.2)
    assert isinstance(effect, Unknown)
    assert isinstance(read, Refused)
    assert (effect.code, read.code, read.sent) == ("upstream_timeout", "upstream_timeout", True)


async def test_a_slow_drip_ends_at_the_deadline_with_the_status_as_evidence(invoker: HttpInvoker) -> None:
    async def drip(request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{\r\n")
        await writer.drain()
        await asyncio.Event().wait()

    outcome = await outcome_of(invoker, drip, EFFECT, timeout_s=0.2)
    assert isinstance(outcome, Unknown)
    assert "status 200 was received" in outcome.message


async def test_what_cannot_be_connected_to_was_not_sent(invoker: HttpInvoker) -> None:
    async with upstream(answering()) as server:
        gone = server.url
    for effect in (READ, EFFECT):
        outcome = await call(invoker, gone, spec(effect))
        assert isinstance(outcome, Refused)
        assert (outcome.code, outcome.sent) == ("upstream_unreachable", False)


async def test_a_deadline_before_the_connection_stands_was_not_sent() -> None:
    async def resolver(host: str, port: int) -> list[str]:
        await asyncio.Event().wait()
        return []

    guard = AddressGuard(allow_loopback=True, resolver=resolver)
    async with make_client(guard) as client:
        outcome = await call(HttpInvoker(client, guard), "http://a.example", spec(EFFECT), timeout_s=0.05)
    assert isinstance(outcome, Refused)
    assert (outcome.code, outcome.sent) == ("upstream_unreachable", False)


@pytest.mark.acceptance_id("T12")
@pytest.mark.parametrize(
    "base", ["http://10.0.0.1", "http://169.254.169.254", "http://[::ffff:10.0.0.1]", "ftp://a.example"]
)
async def test_an_address_inside_is_refused_unsent(invoker: HttpInvoker, base: str) -> None:
    outcome = await call(invoker, base, spec(EFFECT))
    assert isinstance(outcome, Refused)
    assert (outcome.code, outcome.sent) == ("address_refused", False)


async def test_cancelling_a_call_cancels_it(invoker: HttpInvoker) -> None:
    async with upstream(hang) as server:
        task = asyncio.create_task(call(invoker, server, spec(EFFECT)))
        await server.received.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_a_read_over_a_connection_the_server_has_dropped_is_asked_again(invoker: HttpInvoker) -> None:
    async def once_each(request: Request, writer: asyncio.StreamWriter) -> None:
        if request.connection == 1 and len(server.requests) == 2:
            writer.close()
        else:
            writer.write(answer())

    async with upstream(once_each) as server:
        assert await call(invoker, server) == Succeeded({}, 200)
        assert await call(invoker, server) == Succeeded({}, 200)
        assert [request.connection for request in server.requests] == [1, 1, 2]


async def test_an_effect_over_a_connection_the_server_drops_is_not_sent_again(invoker: HttpInvoker) -> None:
    async def once(request: Request, writer: asyncio.StreamWriter) -> None:
        writer.close() if len(server.requests) == 2 else writer.write(answer())

    async with upstream(once) as server:
        assert await call(invoker, server, spec(EFFECT)) == Succeeded({}, 200)
        assert isinstance(await call(invoker, server, spec(EFFECT)), Unknown)
        assert len(server.requests) == 2


@pytest.mark.acceptance_id("T4")
async def test_a_fault_of_ours_after_sending_leaves_an_effect_unknown(
    invoker: HttpInvoker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(kind: str, data: bytes) -> None:
        raise RuntimeError(SECRET)

    monkeypatch.setattr("runs.tools.http.value_of", broken)
    outcome = await outcome_of(invoker, answering(), EFFECT)
    assert isinstance(outcome, Unknown)
    assert SECRET not in repr(outcome) + caplog.text


async def test_effects_and_reads_use_connections_of_their_own(invoker: HttpInvoker) -> None:
    async with upstream(answering()) as server:
        for effect in (READ, EFFECT, READ, EFFECT):
            await call(invoker, server, spec(effect))
        assert [request.connection for request in server.requests] == [1, 2, 1, 2]


# -- redirects ------------------------------------------------------------------------------------


def redirecting(location: str, status: int = 302) -> Handler:
    async def handler(request: Request, writer: asyncio.StreamWriter) -> None:
        if request.target.startswith("/x"):
            writer.write(answer(b"", status=f"{status} Moved", headers={"Location": location}))
        else:
            writer.write(answer(json.dumps(sorted(request.headers)).encode()))

    return handler


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_an_effect_never_follows_a_redirect(invoker: HttpInvoker, status: int) -> None:
    async with upstream(redirecting("/other?token=one-time", status)) as server:
        outcome = await call(invoker, server, spec(EFFECT))
    assert isinstance(outcome, Refused)
    assert (outcome.status, len(server.requests)) == (status, 1)
    assert "/other" in outcome.message
    assert "one-time" not in outcome.message


async def test_a_read_follows_and_keeps_credentials_at_home_only(invoker: HttpInvoker) -> None:
    tool, credentials = spec(security=BEARER), Credentials({"token": SECRET})
    async with upstream(redirecting("/home")) as server:
        outcome = await call(invoker, server, tool, credentials=credentials)
    assert isinstance(outcome, Succeeded)
    assert "authorization" in outcome.value
    async with upstream(redirecting("/unused")) as other, upstream(redirecting(f"{other.url}/away")) as server:
        outcome = await call(invoker, server, tool, credentials=credentials)
    assert isinstance(outcome, Succeeded)
    assert not {"authorization", "x-run-id"} & set(outcome.value)


@pytest.mark.parametrize("target", ["http://[::1", "//:99999999/", "\\\\x", ""])
async def test_an_effect_s_redirect_to_nonsense_is_still_an_answer(invoker: HttpInvoker, target: str) -> None:
    outcome = await outcome_of(invoker, answering(b"", status="302 Found", headers={"Location": target}), EFFECT)
    assert isinstance(outcome, Refused)
    assert outcome.status == 302


async def test_redirects_are_bounded(invoker: HttpInvoker) -> None:
    async with upstream(redirecting("/x")) as server:
        outcome = await call(invoker, server)
    assert isinstance(outcome, Refused)
    assert (outcome.status, len(server.requests)) == (302, MAX_REDIRECTS + 1)


@pytest.mark.acceptance_id("T12")
@pytest.mark.parametrize(
    "target", ["http://169.254.169.254/", "http://10.0.0.1/", "file:///etc/passwd", "http://[::1", "//u:p@a/"]
)
async def test_a_redirect_inside_is_refused(invoker: HttpInvoker, target: str) -> None:
    outcome = await outcome_of(invoker, redirecting(target))
    assert isinstance(outcome, Refused)
    assert outcome.code == "address_refused"


# -- credentials ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scheme", "secret", "header", "value"),
    [
        ({"kind": "bearer"}, "t0ken", "authorization", "Bearer t0ken"),
        (
            {"kind": "basic"},
            "me:pässword",
            "authorization",
            "Basic " + base64.b64encode("me:pässword".encode()).decode(),
        ),
        ({"kind": "header", "name": "X-Key"}, "k3y-k3y", "x-key", "k3y-k3y"),
        ({"kind": "cookie", "name": "sid"}, "c00kie", "cookie", "sid=c00kie"),
    ],
)
async def test_credentials_go_where_the_scheme_says(
    invoker: HttpInvoker, scheme: dict[str, str], secret: str, header: str, value: str
) -> None:
    async with upstream(answering()) as server:
        await call(invoker, server, spec(security=[{"s": scheme}]), credentials=Credentials({"s": secret}))
    assert server.requests[0].headers[header] == value


async def test_a_key_in_the_query_is_added(invoker: HttpInvoker) -> None:
    tool = spec(security=[{"s": {"kind": "query", "name": "key"}}])
    async with upstream(answering()) as server:
        await call(invoker, server, tool, credentials=Credentials({"s": "a b&c"}))
    assert server.requests[0].target == "/x?key=a%20b%26c"


async def test_the_first_alternative_that_can_be_met_is_used(invoker: HttpInvoker) -> None:
    one, two = {"kind": "header", "name": "X-One"}, {"kind": "header", "name": "X-Two"}
    tool = spec(security=[{}, {"one": one, "two": two}, {"bad": {"kind": "unsupported"}}, {"two": two}])
    async with upstream(answering()) as server:
        await call(invoker, server, tool, credentials=Credentials({"two": "second", "bad": "x"}))
        await call(invoker, server, tool)
    first, second = server.requests
    assert ("x-one" in first.headers, first.headers["x-two"]) == (False, "second")
    assert "x-two" not in second.headers


@pytest.mark.acceptance_id("T11")
async def test_a_missing_connection_says_what_to_do(invoker: HttpInvoker) -> None:
    async with upstream(answering()) as server:
        outcome = await call(invoker, server, spec(EFFECT, security=BEARER), credentials=Credentials({"other": SECRET}))
    assert isinstance(outcome, Refused)
    assert (outcome.code, outcome.sent, server.requests) == ("connection_missing", False, [])
    assert all(word in outcome.message for word in ("'demo'", "token", "admin", "Connections"))


ECHOES: dict[str, Handler] = {
    "json": answering(json.dumps({"you": [{f"sent {SECRET}": f"Bearer {SECRET}"}]}).encode()),
    "escaped json": answering(b'{"you": "' + "".join(f"\\u{ord(c):04x}" for c in SECRET).encode() + b'"}'),
    "text": answering(f"a {SECRET} b".encode(), headers={"Content-Type": "text/plain"}),
    "base64": answering(base64.b64encode(SECRET.encode()), headers={"Content-Type": "text/plain"}),
    "error": answering(f"bad token {SECRET}".encode(), status="401 Unauthorized"),
    "reason": answering(status=f"400 {SECRET}"),
    "location": answering(status="302 Found", headers={"Location": f"/x/{SECRET}"}),
}


@pytest.mark.acceptance_id("T11")
@pytest.mark.parametrize("effect", [READ, EFFECT])
@pytest.mark.parametrize("echo", ECHOES)
async def test_a_secret_that_the_upstream_repeats_is_hidden(
    invoker: HttpInvoker, effect: EffectClass, echo: str
) -> None:
    async with upstream(ECHOES[echo]) as server:
        outcome = await call(invoker, server, spec(effect, security=BEARER), credentials=Credentials({"token": SECRET}))
    assert SECRET in server.requests[0].headers["authorization"]
    assert SECRET not in repr(outcome)
    assert base64.b64encode(SECRET.encode()).decode() not in repr(outcome)
    if echo not in ("location",):
        assert HIDDEN in repr(outcome)


@pytest.mark.acceptance_id("T11")
async def test_a_secret_that_cannot_be_sent_does_not_show(invoker: HttpInvoker) -> None:
    secret = "line\nbreak-secret"
    outcome = await call(
        invoker, "http://127.0.0.1:1", spec(security=BEARER), credentials=Credentials({"token": secret})
    )
    assert isinstance(outcome, Refused)
    assert "secret" not in repr(outcome)
    assert "secret" not in repr(Credentials({"token": secret}))
