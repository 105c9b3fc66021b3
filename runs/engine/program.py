"""From what an agent wrote to what the sandbox runs: fences off, and which calls are awaited later.

A tool call is written plainly (`x = demo.get_item(id="7")`) or awaited, alone or in a gather. The sandbox asks
its host at the call, before it is known whether the value or something to await is wanted. What the text says is
read here: a call whose value only ever goes into `await` or `gather` is *deferred*, and runs concurrently. Where
the text does not tell (a helper that returns a call), the value is given at once and made awaitable, so the
program means the same, one call after the other.
"""

import ast
import re
from bisect import bisect_left, bisect_right
from collections import Counter
from itertools import accumulate

from runs.drivers.base import Program

_FENCE = re.compile(
    r"\A\s*(?P<ticks>`{3,}|~{3,})[ \t]*(?:python|py|python3)?[ \t]*\r?\n(?P<body>.*?)\r?\n?(?P=ticks)\s*\Z",
    re.S | re.I,
)

BUILTINS = frozenset({"ask", "open_url", "sleep", "emit", "search_tools", "describe_tool"})
AWAITABLE = "_value_or_await"
PRELUDE = f"""async def {AWAITABLE}(value):
    if str(type(value)) == "<class 'coroutine'>":
        return await value
    return value
"""


def without_fence(text: str) -> str:
    """The program inside a Markdown fence, or the text itself."""
    match = _FENCE.match(text)
    return match["body"] if match else text


def prepare(text: str) -> Program:
    """Read the program's awaits. Text that this Python cannot parse is left as it is: the sandbox judges it."""
    source = without_fence(text)
    if "await" not in source and "gather" not in source:
        return Program(source)  # nothing is awaited, so every value is given at once
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return Program(source)
    try:
        reading = _Reading(source, tree)
    except RecursionError:
        return Program(source)
    return reading.program()


class _Reading:
    """One pass over the tree: scopes, their awaited names, and the edits that make plain values awaitable."""

    def __init__(self, source: str, tree: ast.Module) -> None:
        self._source = source.encode()
        self._lines = _line_starts(self._source)
        self._deferred: set[ast.Call] = set()
        self._edits: list[tuple[int, str]] = []
        imported = [alias for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
        self._names = _AsyncioNames(tree, imported)
        self._modules = frozenset(alias.asname or alias.name for alias in imported) - self._names.modules
        self._functions = BUILTINS | {
            alias.asname or alias.name
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and node.module != "asyncio"
            for alias in node.names
        }
        for scope in _scopes(tree):
            awaited = self._names.awaited(scope)
            for node in _own_nodes(scope):
                if isinstance(node, ast.Await):
                    self._read_await(node)
                elif isinstance(node, ast.Call) and self._names.is_gather(node):
                    for argument in node.args:
                        self._read_gathered(argument)
                else:
                    self._read_stored(node, awaited)

    def program(self) -> Program:
        if not self._edits and not self._deferred:
            return Program(self._source.decode())
        edits = sorted(self._edits, key=lambda edit: edit[0])
        text, at, shifts = bytearray(), 0, []
        for offset, inserted in edits:
            text += self._source[at:offset] + inserted.encode()
            at = offset
            shifts.append((offset, len(inserted.encode())))
        text += self._source[at:]

        places = [offset for offset, _ in shifts]
        moves = [0, *accumulate(length for _, length in shifts)]

        def moved(offset: int, *, is_end: bool) -> int:
            return offset + moves[(bisect_left if is_end else bisect_right)(places, offset)]

        deferred = frozenset(
            (moved(self._start(call), is_end=False), moved(self._end(call), is_end=True)) for call in self._deferred
        )
        return Program(text.decode(), PRELUDE if edits else "", deferred)

    def _read_await(self, node: ast.Await) -> None:
        """An awaited tool call is deferred, `await gather(…)` is read there; any other value is made awaitable."""
        value = node.value
        if self._is_tool_call(value):
            self._deferred.add(value)  # type: ignore[arg-type]
        elif not self._names.is_call(value):
            self._wrap(value)

    def _read_gathered(self, argument: ast.expr) -> None:
        if isinstance(argument, ast.Starred):
            inner = argument.value
            if isinstance(inner, ast.List | ast.Tuple):
                for element in inner.elts:
                    self._read_gathered(element)
            elif isinstance(inner, ast.ListComp | ast.GeneratorExp):
                self._read_gathered(inner.elt)
            else:
                start, end = self._start(inner), self._end(inner)
                self._edits += [(start, f"[{AWAITABLE}(_v) for _v in "), (end, "]")]
            return
        if self._is_tool_call(argument):
            self._deferred.add(argument)  # type: ignore[arg-type]
        else:
            self._wrap(argument)

    def _read_stored(self, node: ast.AST, awaited: frozenset[str]) -> None:
        """`t = tool(…)`, `ts = [tool(…) for …]`, `ts.append(tool(…))`, where the name is only ever awaited."""
        values: list[ast.expr] = []
        if isinstance(node, ast.Assign) and all(isinstance(t, ast.Name) and t.id in awaited for t in node.targets):
            values = [node.value]
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "append"
            and isinstance(node.func.value, ast.Name)
            and node.func.value.id in awaited
        ):
            values = list(node.args)
        for value in values:
            elements = [value]
            if isinstance(value, ast.List | ast.Tuple):
                elements = list(value.elts)
            elif isinstance(value, ast.ListComp):
                elements = [value.elt]
            self._deferred.update(e for e in elements if isinstance(e, ast.Call) and self._is_tool_call(e))

    def _is_tool_call(self, node: ast.AST) -> bool:
        """A call of the host: `module.tool(…)` of an imported module, a tool imported by name, or a built-in."""
        if not isinstance(node, ast.Call):
            return False
        function = node.func
        if isinstance(function, ast.Name):
            return function.id in self._functions
        return (
            isinstance(function, ast.Attribute)
            and isinstance(function.value, ast.Name)
            and function.value.id in self._modules
        )

    def _wrap(self, node: ast.expr) -> None:
        self._edits += [(self._start(node), f"{AWAITABLE}("), (self._end(node), ")")]

    def _start(self, node: ast.expr) -> int:
        return self._lines[node.lineno - 1] + node.col_offset

    def _end(self, node: ast.expr) -> int:
        if node.end_lineno is None or node.end_col_offset is None:
            raise ValueError("a parsed expression has an end")
        return self._lines[node.end_lineno - 1] + node.end_col_offset


def _line_starts(source: bytes) -> list[int]:
    starts = [0]
    for line in re.split(rb"(?<=\n)|(?<=\r)(?!\n)", source):
        starts.append(starts[-1] + len(line))
    return starts


def _scopes(tree: ast.Module) -> list[ast.AST]:
    functions = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
    return [tree, *(node for node in ast.walk(tree) if isinstance(node, functions))]


def _own_nodes(scope: ast.AST) -> list[ast.AST]:
    """The nodes of this scope, those of inner functions excluded."""
    found: list[ast.AST] = []
    waiting = list(ast.iter_child_nodes(scope))
    while waiting:
        node = waiting.pop()
        found.append(node)
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            waiting += list(ast.iter_child_nodes(node))
    return found


class _AsyncioNames:
    """What the program calls asyncio and its gather."""

    def __init__(self, tree: ast.Module, imported: list[ast.alias]) -> None:
        self.modules = {"asyncio"} | {alias.asname or alias.name for alias in imported if alias.name == "asyncio"}
        self._gathers = {"gather"} | {
            alias.asname or alias.name
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and node.module == "asyncio"
            for alias in node.names
            if alias.name == "gather"
        }

    def is_call(self, node: ast.AST) -> bool:
        """`asyncio.gather(…)`, `asyncio.sleep(…)` …, and a bare `gather(…)`: awaitable as they are."""
        return self.is_gather(node) or (isinstance(node, ast.Call) and self._is_of_module(node.func))

    def is_gather(self, node: ast.AST) -> bool:
        if not isinstance(node, ast.Call):
            return False
        function = node.func
        if isinstance(function, ast.Name):
            return function.id in self._gathers
        return self._is_of_module(function) and isinstance(function, ast.Attribute) and function.attr == "gather"

    def _is_of_module(self, function: ast.expr) -> bool:
        return (
            isinstance(function, ast.Attribute)
            and isinstance(function.value, ast.Name)
            and function.value.id in self.modules
        )

    def awaited(self, scope: ast.AST) -> frozenset[str]:
        """Names whose every use in this scope is `await name`, `gather(name)`, `gather(*name)`, `name.append(…)`."""
        uses: Counter[str] = Counter()
        awaited: Counter[str] = Counter()
        appended: Counter[str] = Counter()
        for node in ast.walk(scope):
            if isinstance(node, ast.Global | ast.Nonlocal):
                # Used outside of this scope too, where nothing is known of it: the value is given at once.
                uses.update(dict.fromkeys(node.names, 1))
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                uses[node.id] += 1
            if isinstance(node, ast.Await) and isinstance(node.value, ast.Name):
                awaited[node.value.id] += 1
            if isinstance(node, ast.Call) and self.is_gather(node):
                for argument in node.args:
                    inner = argument.value if isinstance(argument, ast.Starred) else argument
                    if isinstance(inner, ast.Name):
                        awaited[inner.id] += 1
            if isinstance(node, ast.Attribute) and node.attr == "append" and isinstance(node.value, ast.Name):
                appended[node.value.id] += 1
        return frozenset(name for name, n in awaited.items() if n + appended[name] == uses[name])
