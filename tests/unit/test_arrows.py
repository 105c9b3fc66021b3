"""Data flows one way, and only the store writes (spec/design.md, section 3). Read from the source, not run."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

PURE = {
    "abc",
    "collections",
    "dataclasses",
    "enum",
    "functools",
    "hashlib",
    "itertools",
    "json",
    "math",
    "re",
    "typing",
}
"""What the domain may take of the standard library: no clock, no randomness, no I/O."""
PURE_BUT_FOR = {"crashpoints.py": {"os", "signal"}}
"""Killing its own process is what a crash point is for."""

MAY_NOT_IMPORT = {
    "runs/models": {"store", "engine", "services", "drivers", "tools", "selectors", "api", "admin"},
    "runs/store": {"engine", "services", "drivers", "tools", "selectors", "api", "admin"},
    "runs/drivers": {"store", "engine", "services", "models", "selectors", "api", "admin"},
    "runs/tools": {"store", "engine", "services", "drivers", "api", "admin"},
    "runs/engine": {"services", "selectors", "api", "admin"},
    "runs/selectors": {"store", "engine", "services", "drivers", "api", "admin"},
    "runs/services": {"api", "admin"},
    "runs/api": {"store", "drivers", "admin"},
    "runs/admin": {"store", "drivers", "api"},
    "runs/pages": {"store", "drivers", "api", "admin"},
}
SHARED = {"runs.store.transition.Connection", "runs.tools.base.ToolSpec"}
"""Plain types: the connection that a reader is handed, and a tool as it is stored; they bring nothing along."""
WRITES_NOTHING = ("runs/domain", "runs/engine", "runs/tools", "runs/selectors", "runs/api")

SQL_WRITE = re.compile(r"\b(INSERT\s+INTO|DELETE\s+FROM|UPDATE\s+[\w\"{}.]+(\s+AS\s+\w+|\s+[a-z]\w*)?\s+SET)\b")
SQL = re.compile(rf"\bSELECT\s.+\sFROM\b|{SQL_WRITE.pattern}", re.DOTALL)
ALWAYS_WRITES = {"save", "asave", "bulk_create", "bulk_update", "get_or_create", "update_or_create"}
QUERYSET_WRITES = {"create", "acreate", "update", "aupdate", "delete", "adelete"}
QUERYSET = {"objects", "filter", "exclude", "select_for_update"}


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), str(path))


def _files(folder: str) -> list[Path]:
    return sorted((ROOT / folder).rglob("*.py"))


def _where(path: Path, node: ast.AST) -> str:
    return f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 0)}"


def _imports(path: Path) -> Iterator[tuple[str, ast.AST]]:
    """Absolute dotted names, `from a import b` as a.b, relative ones resolved, also inside functions."""
    package = path.relative_to(ROOT).with_suffix("").parts[:-1]
    for node in ast.walk(_tree(path)):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            stem = ".".join((*base, *((node.module or "").split(".") if node.module else ())))
            yield from ((f"{stem}.{alias.name}", node) for alias in node.names)


def _texts(path: Path) -> Iterator[tuple[str, ast.AST]]:
    """Every text but docstrings; the parts of an f-string together, its values as {}."""
    tree = _tree(path)
    skipped = {
        id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            skipped |= {id(part) for part in node.values}
            yield "".join(str(p.value) if isinstance(p, ast.Constant) else "{}" for p in node.values), node
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in skipped:
            yield node.value, node


def _chain(node: ast.expr) -> set[str]:
    names: set[str] = set()
    while isinstance(node, ast.Attribute | ast.Call):
        if isinstance(node, ast.Attribute):
            names.add(node.attr)
            node = node.value
        else:
            node = node.func
    return names


def _orm_writes(path: Path) -> Iterator[str]:
    for node in ast.walk(_tree(path)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            name = node.func.attr
            if name in ALWAYS_WRITES or (name in QUERYSET_WRITES and _chain(node.func.value) & QUERYSET):
                yield f"{_where(path, node)} .{name}()"


def test_the_domain_knows_no_django_no_clock_and_no_io() -> None:
    wrong = []
    for path in _files("runs/domain"):
        granted = PURE | PURE_BUT_FOR.get(path.name, set())
        for name, node in _imports(path):
            if name == "uuid.UUID":
                continue  # the type alone, not what makes one
            if name.split(".")[0] not in granted and not name.startswith("runs.domain."):
                wrong.append(f"{_where(path, node)} imports {name}")
        for node in ast.walk(_tree(path)):
            if isinstance(node, ast.Name) and node.id in ("open", "print", "input", "__import__"):
                wrong.append(f"{_where(path, node)} uses {node.id}")
    assert wrong == []


def test_runs_knows_nothing_of_sessions() -> None:
    wrong = [
        f"{_where(path, node)} imports {name}"
        for path in _files("runs")
        for name, node in _imports(path)
        if name.split(".")[0] == "sessions"
    ]
    assert wrong == []


def test_sessions_reach_runs_through_services_selectors_and_the_domain_alone() -> None:
    wrong = [
        f"{_where(path, node)} imports {name}"
        for path in _files("sessions")
        for name, node in _imports(path)
        if name.split(".")[0] == "runs" and name.split(".")[1:2] not in (["services"], ["selectors"], ["domain"])
    ]
    assert wrong == []


@pytest.mark.parametrize("folder", MAY_NOT_IMPORT)
def test_no_layer_imports_one_above_or_beside_it(folder: str) -> None:
    forbidden = {f"runs.{layer}" for layer in MAY_NOT_IMPORT[folder]}
    wrong = [
        f"{_where(path, node)} imports {name}"
        for path in _files(folder)
        for name, node in _imports(path)
        if ".".join(name.split(".")[:2]) in forbidden and name not in SHARED
    ]
    assert wrong == []


@pytest.mark.parametrize("folder", WRITES_NOTHING)
def test_only_the_store_writes(folder: str) -> None:
    sql = [
        f"{_where(path, node)} {text.strip()[:40]!r}"
        for path in _files(folder)
        for text, node in _texts(path)
        if SQL_WRITE.search(text)
    ]
    assert sql + [write for path in _files(folder) for write in _orm_writes(path)] == []


def test_services_hold_no_sql() -> None:
    wrong = [
        f"{_where(path, node)} {text.strip()[:40]!r}"
        for path in _files("runs/services")
        for text, node in _texts(path)
        if SQL.search(text)
    ]
    assert wrong == []


def test_the_search_for_sql_finds_what_the_store_holds() -> None:
    """Otherwise the tests above pass because they see nothing."""
    found = [text for path in _files("runs/store") for text, _ in _texts(path) if SQL_WRITE.search(text)]
    assert found
    assert SQL_WRITE.search("UPDATE runs_run AS r SET state = 1")
    assert SQL_WRITE.search("UPDATE runs_run r SET state = 1")
    assert SQL.search("SELECT id\nFROM runs_run")
    assert not SQL.search("Update the run, SELECT nothing")
