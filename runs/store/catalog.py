"""Writing the catalog: sources with their tools, connections, policies. Sync Django ORM, one transaction a function.

A trigger raises the catalog's version with each change, so the next request of any process sees it. Names that are
taken and rows that are not there are answers, not exceptions.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from django.db import IntegrityError, transaction
from django.db.models.functions import Now

from runs.domain.effects import EffectClass
from runs.models import Source, Tool
from runs.tools.base import ToolSpec

DECLARED = "declared_effect"
"""Key of a binding under which the owner's own word on the tool's effect class is kept: it outlives a refresh."""
_BATCH = 500
"""Rows of one INSERT: a few MB of schemas at most."""
_COLUMNS = ("description", "input_schema", "output_schema", "effect", "binding", "sensitive", "granted")


@dataclass(frozen=True, slots=True)
class Imported:
    """What an import says of a source."""

    tools: Sequence[ToolSpec]
    title: str = ""
    base_url: str = ""
    security: Mapping[str, Any] = field(default_factory=dict)
    skipped: Sequence[Mapping[str, str]] = ()


@dataclass(frozen=True, slots=True)
class Refreshed:
    source: Source
    added: list[str]
    changed: list[str]
    removed: list[str]


def source_create(
    *, name: str, kind: str, imported: Imported, by: int | None, honours_key: bool, spec_url: str = "", module: str = ""
) -> Source | None:
    """The new source with all its tools granted: who adds it has just been shown them. None: the name is taken."""
    try:
        with transaction.atomic():
            source = Source.objects.create(
                name=name,
                kind=kind,
                title=imported.title[:200],
                spec_url=spec_url,
                base_url=imported.base_url,
                module=module,
                honours_key=honours_key,
                security=dict(imported.security),
                skipped=list(imported.skipped),
                created_by_id=by,
            )
            Tool.objects.bulk_create((tool_row(source, spec) for spec in imported.tools), batch_size=_BATCH)
            return source
    except IntegrityError:
        if Source.objects.filter(name=name).exists():
            return None
        raise


def source_refresh(*, source_id: UUID, imported: Imported) -> Refreshed | None:
    """Replace the tools by the imported ones. None: the source is gone.

    Known operations keep their grant and what the owner declared of their effect. New ones are not granted, nor is
    one that means another request than before (method, path or server), though its name is the same.
    """
    with transaction.atomic():
        source = Source.objects.select_for_update().filter(pk=source_id).first()
        if source is None:
            return None
        known = {tool.name: tool for tool in source.tools.all()}
        added: list[str] = []
        changed: list[Tool] = []
        fresh: list[Tool] = []
        for spec in imported.tools:
            row, before = tool_row(source, spec), known.pop(spec.name, None)
            if before is None:
                row.granted = False
                added.append(spec.name)
                fresh.append(row)
                continue
            _carry_over(before, row)
            if any(getattr(before, column) != getattr(row, column) for column in _COLUMNS):
                row.pk = before.pk
                changed.append(row)
        Tool.objects.bulk_create(fresh, batch_size=_BATCH)
        Tool.objects.bulk_create(
            changed, batch_size=_BATCH, update_conflicts=True, unique_fields=["source", "name"], update_fields=_COLUMNS
        )
        Tool.objects.filter(pk__in=[tool.pk for tool in known.values()]).delete()
        source.title = imported.title[:200]
        source.base_url = imported.base_url
        source.security = dict(imported.security)
        source.skipped = list(imported.skipped)
        source.refreshed_at = Now()
        source.save(update_fields=["title", "base_url", "security", "skipped", "refreshed_at"])
        source.refresh_from_db(fields=["refreshed_at"])
        return Refreshed(source, added, [tool.name for tool in changed], sorted(known))


def tool_row(source: Source, spec: ToolSpec) -> Tool:
    return Tool(
        source=source,
        name=spec.name,
        description=spec.description,
        input_schema=spec.input_schema,
        output_schema=spec.output_schema,
        effect=spec.effect.value,
        binding=spec.binding,
        sensitive=sorted(spec.sensitive),
        granted=True,
    )


def _carry_over(before: Tool, row: Tool) -> None:
    same = all(before.binding.get(key) == row.binding.get(key) for key in ("kind", "method", "path", "server"))
    row.granted = before.granted and same
    declared = before.binding.get(DECLARED)
    if same and declared is not None:
        row.effect = declared
        row.binding = row.binding | {DECLARED: declared}


@dataclass(frozen=True, slots=True)
class UnknownTools:
    """A change named tools that the source does not have. Nothing was written."""

    names: list[str]


def source_change(
    name: str,
    *,
    base_url: str | None = None,
    honours_key: bool | None = None,
    grant: Iterable[str] | None = None,
    grant_all: bool = False,
    effects: Mapping[str, EffectClass] | None = None,
) -> Source | UnknownTools | None:
    """Change what is given, all of it or nothing. None: there is no such source."""
    with transaction.atomic():
        source = Source.objects.select_for_update().filter(name=name).first()
        if source is None:
            return None
        wanted, declared = set(grant or ()), dict(effects or {})
        tools = {tool.name: tool for tool in source.tools.filter(name__in=wanted | declared.keys())}
        if missing := sorted((wanted | declared.keys()) - tools.keys()):
            return UnknownTools(missing)
        if base_url is not None:
            source.base_url = base_url
        if honours_key is not None:
            source.honours_key = honours_key
        source.save(update_fields=["base_url", "honours_key"])
        for tool_name, effect in declared.items():
            tool = tools[tool_name]
            tool.effect = effect.value
            tool.binding = tool.binding | {DECLARED: effect.value}
            tool.save(update_fields=["effect", "binding"])
        granting = source.tools.all() if grant_all else source.tools.filter(name__in=wanted)
        granting.filter(granted=False).update(granted=True)
        return source


def source_delete(name: str) -> bool:
    """The source with its tools and connections; runs keep their history. False: there is no such source."""
    with transaction.atomic():
        return Source.objects.filter(name=name).delete()[0] > 0
