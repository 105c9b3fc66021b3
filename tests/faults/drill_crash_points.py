"""`make drill`: every way to every crash point, DRILL_REPEAT times (10), each way on a site of its own."""

import os
import statistics
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.faults.drill import SCENARIOS, Scenario, drill
from tests.support.site import running_site

REPEAT = int(os.environ.get("DRILL_REPEAT", "10"))
WAYS = [(point, scenario) for point, scenarios in SCENARIOS.items() for scenario in scenarios]


@dataclass
class Tally:
    rows: list[tuple[str, str, int, int, float, float]] = field(default_factory=list)

    def shown(self) -> str:
        head = f"\n{'point':<16}{'reached by':<18}{'repeated':>9}{'violations':>12}{'recovery p50':>14}{'max':>8}"
        return "\n".join(
            [
                head,
                *(
                    f"{point:<16}{way:<18}{repeated:>9}{violations:>12}{p50:>12.2f} s{longest:>6.2f} s"
                    for point, way, repeated, violations, p50, longest in sorted(self.rows)
                ),
            ]
        )


@pytest.fixture(scope="module")
def tally(request: pytest.FixtureRequest):  # type: ignore[no-untyped-def]
    found = Tally()
    yield found
    capture = request.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        print(found.shown())


@pytest.mark.timeout(0)
@pytest.mark.parametrize(("point", "scenario"), WAYS, ids=lambda value: getattr(value, "__name__", value))
def test_no_promise_breaks(tmp_path: Path, tally: Tally, point: str, scenario: Scenario) -> None:
    broken: list[str] = []
    times: list[float] = []
    with running_site(tmp_path, "web", "cluster") as site:
        for repetition in range(REPEAT):
            try:
                times.append(drill(site, point, scenario))
            except AssertionError as error:
                broken.append(f"repetition {repetition}: {error}")
                for name in ("web", "cluster"):
                    if name not in site.started:
                        site.start(name)
    longest, p50 = max(times, default=0.0), statistics.median(times or [0.0])
    tally.rows.append((point, scenario.__name__, REPEAT, len(broken), p50, longest))
    assert not broken, "\n".join(broken)
