"""Whatever comes in ends in a coded answer and consistent rows, and nothing is a 500 (section E, 17 to 19)."""

import json
import socket
import statistics
import time
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest

from runs.domain import limits
from runs.domain.codes import CODES
from tests.support.checker import assert_sound
from tests.support.client import Reply, at_once, meanwhile
from tests.support.site import Site, eventually, module_site


@pytest.fixture(scope="module")
def shared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    yield from module_site(request, tmp_path_factory, "web", "cluster")


@pytest.fixture
def site(shared: Site) -> Iterator[Site]:
    yield shared
    assert shared.client().healthy()
    assert_sound(shared)


@pytest.fixture
def ref() -> str:
    return uuid4().hex


def refused(reply: Reply, status: int, *codes: str) -> None:
    assert (reply.status, reply.code in codes) == (status, True), f"{reply.status}: {reply.body}"
    assert reply.body["error"].keys() >= {"code", "message", "correlation_id"}
    assert "Traceback" not in json.dumps(reply.body)


def failed(site: Site, code: str, expected: str, **fields: Any) -> dict[str, Any]:
    answer = site.client().execute(code, **fields)
    assert answer["status"] == "failed", answer
    assert answer["error"]["code"] == expected, answer["error"]
    return answer


# -- requests ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"nonsense", b'{"code": "1"', b"\xff\xfe{}", b'{"code": "\xc3\x28"}', b'{"code": NaN}', b"[" * 100_000],
    ids=["empty", "cut", "nonsense", "open", "utf-16", "broken utf-8", "NaN", "deep"],
)
@pytest.mark.parametrize("path", ["/executions", "/runs", "/executions/exec_x/resume"])
def test_what_is_not_json_is_refused(site: Site, path: str, body: bytes) -> None:
    reply = site.client().ask("POST", path, content=body, headers={"Content-Type": "application/json"})
    refused(reply, *((400, "invalid_json") if body else (422, "invalid_request")))


@pytest.mark.parametrize(
    "body",
    [
        {},
        [],
        "code",
        None,
        {"code": 1},
        {"code": None},
        {"code": ""},
        {"code": ["1"]},
        {"code": "1", "unknown": 1},
        {"code": "1", "inputs": []},
        {"code": "1", "inputs": "x"},
        {"code": "1", "timeout_s": 0},
        {"code": "1", "timeout_s": -1},
        {"code": "1", "timeout_s": 1e9},
        {"code": "1", "timeout_s": "soon"},
        {"code": "1", "wait_s": -1},
        {"code": "1", "wait_s": 1e9},
        {"code": "1", "language": "perl"},
        {"code": "#" + "x" * 1_000_000},
    ],
    ids=lambda body: json.dumps(body)[:40],
)
def test_a_body_that_breaks_the_contract_is_refused_with_what_is_wrong(site: Site, body: Any) -> None:
    before = site.rows("SELECT count(*) AS n FROM runs_run")
    content = json.dumps(body).encode()
    reply = site.client().ask("POST", "/executions", content=content, headers={"Content-Type": "application/json"})
    refused(reply, 422, "invalid_request")
    assert site.rows("SELECT count(*) AS n FROM runs_run") == before


@pytest.mark.parametrize(
    "body",
    [{"code": "1\0"}, {"code": "1", "inputs": {"a": "\0"}}, {"code": "1", "inputs": {"\0": 1}}, {"code": "\ud800"}],
)
def test_text_that_no_database_keeps_is_refused_with_its_reason(site: Site, body: Any) -> None:
    reply = site.client().ask("POST", "/executions", content=json.dumps(body).encode())
    refused(reply, 422, "invalid_request")
    assert "NUL" in reply.body["error"]["message"] or "surrogate" in reply.body["error"]["message"]


def test_a_megabyte_of_code_within_the_limit_runs(site: Site) -> None:
    answer = site.client().execute("#" + "x" * (limits.CODE_BYTES - 3) + "\n1", timeout_s=60)
    assert answer["status"] == "completed", answer


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"])
def test_a_body_of_another_type_is_415(site: Site, kind: str) -> None:
    reply = site.client().ask("POST", "/executions", content=b'{"code": "1"}', headers={"Content-Type": kind})
    refused(reply, 415, "unsupported_media_type")


def answer_of(connection: socket.socket) -> tuple[int, dict[str, Any]]:
    data = b""
    while chunk := connection.recv(65_536):
        data += chunk
        head, found, body = data.partition(b"\r\n\r\n")
        if found:
            length = next(
                int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length")
            )
            if len(body) >= length:
                return int(head.split()[1]), json.loads(body[:length])
    raise AssertionError(f"the connection ended after {data!r}")


def test_a_body_over_the_limit_is_413_by_its_announcement(site: Site) -> None:
    with site.client().raw("/executions", limits.BODY_BYTES + 1) as connection:
        status, body = answer_of(connection)
    assert (status, body["error"]["code"]) == (413, "payload_too_large")


def test_a_streamed_body_over_the_limit_is_413_without_any_announcement(site: Site) -> None:
    chunk = b"x" * 65_536
    with site.client().raw("/executions", None) as connection:
        try:
            for _ in range(limits.BODY_BYTES // len(chunk) + 2):
                connection.sendall(f"{len(chunk):x}\r\n".encode() + chunk + b"\r\n")
        except OSError:
            pass  # it was cut off: the answer is there all the same, or the connection is
        try:
            status, body = answer_of(connection)
        except ConnectionResetError:
            return
    assert (status, body["error"]["code"]) == (413, "payload_too_large")


def test_a_body_that_never_ends_in_time_harms_nobody(site: Site) -> None:
    with site.client().raw("/executions", 1_000) as connection:
        connection.sendall(b'{"code": ')
        assert site.client().execute("1")["result"] == 1


@pytest.mark.parametrize("token", [None, "nobody", "x" * 10_000, "a b c"])
def test_without_a_valid_token_there_is_401(site: Site, token: str | None) -> None:
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    for method, path in (("POST", "/executions"), ("GET", "/runs"), ("GET", f"/runs/{uuid4()}/events")):
        client = site.client(None)
        reply = client.ask(method, path, json={"code": "1"} if method == "POST" else None, headers=headers)
        refused(reply, 401, "unauthorized")


@pytest.mark.parametrize("run", [str(uuid4()), "nonsense", "%00", "..%2f..", "1" * 3_000])
def test_an_unknown_run_is_404_everywhere(site: Site, run: str) -> None:
    for method, path in (
        ("GET", ""),
        ("GET", "/effects"),
        ("GET", "/events"),
        ("GET", "/outputs/result"),
        ("POST", "/cancel"),
    ):
        refused(site.client().ask(method, f"/runs/{run}{path}"), 404, "not_found")


@pytest.mark.acceptance_id("S3")
def test_another_users_run_is_404_everywhere(site: Site, ref: str) -> None:
    answer = site.client().execute(f"import shop\nshop.create_charge(amount=1, ref={ref!r})")
    run, execution = answer["run_id"], answer["execution"]["id"]
    bob = site.client("bob")
    for method, path in (
        ("GET", ""),
        ("GET", "/effects"),
        ("GET", "/events"),
        ("GET", "/outputs/result"),
        ("POST", "/cancel"),
    ):
        refused(bob.ask(method, f"/runs/{run}{path}"), 404, "not_found")
    refused(bob.ask("GET", f"/executions/{execution}"), 404, "not_found")
    refused(bob.ask("POST", f"/executions/{execution}/resume", json={"action": "accept"}), 404, "not_found")
    assert run not in [one["id"] for one in bob.ask("GET", "/runs").body["runs"]]
    assert site.client("sam").run(run)["id"] == run, "staff see all"
    assert site.state(run) == "paused"


@pytest.mark.parametrize(
    "query",
    ["state=nonsense", "kind=x", "cursor=nonsense", "limit=0", "limit=100000", "limit=x", "q=%00", "cursor=%ff"],
)
def test_a_bad_query_is_a_coded_refusal(site: Site, query: str) -> None:
    reply = site.client().ask("GET", f"/runs?{query}")
    assert reply.status in (400, 422), reply.body
    assert reply.code in ("invalid_request", "invalid_cursor")


@pytest.mark.parametrize("key", ["x" * 201, "\x7f", "\xe9" * 300])
def test_a_bad_idempotency_key_is_refused(site: Site, key: str) -> None:
    reply = site.client().ask(
        "POST", "/executions", json={"code": "1"}, headers={"Idempotency-Key": key.encode("latin-1")}
    )
    assert reply.status in (400, 422), reply.body


@pytest.mark.parametrize("last", ["-1", "x", "1.5", "9" * 30])
def test_a_bad_last_event_id_is_refused(site: Site, last: str) -> None:
    run = site.client().execute("1")["run_id"]
    reply = site.client().ask("GET", f"/runs/{run}/events", headers={"Last-Event-ID": last})
    refused(reply, 422, "invalid_request")


def test_an_unknown_address_of_the_api_is_a_json_404(site: Site) -> None:
    for path in ("/nonsense", "/executions/x/y/z", "/"):
        refused(site.client().ask("GET", path), 404, "not_found")


@pytest.mark.parametrize(
    "body",
    [{}, {"action": "maybe"}, {"action": 1}, {"action": "accept", "x": 1}, {"action": "decline", "reason": "x" * 3_000},
     {"action": "accept", "wait_s": -1}],
    ids=lambda body: json.dumps(body)[:40],
)  # fmt: skip
def test_a_bad_decision_leaves_the_pause_open(site: Site, ref: str, body: Any) -> None:
    execution = site.client().execute(f"import shop\nshop.create_charge(amount=1, ref={ref!r})")["execution"]["id"]
    refused(site.client().ask("POST", f"/executions/{execution}/resume", json=body), 422, "invalid_request")
    assert site.client().execution(execution)["state"] == "pending"
    assert site.sink.count(ref) == 0


def test_form_content_over_its_limit_leaves_the_pause_open(site: Site) -> None:
    execution = site.client().execute("ask('name?')")["execution"]["id"]
    reply = site.client().resume_reply(execution, content={"answer": "x" * 200_000})
    refused(reply, 422, "content_invalid")
    assert site.client().execution(execution)["state"] == "pending"


# -- programs ------------------------------------------------------------------------------------------------


@pytest.mark.acceptance_id("E17")
def test_endless_compute_is_ended_at_its_limit(site: Site) -> None:
    begun = time.monotonic()
    failed(site, "while True:\n    pass", "compute_time_exceeded", timeout_s=0.5)
    failed(
        site,
        "while True:\n    try:\n        while True: pass\n    except BaseException: pass",
        "compute_time_exceeded",
        timeout_s=0.5,
    )
    assert time.monotonic() - begun < 15


@pytest.mark.acceptance_id("E17")
def test_programs_that_compute_leave_healthz_quick_and_others_unharmed(site: Site) -> None:
    busy = [lambda: site.client().execute("while True:\n    pass", timeout_s=2.0) for _ in range(3)]
    times = []
    with meanwhile(lambda: at_once(busy)) as ended:
        eventually(site.sandboxes)
        for _ in range(15):
            begun = time.monotonic()
            assert site.client().healthy()
            times.append(time.monotonic() - begun)
        assert site.client().execute("1 + 1")["result"] == 2
        assert {answer["error"]["code"] for answer in ended()} == {"compute_time_exceeded"}
    assert statistics.median(times) < 0.2, times


@pytest.mark.acceptance_id("E18")
@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("x = 'a'\nwhile True:\n    x += x", "memory_exceeded"),
        ("[0] * 10**10", "memory_exceeded"),
        ("10 ** 10 ** 9", "memory_exceeded"),
        ("def f(n): return f(n + 1)\nf(0)", "recursion_exceeded"),
        ("'x' * 10_000_000", "result_too_large"),
        ("while True:\n    print('x' * 10_000)", "output_limit_exceeded"),
        ("while True:\n    search_tools('x')", "too_many_calls"),
        ("x = []\nfor n in range(200): x = [x]\nx", "result_not_json"),
        ("float('nan')", "result_not_json"),
    ],
    ids=lambda value: str(value)[:24],
)
def test_what_a_program_overdoes_is_a_coded_failure(site: Site, code: str, expected: str) -> None:
    answer = failed(site, code, expected, timeout_s=20)
    assert len(json.dumps(answer)) < 200_000
    assert answer["retry_safe"] is True
    assert site.client().execute("1 + 1")["result"] == 2


@pytest.mark.acceptance_id("E18")
def test_a_result_that_is_too_large_is_kept_behind_a_handle(site: Site) -> None:
    answer = failed(site, "'y' * 2_000_000", "result_too_large")
    kept = site.client().ask("GET", f"/runs/{answer['run_id']}/outputs/result")
    assert f"/api/v1/runs/{answer['run_id']}/outputs/result" in answer["error"]["message"]
    assert kept.body == "y" * 2_000_000


@pytest.mark.acceptance_id("E18")
def test_a_log_that_is_too_long_is_cut_and_kept_behind_a_handle(site: Site) -> None:
    answer = site.client().execute("for n in range(20_000): print('line', n)\n'done'")
    assert answer["status"] == "completed"
    assert len(json.dumps(answer["logs"])) < 200_000
    kept = site.client().ask("GET", answer["truncated"]["logs"]["href"].removeprefix("/api/v1"))
    assert len(kept.body) > len("\n".join(answer["logs"]))


@pytest.mark.acceptance_id("E19")
@pytest.mark.parametrize(
    "code",
    [
        "open('/etc/passwd').read()",
        "import os\nos.environ['PATH']",
        "import os\nos.listdir('/')",
        "import os\nos.system('id')",
        "import subprocess",
        "import socket",
        "import urllib.request",
        "import runs",
        "import django",
        "import executor_site.settings",
        "import pathlib\npathlib.Path('/etc/passwd').read_text()",
        "().__class__.__mro__[1].__subclasses__()",
        "(lambda: 1).__globals__",
        "__import__('os').system('id')",
        "__builtins__",
        "globals()",
    ],
)
def test_a_program_reaches_nothing_of_its_host(site: Site, code: str) -> None:
    answer = site.client().execute(code)
    assert answer["status"] == "failed", answer
    assert answer["error"]["code"] in CODES
    assert "root:" not in json.dumps(answer)
    assert answer["retry_safe"] is True


@pytest.mark.acceptance_id("E19")
def test_no_state_leaks_from_one_run_to_the_next(site: Site) -> None:
    site.client().execute("import math, sys\nleak = 'secret'\nmath.pi_was = 4\n1")
    for code in ("leak", "import math\nmath.pi_was"):
        answers = at_once([lambda code=code: site.client().execute(code) for _ in range(8)])
        assert {answer["status"] for answer in answers} == {"failed"}
        assert "secret" not in json.dumps(answers)


# -- upstreams -----------------------------------------------------------------------------------------------


@pytest.mark.acceptance_id("T2")
@pytest.mark.parametrize("fault", ["flood", "close", "short", "long", "broken_json", "redirect", "status"])
def test_a_read_of_an_upstream_that_misbehaves_ends_in_a_code(site: Site, ref: str, fault: str) -> None:
    more = {"redirect": {"to": "http://169.254.169.254/latest/meta-data"}, "status": {"status": 500}}.get(fault, {})
    site.sink.fault(ref, fault, **more)
    answer = site.client().execute(f"import free\nfree.get_item(id={ref!r})")
    if answer["status"] == "completed":
        assert fault in ("flood", "broken_json", "long")
        assert len(json.dumps(answer)) < 100_000
    else:
        assert answer["error"]["code"] in ("upstream_error", "address_refused", "program_error"), answer
        assert answer["retry_safe"] is True


@pytest.mark.acceptance_id("T2", "T12")
def test_an_effect_is_not_sent_to_a_second_place(site: Site, ref: str) -> None:
    site.sink.fault(ref, "redirect", to="http://169.254.169.254/")
    answer = failed(site, f"import free\nfree.create_charge(amount=1, ref={ref!r})", "upstream_error")
    assert answer["effects"] == {"settled": 1, "unknown": 0}
    assert site.sink.count(ref) == 1


def test_an_upstream_that_is_away_means_that_nothing_was_sent(site: Site, ref: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    site.write(
        "INSERT INTO runs_source (id, name, kind, title, spec_url, base_url, module, honours_key, security, skipped)"
        " SELECT gen_random_uuid(), %s, kind, title, spec_url, %s, module, false, security, skipped FROM runs_source"
        " WHERE name = 'free'",
        f"away_{ref}",
        f"http://127.0.0.1:{port}",
    )
    site.write(
        "INSERT INTO runs_tool (name, description, input_schema, output_schema, effect, binding, sensitive, granted,"
        " source_id) SELECT t.name, t.description, t.input_schema, t.output_schema, t.effect, t.binding, t.sensitive,"
        " true, n.id FROM runs_tool t JOIN runs_source s ON s.id = t.source_id, runs_source n"
        " WHERE s.name = 'free' AND n.name = %s",
        f"away_{ref}",
    )
    site.write(
        "INSERT INTO runs_policy (id, pattern, action, approver, position)"
        " VALUES (gen_random_uuid(), %s, 'allow', 'owner', 1)",
        f"away_{ref}.*",
    )
    answer = failed(
        site, f"import away_{ref} as away\naway.create_charge(amount=1, ref={ref!r})", "upstream_unreachable"
    )
    assert answer["effects"] == {"settled": 0, "unknown": 0}
    assert answer["retry_safe"] is True
