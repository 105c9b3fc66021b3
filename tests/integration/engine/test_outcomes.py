"""A program ends in exactly one way, stored before it is told (acceptance E1, E2, E8, E18, E19)."""

import json
from typing import Any

import pytest

from runs.domain import limits
from runs.domain.principal import Principal
from runs.tools.base import Succeeded
from tests.support.engine import Site, decide, execute, until
from tests.support.pg import Rows


@pytest.mark.acceptance_id("E1")
async def test_a_plain_program_completes_and_nothing_was_paused(site: Site, rows: Rows, owner: int) -> None:
    run = await site.run("print('working')\ninputs['a'] + 1", owner=owner, inputs={"a": 41})
    assert await run.engine.paused_execution_count() == 0
    body = await run.body()
    assert body == {"status": "completed", "run_id": str(run.run_id), "result": 42, "logs": ["working"]}
    assert await run.engine.paused_execution_count() == 0
    assert (await rows.get("runs_run", run.run_id))["state"] == "succeeded"
    assert await rows.kinds(run.run_id) == ["submit", "log", "succeed"]
    assert await rows.one("SELECT body FROM runs_settledoutcome") == body


BROKEN = {
    "syntax": ("import demo\ndemo.get_item(id='1')\nx = = 2", "syntax_error", 3),
    "unsupported": (
        "import demo\ndemo.get_item(id='1')\nclass A(B):\n    pass", "unsupported_construct", 3,
    ),
    "at once": ("import demo\n1 / 0\ndemo.get_item(id='1')", "program_error", 2),
    "no such name": ("import demo\nnothing\ndemo.get_item(id='1')", "program_error", 2),
}  # fmt: skip


@pytest.mark.acceptance_id("E2")
@pytest.mark.parametrize("name", sorted(BROKEN))
async def test_a_program_that_cannot_run_fails_at_once_with_its_line_and_made_no_call(
    site: Site, owner: int, name: str
) -> None:
    code, expected, line = BROKEN[name]
    body = await (await site.run(code, owner=owner)).body(2)
    assert (body["status"], body["error"]["code"], body["error"].get("line")) == ("failed", expected, line)
    assert body["retry_safe"] is True
    assert site.calls.count() == 0


@pytest.mark.acceptance_id("E8")
async def test_an_outcome_that_was_a_failure_is_replayed_as_that_failure(
    site: Site, ann: Principal, owner: int
) -> None:
    run = await site.run("import demo\ndemo.create_charge(amount=1, ref='A')\n1 / 0", owner=owner)
    paused = await run.body()
    first = await decide(site, ann, paused["execution"]["id"])
    assert (first["status"], first["error"]["line"]) == ("failed", 3)
    assert "ZeroDivisionError" in first["error"]["message"]
    assert (first["retry_safe"], first["effects"]) == (False, {"settled": 1, "unknown": 0})
    assert await decide(site, ann, paused["execution"]["id"]) == first
    assert site.calls.count() == 1


FLOODS = {
    "a memory bomb": ("x = 'a' * 10\nwhile True:\n    x = x + x", "memory_exceeded"),
    "an output flood": ("while True:\n    print('x' * 100_000)", "output_limit_exceeded"),
    "a flood of calls": ("import demo\nfor i in range(5000):\n    demo.get_item(id='1')", "too_many_calls"),
    "deep recursion": ("def f(n):\n    return f(n + 1)\nf(0)", "recursion_exceeded"),
    "a result of 10 MB": ("'x' * 10_000_000", "result_too_large"),
    "a result over what is kept": ("'x' * 20_000_000", "result_too_large"),
    "endless compute": ("while True:\n    pass", "compute_time_exceeded"),
    "a flood in an except": (
        "while True:\n    try:\n        while True:\n            pass\n    except BaseException:\n        pass",
        "compute_time_exceeded",
    ),
}


@pytest.mark.acceptance_id("E18", "E17")
@pytest.mark.parametrize("name", sorted(FLOODS))
async def test_a_flood_is_a_coded_failure_with_bounded_output_and_the_site_goes_on(
    site: Site, ann: Principal, name: str
) -> None:
    code, expected = FLOODS[name]
    body = await execute(site, ann, code, timeout_s=0.5 if "compute" in expected else 10.0)
    assert (body["status"], body["error"]["code"]) == ("failed", expected)
    assert len(json.dumps(body)) < limits.LOG_BYTES * 2
    assert (await execute(site, ann, "1 + 1"))["result"] == 2


@pytest.mark.acceptance_id("E18")
async def test_what_was_cut_is_kept_behind_a_handle(site: Site, rows: Rows, ann: Principal) -> None:
    big = await execute(site, ann, "print('x' * 70_000)\nprint('y')\n'r' * 2_000_000")
    assert big["error"]["code"] == "result_too_large"
    kept = {row["name"]: row for row in await rows.all("SELECT * FROM runs_output")}
    assert kept["result"]["text"] == json.dumps("r" * 2_000_000)
    assert "/outputs/result" in big["error"]["message"]
    assert kept["logs"]["text"].replace("\n", "") == "x" * 70_000 + "y"

    long = await execute(site, ann, "for i in range(20_000):\n    print(i)")
    assert long["truncated"]["logs"]["shown_lines"] == len(long["logs"])
    assert sum(len(line) + 1 for line in long["logs"]) <= limits.LOG_BYTES


@pytest.mark.acceptance_id("E17")
async def test_chained_waiting_does_not_count_as_compute_time(site: Site, ann: Principal, owner: int) -> None:
    """Two waits, each as long as the whole compute budget."""
    code = "import demo\na = demo.get_item(id='1')\nb = demo.get_item(id='2')\n[a, b]"
    first, second = site.calls.hold("demo.get_item"), site.calls.hold("demo.get_item")
    run = await site.run(code, owner=owner, timeout_s=0.3)
    loop = run.execution.done.get_loop()
    for held in (first, second):
        await held.arrival()
        begun = loop.time()
        await until(lambda begun=begun: loop.time() - begun > 0.35, "the wait outlasts the budget")
        held.release(Succeeded("ok"))
    assert (await run.body())["result"] == ["ok", "ok"]


FORBIDDEN = [
    "open('/etc/passwd').read()",
    "open('/tmp/x', 'w').write('x')",
    "import os\nos.environ['PATH']",
    "import os\nos.listdir('/')",
    "import pathlib\npathlib.Path('/etc/passwd').read_text()",
    "import socket",
    "import subprocess",
    "import urllib.request",
    "import runs",
    "import django",
    "import executor_site",
    "__import__('os').system('id')",
    "().__class__.__base__.__subclasses__()",
    "(lambda: 0).__globals__",
    "eval('__import__(\"socket\")')",
]


@pytest.mark.acceptance_id("E19")
@pytest.mark.parametrize("code", FORBIDDEN)
async def test_code_reaches_nothing_of_the_host(site: Site, ann: Principal, code: str) -> None:
    body = await execute(site, ann, code)
    assert body["status"] == "failed", body
    assert body["error"]["code"] in ("program_error", "tool_not_found", "unsupported_construct")
    assert site.calls.count() == 0


@pytest.mark.acceptance_id("E19")
async def test_no_state_leaks_from_one_run_to_the_next(site: Site, ann: Principal) -> None:
    for _ in range(3):
        leak = "import json\ntry:\n    found = secret\nexcept NameError:\n    found = None\n"
        leak += "found = found or getattr(json, 'secret', None)\nsecret = 'mine'\n"
        leak += "try:\n    json.secret = 'mine'\nexcept Exception:\n    pass\nfound"
        body = await execute(site, ann, leak)
        assert body["result"] is None, body


@pytest.mark.acceptance_id("E19")
async def test_a_worker_has_nothing_of_ours_in_its_environment(
    site: Site, owner: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EXECUTOR_TEST_SECRET", "do-not-leak")
    held = site.calls.hold("demo.get_item")
    run = await site.run("import demo\ndemo.get_item(id='1')", owner=owner)
    await held.arrival()
    with open(f"/proc/{site.workers.taken[-1].worker_pid}/environ", "rb") as environ:
        assert b"do-not-leak" not in environ.read()
    held.release()
    await run.body()


RESULTS: list[tuple[str, Any]] = [
    ("(1, 2)", [1, 2]),
    ("{1: 'a', None: 2}", {"1": "a", "null": 2}),
    ("b'ab'", "YWI="),
    ("import datetime\ndatetime.date(2020, 1, 2)", "2020-01-02"),
    ("10 ** 50", 10**50),
]


@pytest.mark.parametrize(("code", "result"), RESULTS)
async def test_a_value_of_python_becomes_json(site: Site, ann: Principal, code: str, result: Any) -> None:
    body = await execute(site, ann, code)
    assert body.get("result") == result, body


@pytest.mark.parametrize("code", ["float('nan')", "float('inf')", "[1, {'a': float('nan')}]"])
async def test_a_result_that_is_not_json_is_a_coded_failure(site: Site, ann: Principal, code: str) -> None:
    body = await execute(site, ann, code)
    assert (body["status"], body["error"]["code"]) == ("failed", "result_not_json")


@pytest.mark.acceptance_id("E17")
async def test_a_busy_program_does_not_slow_other_callers(site: Site, ann: Principal, owner: int) -> None:
    busy = await site.run("while True:\n    pass", owner=owner, timeout_s=5)
    await busy.computing()
    loop = busy.execution.done.get_loop()
    begun = loop.time()
    assert (await execute(site, ann, "1 + 1"))["result"] == 2
    assert loop.time() - begun < 1.0
    await busy.scope.close(within_s=1)


@pytest.mark.parametrize("code", ["'a\\x00b'", "'\\ud800'", "print('\\x00')", "emit('\\x00')", "{'\\x00': 1}"])
async def test_text_that_the_database_cannot_keep_still_ends_the_run(site: Site, ann: Principal, code: str) -> None:
    assert (await execute(site, ann, code))["status"] in ("completed", "failed")
