"""Each crash point once, in the default suite; `make drill` repeats every way to reach it (drill_crash_points.py)."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from runs.domain.crashpoints import CRASH_POINTS
from tests.faults.drill import SCENARIOS, Scenario, drill
from tests.support.site import running_site

SITES = 3
"""Side by side: a start is one second of one core, and most of the rest is waiting."""


def test_every_crash_point_has_a_scenario() -> None:
    assert SCENARIOS.keys() == CRASH_POINTS.keys()


@pytest.mark.timeout(300)
def test_killed_at_any_crash_point_no_promise_breaks(tmp_path: Path) -> None:
    points = [(point, scenarios[0]) for point, scenarios in SCENARIOS.items()]
    with ThreadPoolExecutor(SITES) as pool:
        shares = [pool.submit(on_one_site, tmp_path / str(n), points[n::SITES]) for n in range(SITES)]
        broken = [line for share in shares for line in share.result()]
    assert not broken, "\n".join(broken)


def on_one_site(directory: Path, points: list[tuple[str, Scenario]]) -> list[str]:
    """The broken promises, one line each."""
    directory.mkdir()
    broken = []
    with running_site(directory, "web", "cluster") as site:
        for point, scenario in points:
            try:
                drill(site, point, scenario)
            except AssertionError as error:
                broken.append(f"{point} ({scenario.__name__}): {error}")
    return broken
