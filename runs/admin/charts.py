"""A stacked bar chart as plain numbers for an SVG made on the server: nothing is loaded, nothing is scripted. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

WIDTH, HEIGHT = 640, 150
_LEFT, _BOTTOM, _TOP = 34, 26, 10

SERIES: tuple[tuple[str, str, frozenset[str]], ...] = (
    ("good", "Succeeded", frozenset({"succeeded"})),
    ("bad", "Failed", frozenset({"failed"})),
    ("doubt", "Unconfirmed", frozenset({"unconfirmed"})),
    ("idle", "Cancelled", frozenset({"cancelled"})),
    ("busy", "Not finished", frozenset({"queued", "claimed", "running", "paused", "suspended"})),
)


@dataclass(frozen=True, slots=True)
class Bar:
    tone: str
    x: float
    y: float
    width: float
    height: float
    title: str


@dataclass(frozen=True, slots=True)
class Chart:
    title: str
    bars: list[Bar]
    ticks: list[tuple[float, str]]
    """Grid lines: height and number."""
    labels: list[tuple[float, str]]
    """Below the bars: place and time."""
    table: list[tuple[str, list[int]]]
    """The same numbers for those who do not see the drawing; only the times in which something happened."""
    total: int
    width: int = WIDTH
    height: int = HEIGHT


def chart(
    title: str, per_hour: Mapping[tuple[datetime, str], int], *, now: datetime, step: timedelta, steps: int, fmt: str
) -> Chart:
    """Bars of `step` each, the last one holding `now`. `per_hour` counts by (hour, state)."""
    end = _floor(now, step) + step
    begin = end - step * steps
    counts = [[0] * len(SERIES) for _ in range(steps)]
    for (hour, state), number in per_hour.items():
        index = int((hour - begin) / step)
        if 0 <= index < steps:
            for series, (_, _, states) in enumerate(SERIES):
                counts[index][series] += number if state in states else 0
    most = max((sum(row) for row in counts), default=0)
    top = _round_up(most)
    slot = (WIDTH - _LEFT) / steps
    full = HEIGHT - _BOTTOM - _TOP
    bars, labels, table = [], [], []
    for index, row in enumerate(counts):
        at = begin + step * index
        x, y = _LEFT + slot * index, float(HEIGHT - _BOTTOM)
        for (tone, name, _), number in zip(SERIES, row, strict=True):
            if number:
                height = max(full * number / top, 1.5)
                y -= height
                text = f"{at.strftime(fmt)} UTC: {number} {name.lower()}"
                bars.append(Bar(tone, round(x + 1.5, 1), round(y, 1), round(slot - 3, 1), round(height, 1), text))
        if index % max(1, steps // 5) == 0:
            labels.append((round(x + slot / 2, 1), at.strftime(fmt)))
        if any(row):
            table.append((at.strftime(fmt), row))
    ticks = [(round(HEIGHT - _BOTTOM - full * part, 1), f"{top * part:g}") for part in (0, 0.5, 1)]
    return Chart(title, bars, ticks, labels, table, sum(map(sum, counts)))


def _floor(moment: datetime, step: timedelta) -> datetime:
    midnight = moment.replace(hour=0, minute=0, second=0, microsecond=0)
    return midnight + step * int((moment - midnight) / step)


def _round_up(most: int) -> int:
    """The axis ends at an even, short number."""
    if most <= 4:
        return max(2, most + most % 2)
    scale = int(10 ** (len(str(most)) - 1))
    for factor in (1, 2, 4, 6, 8, 10):
        if scale * factor >= most:
            return scale * factor
    return scale * 10
