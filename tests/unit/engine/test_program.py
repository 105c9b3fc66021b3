"""What the engine runs means the same as what the agent wrote, whichever way it awaits (runs/engine/program.py).

Python itself is the reference: there a tool's answer is a number that may also be awaited. Monty runs the prepared
program with a host that serves calls as the engine does. Results, calls made and line numbers have to agree.
"""

import ast
import asyncio
import sys
import types
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from runs.drivers.base import Answer, Broken, Called, Deferred, Finished, Program, Raised, Returned, Step, Waiting
from runs.drivers.monty import MontyPool
from runs.engine.program import prepare, without_fence

# -- the reference ---------------------------------------------------------------------------------------------


class Item(int):
    """A value that may be awaited as well."""

    def __await__(self) -> Generator[None, None, int]:
        return int(self)
        yield


class Reference:
    """The program in CPython, with a `demo` module whose answers are values and awaitables at once."""

    def __init__(self) -> None:
        self.calls: list[int] = []

    def f(self, i: int) -> Item:
        self.calls.append(i)
        return Item(i * 10)

    def run(self, source: str) -> Any:
        demo = types.ModuleType("demo")
        demo.f = self.f  # type: ignore[attr-defined]
        code = compile(source, "program", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        names: dict[str, Any] = {"__name__": "program"}
        sys.modules["demo"] = demo
        try:
            pending = eval(code, names)
            if pending is not None:
                with asyncio.Runner() as runner:
                    runner.run(pending)
        finally:
            del sys.modules["demo"]
        return names["result"]


# -- the product's side ----------------------------------------------------------------------------------------


class Host:
    """Serves a prepared program's calls as `Execution` does; counts them."""

    def __init__(self, pool: MontyPool) -> None:
        self._pool = pool
        self.calls: list[int] = []
        self.most_at_once = 0

    def answer(self, step: Called) -> Answer:
        if step.name != "demo.f":
            return Raised("NameError", f"name {step.name!r} is not defined")
        (i,) = step.args or step.kwargs.values()
        self.calls.append(i)
        return Returned(i * 10)

    async def run(self, program: Program) -> Step:
        sandbox = await self._pool.checkout(compute_s=5, tools={"demo": ("f",)}, on_print=lambda _: None)
        open_calls: dict[int, Answer] = {}
        try:
            step = await sandbox.start(program, {})
            while True:
                match step:
                    case Called() if step.awaited or step.position in program.deferred:
                        open_calls[step.index] = self.answer(step)
                        self.most_at_once = max(self.most_at_once, len(open_calls))
                        step = await sandbox.answer(Deferred())
                    case Called():
                        step = await sandbox.answer(self.answer(step))
                    case Waiting():
                        step = await sandbox.answer_waiting({i: open_calls.pop(i) for i in step.indexes})
                    case _:
                        return step
        finally:
            await sandbox.close()


@pytest.fixture(scope="module")
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as made:
        yield made


@pytest.fixture(scope="module")
def pool(runner: asyncio.Runner, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MontyPool]:
    directory: Path = tmp_path_factory.mktemp("monty")
    made = MontyPool(directory=directory, max_processes=1)
    yield made
    runner.run(made.close())


# -- programs --------------------------------------------------------------------------------------------------

HEAD = """import asyncio
import demo
from demo import f as g

def helper(i):
    return demo.f(i)

async def later(i):
    return (await demo.f(i)) + 1

async def twice(i):
    a, b = await asyncio.gather(demo.f(i), helper(i + 1))
    return a + b

result = []
"""

numbers = st.integers(0, 9)
CALLS = st.one_of(
    st.builds("demo.f({})".format, numbers),
    st.builds("demo.f(i={})".format, numbers),
    st.builds("g({})".format, numbers),
)
TEXT = st.sampled_from(["", "'é'; ", "'日本'; ", "'𝄞'; ", '"#"; '])
"""Before a call on its line: positions are counted in bytes."""
AWAITABLE = st.one_of(
    CALLS,
    st.builds("helper({})".format, numbers),
    st.builds("later({})".format, numbers),
    st.builds("twice({})".format, numbers),
    st.builds("({} if {} else {})".format, CALLS, st.booleans(), CALLS),
)


def _gather(parts: list[str]) -> str:
    return f"asyncio.gather({', '.join(parts)})"


GATHERED = st.one_of(
    st.lists(AWAITABLE, min_size=1, max_size=4).map(_gather),
    st.builds("asyncio.gather(*[{}, {}])".format, AWAITABLE, AWAITABLE),
    st.builds("asyncio.gather(*[demo.f(i) for i in range({})])".format, st.integers(1, 4)),
    st.builds("asyncio.gather(*(helper(i) for i in range({})))".format, st.integers(1, 4)),
    st.builds("asyncio.gather(*[later(i) for i in range({})], {})".format, st.integers(1, 3), AWAITABLE),
    st.builds("asyncio.gather(asyncio.gather({}, {}), {})".format, AWAITABLE, AWAITABLE, AWAITABLE),
)


@st.composite
def statements(draw: st.DrawFn, name: str) -> list[str]:
    """A few lines that put something into `result`, in one of the ways in which agents write it."""
    call, other, awaitable, gathered, text = draw(CALLS), draw(CALLS), draw(AWAITABLE), draw(GATHERED), draw(TEXT)
    n = draw(st.integers(1, 3))
    shapes = {
        "plain": [f"{text}{name} = {call}", f"result.append({name} + 1)"],
        "in an expression": [f"{text}result.append({call} + {other} * 2)"],
        "awaited": [f"{text}{name} = await {awaitable}", f"result.append({name} + 1)"],
        "awaited in brackets": [f"{text}{name} = (await ({awaitable}))", f"result.append({name})"],
        "awaited in an expression": [f"{text}result.append((await {call}) + (await {awaitable}))"],
        "over lines": [f"{name} = await demo.f(", f"    {n}", ")", f"result.append({name})"],
        "kept, then awaited": [f"{text}{name} = {call}", f"result.append(await {name})"],
        "kept in two, then awaited": [
            f"{name} = {call}", f"{name}b = {other}", f"result.append([await {name}, await {name}b])",
        ],
        "kept, used and awaited": [f"{name} = {call}", f"result.append({name} + 1)", f"result.append(await {name})"],
        "kept by a helper": [f"{name} = helper({n})", f"result.append(await {name})"],
        "unpacked": [f"{name}, {name}b = {call}, {other}", f"result.append([await {name}, {name}b + 1])"],
        "a walrus": [f"result.append(await ({name} := {call}))"],
        "gathered": [f"{text}result.append(list(await {gathered}))"],
        "gathered over lines": [
            f"{name} = await asyncio.gather(", f"    {awaitable},", f"    {call},", ")", f"result.append(list({name}))",
        ],
        "gathered from a list": [
            f"{name} = [demo.f(i) for i in range({n})]", f"result.append(list(await asyncio.gather(*{name})))",
        ],
        "gathered from a display": [
            f"{name} = [{call}, {awaitable}]", f"result.append(list(await asyncio.gather(*{name})))",
        ],
        "gathered from appends": [
            f"{name} = []", f"for i in range({n}):", f"    {name}.append(demo.f(i))",
            f"result.append(list(await asyncio.gather(*{name})))",
        ],
        "a list of values, summed": [f"{name} = [demo.f(i) for i in range({n})]", f"result.append(sum({name}))"],
        "a list, gathered and used": [
            f"{name} = [demo.f(i) for i in range({n})]",
            f"result.append(list(await asyncio.gather(*{name})))", f"result.append(len({name}))",
        ],
        "in a loop": [f"for i in range({n}):", "    result.append(await demo.f(i))"],
        "in a comprehension": [f"result.append([await demo.f(i) for i in range({n})])"],
        "in text": [f"{text}result.append(f'é {{await {call}}} {{{other}}}')"],
        "in a dict": [f"result.append({{'a': await {call}, 'b': {other} + 0}})"],
        "in an async function": [
            f"async def {name}():", f"    {text}x = {call}", f"    y, z = await asyncio.gather(x, {awaitable})",
            "    return [y, z]", f"result.append(await {name}())",
        ],
        "in a function of a function": [
            f"def {name}(i):", "    def inner(j):", "        return demo.f(j)", "    return inner(i) + 1",
            f"result.append({name}({n}))",
        ],
        "in a try": ["try:", f"    result.append(await {awaitable})", "finally:", "    result.append('end')"],
    }  # fmt: skip
    return shapes[draw(st.sampled_from(sorted(shapes)))]


@st.composite
def programs(draw: st.DrawFn) -> str:
    blocks = [line for n in range(draw(st.integers(1, 4))) for line in draw(statements(f"v{n}"))]
    if draw(st.booleans()):
        body = "".join(f"    {line}\n" for line in blocks)
        return f"{HEAD}async def main():\n{body}    return None\nawait main()\nresult"
    return HEAD + "\n".join(blocks) + "\nresult"


def _plain(value: Any) -> Any:
    """Without the reference's own type; tuples as lists."""
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if isinstance(value, dict):
        return {key: _plain(part) for key, part in value.items()}
    return int(value) if isinstance(value, int) else value


@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(source=programs())
@example(source=f"{HEAD}t = demo.f(1)\nu = t\nresult.append(await t)\nresult.append(u + 1)\nresult")
@example(
    source=HEAD + "async def m():\n    global t\n    t = demo.f(1)\n    await t\nawait m()\nresult = t + 1\nresult"
)
def test_a_prepared_program_means_what_was_written(runner: asyncio.Runner, pool: MontyPool, source: str) -> None:
    reference, host = Reference(), Host(pool)
    expected = _plain(reference.run(source))
    ended = runner.run(host.run(prepare(source)))
    assert isinstance(ended, Finished), f"{ended}\n{prepare(source).source}"
    assert _plain(ended.value) == expected, prepare(source).source
    assert sorted(host.calls) == sorted(reference.calls)


def _lines(source: str) -> list[int]:
    return [node.lineno for node in ast.walk(ast.parse(source)) if isinstance(node, ast.stmt)]


@settings(max_examples=200, deadline=None)
@given(source=programs())
def test_line_numbers_stay(source: str) -> None:
    prepared = prepare(source).source
    assert prepared.count("\n") == source.count("\n")
    assert _lines(prepared) == _lines(source)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(source=programs())
def test_an_error_is_told_with_the_line_that_was_written(runner: asyncio.Runner, pool: MontyPool, source: str) -> None:
    broken = source + "\n1 / 0"
    ended = runner.run(Host(pool).run(prepare(broken)))
    assert isinstance(ended, Broken)
    assert (ended.code, ended.line) == ("program_error", broken.count("\n") + 1)


@settings(max_examples=200, deadline=None)
@given(source=programs())
def test_every_deferred_range_is_a_call_of_the_prepared_text(source: str) -> None:
    program = prepare(source)
    text = program.source.encode()
    for start, end in program.deferred:
        node = ast.parse(text[start:end].decode(), mode="eval").body
        assert isinstance(node, ast.Call)


OTHER_WAYS = [
    "t = demo.f(1)\nresult = [await t, await t]",
    "t = demo.f(1)\nfor i in range(2):\n    result.append(await t)",
    "ts = [demo.f(1)]\nresult = [*(await asyncio.gather(*ts)), *(await asyncio.gather(*ts))]",
    "t = demo.f(1)\nt2 = t\nresult = [await t2, t + 1]",
    "d = {'a': demo.f(1)}\nresult = await d['a']",
    "ts = [demo.f(1), demo.f(2)]\nresult = [await t for t in ts]",
    "async def m(x):\n    return await x\nresult = await m(demo.f(1))",
    "from asyncio import gather\nresult = list(await gather(demo.f(1), demo.f(2)))",
    "c = asyncio.gather(demo.f(1), demo.f(2))\nresult = list(await c)",
    "import demo as d\nresult = await d.f(1)",
    "x = lambda: demo.f(1)\nresult = await x()",
    "result = await (await later(1) and demo.f(2))",
    "class A:\n    async def m(self):\n        return await demo.f(3)\nresult = await A().m()",
    "ts = []\nts.append(demo.f(1))\nts += [demo.f(2)]\nresult = list(await asyncio.gather(*ts))",
    "ts = list(demo.f(i) for i in range(2))\nresult = list(await asyncio.gather(*ts))",
    "ts = {i: demo.f(i) for i in range(2)}\nresult = list(await asyncio.gather(*ts.values()))",
    "a = b = demo.f(1)\nresult = [await a, await b]",
    "x: int = demo.f(1)\nresult = await x",
    "import asyncio as aio\nresult = list(await aio.gather(demo.f(1), demo.f(2)))",
    "from asyncio import gather as both\nresult = list(await both(demo.f(1), demo.f(2)))",
]


@pytest.mark.parametrize("body", OTHER_WAYS)
def test_other_ways_of_writing_it_mean_what_was_written(runner: asyncio.Runner, pool: MontyPool, body: str) -> None:
    source, reference, host = f"{HEAD}{body}\nresult", Reference(), Host(pool)
    expected = _plain(reference.run(source))
    ended = runner.run(host.run(prepare(source)))
    assert isinstance(ended, Finished), ended
    assert _plain(ended.value) == expected
    assert sorted(host.calls) == sorted(reference.calls)


@pytest.mark.parametrize(
    ("body", "at_once"),
    [
        ("result = await asyncio.gather(demo.f(1), demo.f(2), demo.f(3))", 3),
        ("ts = [demo.f(i) for i in range(4)]\nresult = await asyncio.gather(*ts)", 4),
        ("ts = []\nfor i in range(4):\n    ts.append(demo.f(i))\nresult = await asyncio.gather(*ts)", 4),
        ("p = demo.f(1)\nq = demo.f(2)\nresult = [await p, await q]", 2),
        ("result = await asyncio.gather(*(demo.f(i) for i in range(4)))", 4),
        ("result = await asyncio.gather(later(1), later(2))", 2),
    ],
)
def test_what_is_written_to_run_at_once_runs_at_once(
    runner: asyncio.Runner, pool: MontyPool, body: str, at_once: int
) -> None:
    host = Host(pool)
    ended = runner.run(host.run(prepare(f"{HEAD}{body}\nresult")))
    assert isinstance(ended, Finished), ended
    assert host.most_at_once == at_once


# -- fences and text that is no program ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "```python\nx = 1\nx\n```",
        "```\nx = 1\nx\n```",
        "\n\n```py\nx = 1\nx\n```\n\n",
        "~~~python\nx = 1\nx\n~~~",
        "````python\nx = 1\nx\n````",
        "```python\r\nx = 1\nx\r\n```",
        "```Python\nx = 1\nx\n```",
    ],
)
def test_a_program_in_a_fence_is_the_program(text: str) -> None:
    assert without_fence(text) == "x = 1\nx"


@pytest.mark.parametrize("text", ["x = '```'", "a\n```python\nx\n```", "```python\nx", "```ruby\nx\n```", ""])
def test_what_is_no_fence_stays_as_it_is(text: str) -> None:
    assert without_fence(text) == text


PIECES = ["await ", "demo.f(1)", "(", ")", "\n", "    ", "import demo", "gather", "*", "def f():", "é", "\r", "\f", ";"]


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=200) | st.lists(st.sampled_from(PIECES), max_size=20).map("".join))
def test_any_text_is_prepared_and_none_of_its_lines_is_lost(text: str) -> None:
    program = prepare(text)
    if not program.prelude:
        assert program.source == without_fence(text)
    assert program.source.count("\n") == without_fence(text).count("\n")


@pytest.mark.parametrize("text", ["(" * 5000, "x = " + "-" * 20_000 + "1", "[" * 3000 + "]" * 3000, "\0", "a\0b"])
def test_text_that_breaks_a_parser_is_left_to_the_sandbox(text: str) -> None:
    assert prepare(text).source == text
