"""Every acceptance id of what is built has a test that names it, and no test names an id that does not exist."""

import ast
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parents[1]

BUILT = {
    *(f"E{n}" for n in range(1, 23)), *(f"T{n}" for n in range(1, 13)), "O4", "O5", "S1", "S2", "S3", "S5",
}  # fmt: skip
"""The ids this release promises; MCP (M), workers (W) and the rest of the operator's desk (O) come later."""
KNOWN = {
    *(f"E{n}" for n in range(1, 23)), *(f"T{n}" for n in range(1, 13)), *(f"W{n}" for n in range(1, 23)),
    *(f"O{n}" for n in range(1, 15)), *(f"M{n}" for n in range(1, 9)), *(f"S{n}" for n in range(1, 6)),
}  # fmt: skip


def _named() -> Iterator[tuple[str, Path]]:
    for path in sorted(TESTS.rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr == "acceptance_id"
            ):
                for argument in node.args:
                    if isinstance(argument, ast.Constant):
                        yield str(argument.value), path


def test_every_promised_id_has_a_test() -> None:
    assert sorted(BUILT - {name for name, _ in _named()}) == []


def test_no_test_names_an_id_that_does_not_exist() -> None:
    assert [(name, path.name) for name, path in _named() if name not in KNOWN] == []
