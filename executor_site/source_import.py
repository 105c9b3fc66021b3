"""Where imports are worked on the server: one at a time in a process, away from the event loop that answers others.

Small documents in a thread; larger ones in a process of their own (`runs/services/source_worker.py`), because a
thread that computes shares the interpreter with every request. Answers are JSON bytes, handed on as they come.
"""

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from typing import Any

import structlog
from django.conf import settings

from executor_site.child import child_argv
from executor_site.environment import ROOT
from executor_site.orm import orm_read
from runs.domain import limits
from runs.domain.codes import Refusal
from runs.domain.principal import Principal
from runs.services import sources
from runs.services.invoker import SourceInvoker
from runs.services.source_input import OpenAPIIn, check_name, read_refresh, read_source
from runs.services.source_worker import ADD, REFRESH, REFUSED
from runs.tools.errors import DocumentError
from runs.tools.fetch import fetch_document

log = structlog.get_logger(__name__)

_ERROR_KEPT_BYTES = 20_000


class _Gate:
    """One import at a time; a few wait. Belongs to the event loop that it was first used on."""

    def __init__(self) -> None:
        self._lock: asyncio.Lock | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._here = 0

    @contextlib.asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Raises Refusal overloaded."""
        loop = asyncio.get_running_loop()
        if self._lock is None or self._loop is not loop:
            self._lock, self._loop, self._here = asyncio.Lock(), loop, 0
        if self._here > limits.IMPORTS_WAITING:
            raise Refusal("overloaded", "Too many documents are being imported here.", retry_after_s=10)
        self._here += 1
        try:
            async with self._lock:
                yield
        finally:
            self._here -= 1


_gate = _Gate()


async def source_add(invoker: SourceInvoker, principal: Principal, body: bytes) -> bytes:
    """The new source as JSON; committed on return. Raises Refusal."""
    principal.require("admin")
    async with _gate.turn():
        if len(body) > limits.IMPORT_HERE_BYTES:
            return await _in_process(ADD, principal, None, body, b"")
        wanted = await asyncio.to_thread(read_source, body)
        fetched = None
        if isinstance(wanted, OpenAPIIn) and wanted.spec_url:
            check_name(wanted.name)
            fetched = await _fetched(invoker, wanted.spec_url)
            if len(fetched) > limits.IMPORT_HERE_BYTES:
                return await _in_process(ADD, principal, None, body, fetched)
        return await _in_thread(lambda: sources.source_add(principal.user_id, wanted, fetched))


async def source_refresh(invoker: SourceInvoker, principal: Principal, name: str, body: bytes) -> bytes:
    """The source and what changed as JSON; committed on return. Raises Refusal."""
    principal.require("admin")
    async with _gate.turn():
        spec_url = await orm_read(sources.spec_url_of, name)
        if len(body) > limits.IMPORT_HERE_BYTES:
            return await _in_process(REFRESH, principal, name, body, b"")
        wanted = await asyncio.to_thread(read_refresh, body)
        fetched = None
        if spec_url and wanted.spec is None:
            fetched = await _fetched(invoker, spec_url)
            if len(fetched) > limits.IMPORT_HERE_BYTES:
                return await _in_process(REFRESH, principal, name, body, fetched)
        return await _in_thread(lambda: sources.source_refresh(name, wanted, fetched))


async def _fetched(invoker: SourceInvoker, url: str) -> bytes:
    try:
        return await fetch_document(url, invoker.guard, invoker.client)
    except DocumentError as error:
        raise Refusal(error.code, error.message, {"where": error.where} if error.where else None) from None


async def _in_thread(work: Callable[[], dict[str, Any]]) -> bytes:
    return await orm_read(lambda: json.dumps(work()).encode())


async def _in_process(action: str, principal: Principal, name: str | None, body: bytes, fetched: bytes) -> bytes:
    """Killed at its time-out, or when nobody waits for it any more; then nothing is stored."""
    header = {
        "action": action,
        "by": principal.user_id,
        "name": name,
        "body": len(body),
        "fetched": len(fetched),
    }
    argv = child_argv([sys.executable, "-m", "runs.services.source_worker"], pdeathsig=signal.SIGKILL)
    worker = await asyncio.create_subprocess_exec(
        *argv,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=ROOT,
        env={**os.environ, "DATABASE_URL": settings.DATABASE_URL, "DJANGO_SETTINGS_MODULE": "executor_site.settings"},
    )
    try:
        async with asyncio.timeout(limits.IMPORT_TIMEOUT_S):
            message = json.dumps(header).encode() + b"\n" + body + fetched
            answer, errors = await worker.communicate(message)
    except TimeoutError:
        raise Refusal(
            "spec_too_large", f"The document could not be imported within {limits.IMPORT_TIMEOUT_S:g} s."
        ) from None
    finally:
        if worker.returncode is None:
            worker.kill()
            await worker.wait()
    if worker.returncode == REFUSED:
        refusal = json.loads(answer)
        raise Refusal(refusal["code"], refusal["message"], refusal["detail"])
    if worker.returncode != 0:
        log.error("import_failed", code=worker.returncode, stderr=errors[-_ERROR_KEPT_BYTES:].decode(errors="replace"))
        raise Refusal("internal_error", "The import failed unexpectedly; the log has it under this id.")
    return answer
