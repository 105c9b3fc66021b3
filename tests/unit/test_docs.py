"""The documentation says what the code says: its tables are generated from the code, or compared with it row by row.

`python -m tests.unit.test_docs` writes the generated blocks anew.
"""

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from runs.domain import limits
from runs.domain.codes import CODES, Alert
from runs.domain.states import TERMINAL, TRANSITIONS, RunState, Transition
from runs.tools import bounds

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]

_GUARDS = {
    "own_epoch": "own epoch",
    "new_epoch": "epoch + 1, new lease",
    "no_cancel_asked": "nobody asked to stop",
    "replayable_only": "code runs only",
    "no_unknown_effect": "no unknown effect",
    "calls_settled": "every call settled",
}

BEYOND_NINJA = {"GET /healthz", "GET /readyz", "GET /metrics"}
"""Described beside the API proper, and not in its OpenAPI document."""


def transition_diagram() -> str:
    lines = ["```mermaid", "stateDiagram-v2"]
    for row in TRANSITIONS:
        lines += [
            f"    {'[*]' if source is None else source.value} --> {target.value}: {row.event.value}"
            for source in _ordered(row.sources)
            for target in _ordered(row.targets)
        ]
    lines += [f"    {state.value} --> [*]" for state in RunState if state in TERMINAL and state != "unconfirmed"]
    return "\n".join([*lines, "```"])


def transition_table() -> str:
    lines = ["| event | from | to | who | guards | meaning |", "|---|---|---|---|---|---|"]
    for row in TRANSITIONS:
        cells = (
            f"`{row.event.value}`",
            ", ".join("–" if source is None else source.value for source in _ordered(row.sources)),
            ", ".join(target.value for target in _ordered(row.targets)),
            ", ".join(sorted(actor.value for actor in row.actors)),
            ", ".join(_guards(row)) or "–",
            row.meaning,
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _ordered(states: frozenset[RunState] | frozenset[RunState | None]) -> list[RunState | None]:
    return [state for state in (None, *RunState) if state in states]


def _guards(row: Transition) -> list[str]:
    return [words for name, words in _GUARDS.items() if getattr(row, name)]


def error_table() -> str:
    lines = ["| code | HTTP | category | retry safe | meaning |", "|---|---|---|---|---|"]
    for row in CODES.values():
        http = "200, in a run" if row.http == 200 else str(row.http)
        safe = "from the ledger" if row.http == 200 else "yes" if row.retry_safe else "no"
        lines.append(f"| `{row.name}` | {http} | {row.category.value} | {safe} | {row.headline} |")
    return "\n".join(lines)


def alert_table() -> str:
    lines = ["| code | alert | what happened | what to do |", "|---|---|---|---|"]
    lines += [
        f"| `{row.name}` | {row.alert.value} | {row.headline} | {row.operator_action} |"
        for row in sorted(CODES.values(), key=lambda row: (row.alert is not Alert.PAGE, row.name))
        if row.alert is not Alert.NONE
    ]
    return "\n".join(lines)


GENERATED: dict[str, tuple[Path, Callable[[], str]]] = {
    "transition diagram": (DOCS / "design.md", transition_diagram),
    "transition table": (DOCS / "design.md", transition_table),
    "error codes": (DOCS / "api.md", error_table),
    "alert codes": (DOCS / "operations.md", alert_table),
}


def _block(name: str) -> re.Pattern[str]:
    return re.compile(rf"(<!-- generated: {name} -->\n)((?:(?!<!-- ).)*?)(\n<!-- end -->)", re.S)


def _rows(page: str, heading: str) -> list[list[str]]:
    """The cells of the table under a heading, without its head."""
    section = (DOCS / page).read_text().partition(f"\n{heading}\n")[2]
    assert section, f"{page} has no heading {heading!r}"
    section = re.split(r"\n#+ ", section)[0]
    lines = [line for line in section.splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


@pytest.mark.parametrize("name", GENERATED)
def test_a_generated_block_is_what_the_code_says_now(name: str) -> None:
    page, make = GENERATED[name]
    found = _block(name).search(page.read_text())
    assert found is not None, f"{page.name} has no block for the {name}"
    assert found[2] == make(), "write it anew: python -m tests.unit.test_docs"


def test_every_setting_is_described_with_its_default(monkeypatch: pytest.MonkeyPatch) -> None:
    from executor_site.environment import Environment

    for name in Environment.model_fields:
        monkeypatch.delenv(name.upper(), raising=False)
    described = {row[0].strip("`"): row[1] for row in _rows("operations.md", "## Settings")}
    assert described == {
        name.upper(): _default(name, field.default) for name, field in Environment.model_fields.items()
    }


def _default(name: str, value: object) -> str:
    if name == "secret_key":
        return "a known one"
    if name == "var_dir":
        return "`var` in the checkout"
    if value in ("", None, []):
        return "–"
    text = (
        ",".join(map(str, value)) if isinstance(value, list) else str(value).lower() if value is False else str(value)
    )
    return f"`{text.removesuffix('.0')}`"


def test_every_described_limit_exists_and_has_the_described_value() -> None:
    rows = _rows("api.md", "## Limits")
    assert len(rows) > 20
    for name, value, *_ in rows:
        module = bounds if name.startswith("`MAX_") else limits
        assert f"{getattr(module, name.strip('`')):,.10g}" == value, name


def test_every_endpoint_is_described_and_none_that_does_not_exist() -> None:
    from runs.api.site import api

    described = set(re.findall(r"^### ((?:GET|POST|PATCH|DELETE) /\S+)$", (DOCS / "api.md").read_text(), re.M))
    served = {
        f"{method.upper()} {path.removeprefix('/api/v1')}"
        for path, methods in api.get_openapi_schema()["paths"].items()
        for method in methods
    }
    assert described == served | BEYOND_NINJA


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_to_a_file(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text())
    missing = [t for t in targets if not t.startswith(("http://", "https://")) and not (page.parent / t).exists()]
    assert not missing


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_named_file_of_ours_is_there(page: Path) -> None:
    if page.name == "CHANGELOG.md" or "decisions" in page.parts:
        pytest.skip("records of a time: they may name what has moved since")
    named = re.findall(
        r"`((?:runs|executor_site|tests|docs)/[\w./-]+\.\w+|Makefile|pyproject\.toml)`", page.read_text()
    )
    assert [name for name in named if "NNN" not in name and not (ROOT / name).exists()] == []


def write() -> None:
    for name, (page, make) in GENERATED.items():
        text = make()
        page.write_text(_block(name).sub(lambda found, text=text: found[1] + text + found[3], page.read_text()))


if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "executor_site.settings")
    write()
