"""The catalog at one version: the tools there are, what may be done with them, and how to find one. Immutable."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from uuid import UUID

from runs.domain.effects import PolicyAction
from runs.tools.base import ToolSpec
from runs.tools.policy import Decision, Policy, decide
from runs.tools.search import SearchHit, SearchIndex


@dataclass(frozen=True, slots=True)
class SourceEntry:
    id: UUID
    name: str
    kind: str
    base_url: str
    module: str
    honours_key: bool


class Catalog:
    """Built once per catalog version and shared by every scope of a process."""

    def __init__(
        self,
        version: int,
        sources: Mapping[str, SourceEntry],
        tools: Sequence[ToolSpec],
        policies: Sequence[Policy],
    ) -> None:
        self.version = version
        self.sources = dict(sources)
        self.tools = {spec.address: spec for spec in tools}
        self._policies = tuple(policies)
        self._decisions: dict[str, Decision] = {}

    @cached_property
    def modules(self) -> Mapping[str, tuple[str, ...]]:
        """What code can import: each source with the names of its tools."""
        names: dict[str, list[str]] = {name: [] for name in self.sources}
        for spec in self.tools.values():
            names[spec.source].append(spec.name)
        return {source: tuple(tools) for source, tools in names.items()}

    @cached_property
    def _index(self) -> SearchIndex:
        return SearchIndex(self.tools.values())

    def index_now(self) -> None:
        """Build the search index before somebody waits for it; takes a second for 5,000 tools."""
        self._index  # noqa: B018

    def find(self, address: str) -> ToolSpec | None:
        return self.tools.get(address)

    def decision(self, spec: ToolSpec) -> Decision:
        found = self._decisions.get(spec.address)
        if found is None:
            found = self._decisions[spec.address] = decide(spec, (self._policies,))
        return found

    def visible(self, spec: ToolSpec) -> bool:
        """A blocked tool does not exist for those who search."""
        return self.decision(spec).action is not PolicyAction.BLOCK

    def search(
        self, query: str, *, source: str | None = None, limit: int = 20, offset: int = 0
    ) -> tuple[int, list[SearchHit]]:
        return self._index.search(query, source=source, limit=limit, offset=offset, visible=self.visible)

    def near(self, address: str) -> list[str]:
        visible: Callable[[ToolSpec], bool] = self.visible
        return self._index.near(address, visible=visible)

    def describe(self, spec: ToolSpec) -> dict[str, object]:
        """One tool as every surface shows it."""
        decision = self.decision(spec)
        return {
            "address": spec.address,
            "source": spec.source,
            "name": spec.name,
            "description": spec.description,
            "input_schema": spec.input_schema,
            "output_schema": spec.output_schema,
            "effect": spec.effect.value,
            "policy": {"action": decision.action.value, "approver": decision.approver.value, "reason": decision.reason},
        }
