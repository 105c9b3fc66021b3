"""Every order in which a run's hosts, reaper, people and sandboxes can act keeps the promises; no guard is idle.

Promises: spec/design.md, P0 to P3. The models import the table and the guards; see `table.py`.
"""

import ast
import inspect
from collections.abc import Callable

import pytest

from runs.domain.effects import EffectClass
from tests.model import code_run, questions, worker_run
from tests.model.code_run import CodeRun
from tests.model.explore import Model, explore
from tests.model.mutants import GUARD_FIELDS, MUTANTS, Mutant, hunting_grounds
from tests.model.questions import Questions
from tests.model.worker_run import WorkerRun

SEARCHES: dict[str, Callable[[], Model]] = {
    "inline code, calls that must not be repeated": lambda: CodeRun(),
    "background code, calls that must not be repeated": lambda: CodeRun(inline=False, resolves=0),
    "inline code, calls that may be repeated": lambda: CodeRun(effect=EffectClass.IDEMPOTENT),
    "background code, calls that may be repeated": lambda: CodeRun(
        inline=False, effect=EffectClass.IDEMPOTENT, faults=1
    ),
    "code that kills its host, given up": lambda: CodeRun(after_crash=1, faults=1),
    "code that kills its host in a call that may be repeated, given up": lambda: CodeRun(
        after_crash=1, effect=EffectClass.IDEMPOTENT, faults=1
    ),
    "code never started, refused": lambda: CodeRun(inline=False, before_gate=1, faults=1),
    "code resolved by an operator twice": lambda: CodeRun(resolves=2, faults=1),
    "two questions at once": lambda: Questions(faults=3),
    "an opaque worker run": lambda: WorkerRun(faults=3),
}


@pytest.mark.acceptance_id("E6", "E7", "T3", "T4", "T5", "T7", "T8", "W3", "W4", "W11", "W15", "W17", "W19")
@pytest.mark.parametrize("name", SEARCHES)
def test_every_order_of_steps_keeps_every_promise(name: str) -> None:
    report = explore(SEARCHES[name]())
    print(f"{name}: {report}")
    assert report.broken is None, str(report)


@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_a_run_without_this_guard_breaks_a_promise(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant.apply(monkeypatch)
    looked_at = []
    for ground in hunting_grounds(mutant.flaws):
        model = ground()
        report = explore(model)
        looked_at.append(f"{type(model).__name__}: {report}")
        if report.broken is not None:
            print(f"{mutant}: {report}")
            return
    pytest.fail("not caught:\n" + "\n".join(looked_at))


def test_the_hunting_grounds_hold_without_a_mutant() -> None:
    """Otherwise a mutant would be "caught" by a flaw that is not its own."""
    reports = [explore(ground()) for ground in hunting_grounds()]
    assert [str(report) for report in reports if report.broken] == []


def test_every_boolean_guard_of_the_table_has_a_mutant() -> None:
    assert set(GUARD_FIELDS) == {mutant.guard for mutant in MUTANTS if mutant.guard}


def test_every_flaw_that_a_model_knows_has_a_mutant() -> None:
    known = {
        node.left.value
        for module in (code_run, questions, worker_run)
        for node in ast.walk(ast.parse(inspect.getsource(module)))
        if isinstance(node, ast.Compare) and isinstance(node.left, ast.Constant)
        if isinstance(node.comparators[0], ast.Attribute) and node.comparators[0].attr == "flaws"
    }
    assert known == set().union(*(mutant.flaws for mutant in MUTANTS))
