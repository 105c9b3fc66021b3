"""Every named crash point stands in the product's code exactly once, or a drill would kill at nothing."""

import ast
import os
import signal
from collections import Counter
from pathlib import Path

import pytest

from runs.domain import crashpoints
from runs.domain.crashpoints import CRASH_POINTS, reach

ROOT = Path(crashpoints.__file__).parents[2]


def _reached() -> tuple[Counter[str], list[str]]:
    """Names given to `reach`, and places that give it something else than a plain text."""
    names: Counter[str] = Counter()
    unclear: list[str] = []
    for package in ("runs", "sessions", "executor_site"):
        for path in sorted((ROOT / package).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if not isinstance(node, ast.Call):
                    continue
                called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", None)
                if called != "reach":
                    continue
                match node.args:
                    case [ast.Constant(value=str(name))]:
                        names[name] += 1
                    case _:
                        unclear.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    return names, unclear


def test_every_crash_point_is_reached_from_exactly_one_place() -> None:
    names, unclear = _reached()
    assert unclear == []
    assert {name: names[name] for name in CRASH_POINTS if names[name] != 1} == {}
    assert set(names) <= set(CRASH_POINTS)


def test_a_point_that_is_not_armed_does_nothing() -> None:
    reach("after_reserve")


def test_an_armed_point_kills_this_process_and_nothing_less(monkeypatch: pytest.MonkeyPatch) -> None:
    killed: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "kill", lambda pid, sig: killed.append((pid, sig)))
    monkeypatch.setattr(crashpoints, "_armed", frozenset({"after_reserve"}))
    reach("before_reserve")
    reach("after_reserve")
    assert killed == [(os.getpid(), signal.SIGKILL)]


def test_arming_a_name_that_does_not_exist_is_a_defect_of_the_drill(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crashpoints, "_armed", frozenset({"after_lunch"}))
    with pytest.raises(LookupError, match="after_lunch"):
        reach("after_lunch")
