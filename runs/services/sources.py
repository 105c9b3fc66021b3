"""Adding, refreshing, changing, removing sources: the work itself, synchronous, for a thread, a process, a command.

Large documents cost seconds of compute: on the server this runs behind `source_import.py`.
"""

import asyncio
import json
from typing import Any

from django.conf import settings

from runs.domain.codes import Refusal
from runs.domain.effects import EffectClass
from runs.models import Source
from runs.selectors.sources import source_named, source_shown, tools_shown
from runs.services.invoker import address_guard
from runs.services.source_input import ChangeIn, OpenAPIIn, PythonIn, RefreshIn, check_name, registered_module
from runs.store.catalog import DECLARED, Imported, UnknownTools, source_change, source_create, source_delete
from runs.store.catalog import source_refresh as store_refresh
from runs.tools.base import ToolSpec
from runs.tools.errors import DocumentError
from runs.tools.netguard import AddressRefused, NameUnknown
from runs.tools.openapi import import_document
from runs.tools.python import PythonSource

Answer = dict[str, Any]


def no_source() -> Refusal:
    return Refusal("not_found", "There is no such source.")


def source_add(by: int | None, wanted: OpenAPIIn | PythonIn, fetched: bytes | None = None) -> Answer:
    """Import and store; committed on return. `fetched` is the document of a `spec_url`.

    Raises Refusal: invalid_request, name_taken, address_refused, spec_…
    """
    name = check_name(wanted.name)
    if source_named(name) is not None:
        raise _taken(name)
    if isinstance(wanted, PythonIn):
        module = registered_module(name, settings.PYTHON_SOURCES)
        imported = _of_module(name, module)
        source = source_create(
            name=name, kind="python", imported=imported, by=by, honours_key=wanted.honours_key, module=module
        )
    else:
        document = fetched if fetched is not None else _document(wanted.spec)
        imported = _of_document(document, name, wanted.base_url, wanted.spec_url, wanted.trust_effects)
        source = source_create(
            name=name,
            kind="openapi",
            imported=imported,
            by=by,
            honours_key=wanted.honours_key,
            spec_url=wanted.spec_url or "",
        )
    if source is None:
        raise _taken(name)
    return source_shown(source) | {"tools": tools_shown(source)}


def source_refresh(name: str, wanted: RefreshIn, fetched: bytes | None = None) -> Answer:
    """Import again; committed on return. The service's address stays as it is: only PATCH moves it.

    Raises Refusal: not_found, invalid_request, address_refused, spec_…
    """
    source = source_named(name)
    if source is None:
        raise no_source()
    if source.kind == Source.Kind.PYTHON:
        imported = _of_module(name, registered_module(name, settings.PYTHON_SOURCES))
    else:
        if fetched is None and wanted.spec is None:
            raise Refusal("invalid_request", f"The document of {name!r} was given inline: send the new one as `spec`.")
        document = fetched if wanted.spec is None else _document(wanted.spec)
        assert document is not None
        # Operations with servers of their own exist only where no base_url was given; they need that read again.
        base_url = None if _has_own_servers(source) else source.base_url
        imported = _of_document(document, name, base_url, source.spec_url or None, wanted.trust_effects)
    done = store_refresh(source_id=source.pk, imported=imported)
    if done is None:
        raise no_source()
    return source_shown(done.source) | {
        "added": [f"{name}.{tool}" for tool in done.added],
        "changed": [f"{name}.{tool}" for tool in done.changed],
        "removed": [f"{name}.{tool}" for tool in done.removed],
        "tools": tools_shown(done.source),
    }


def source_update(name: str, wanted: ChangeIn) -> Answer:
    """Committed on return, all of it or nothing. Raises Refusal: not_found, invalid_request, address_refused."""
    base_url = None
    if wanted.base_url is not None:
        base_url = wanted.base_url.rstrip("/")
        if "?" in base_url or "#" in base_url:
            raise Refusal("invalid_request", "base_url has no query and no fragment.")
        check_address(base_url, "base_url")
    changed = source_change(
        name,
        base_url=base_url,
        honours_key=wanted.honours_key,
        grant=wanted.grant if isinstance(wanted.grant, list) else None,
        grant_all=wanted.grant == "all",
        effects={tool: EffectClass(effect) for tool, effect in wanted.effects.items()},
    )
    if changed is None:
        raise no_source()
    if isinstance(changed, UnknownTools):
        shown = ", ".join(changed.names[:20])
        raise Refusal("invalid_request", f"{name!r} has no tool {shown}.", {"unknown": changed.names[:20]})
    return source_shown(changed) | {"tools": tools_shown(changed)}


def source_remove(name: str) -> None:
    """Raises Refusal not_found."""
    if not source_delete(name):
        raise no_source()


def check_address(url: str, what: str) -> None:
    """Refuse what the site must not talk to. A name that nothing resolves now may come to exist: each call checks."""
    try:
        asyncio.run(address_guard().check(url))
    except AddressRefused as error:
        raise Refusal("address_refused", f"{what}: {error}") from None
    except NameUnknown:
        return


def spec_url_of(name: str) -> str:
    """Where a source's document is; empty where it was given inline. Raises Refusal not_found."""
    source = source_named(name)
    if source is None:
        raise no_source()
    return source.spec_url


def _taken(name: str) -> Refusal:
    return Refusal("name_taken", f"There is a source {name!r} already.")


def _document(spec: str | dict[str, Any] | None) -> bytes:
    try:
        return (spec if isinstance(spec, str) else json.dumps(spec)).encode()
    except (UnicodeEncodeError, RecursionError):
        raise Refusal("spec_invalid", "The document cannot be written as UTF-8 JSON.") from None


def _of_module(name: str, module: str) -> Imported:
    try:
        found = PythonSource(name, module)
    except (ImportError, TypeError) as error:
        raise Refusal("spec_invalid", f"The module {module!r} cannot be used: {str(error)[:300]}") from None
    return Imported(tools=found.tools, title=module)


def _of_document(
    document: bytes, name: str, base_url: str | None, document_url: str | None, trust_effects: bool
) -> Imported:
    try:
        found = import_document(
            document, source=name, base_url=base_url, document_url=document_url, trust_effects=trust_effects
        )
    except DocumentError as error:
        raise Refusal(error.code, error.message, {"where": error.where} if error.where else None) from None
    check_address(found.base_url, "base_url")
    tools = [_with_declaration(spec) for spec in found.tools] if trust_effects else found.tools
    skipped = [{"where": item.where, "why": item.why} for item in found.skipped]
    return Imported(tools, found.title, found.base_url, found.security, skipped)


def _with_declaration(spec: ToolSpec) -> ToolSpec:
    """A document whose word on effects is trusted speaks for the owner: what it declared is kept like the owner's."""
    plain = EffectClass.READ if spec.binding.get("method") in ("GET", "HEAD", "OPTIONS") else EffectClass.EFFECT
    if spec.effect is not plain:
        spec.binding[DECLARED] = spec.effect.value
    return spec


def _has_own_servers(source: Source) -> bool:
    return source.tools.filter(binding__server__isnull=False).exclude(binding__server=None).exists()
