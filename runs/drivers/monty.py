"""The Monty driver: a process's own pool of sandbox workers, one program a worker, killed and awaited on demand.

Measured behaviour this rests on: notes/monty.md. The pool belongs to one event loop of one process and is never
carried over a fork.
"""

import asyncio
import contextlib
import os
import re
import signal
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import pydantic_monty as pm

from runs.domain import limits
from runs.drivers.base import (
    Answer,
    Broken,
    Called,
    Deferred,
    Finished,
    Program,
    Raised,
    Sandbox,
    SandboxPool,
    SandboxUnavailable,
    SnapshotImpossible,
    SnapshotRejected,
    Step,
    Waiting,
)
from runs.drivers.monty_worker import worker_path

SNAPSHOT_FORMAT = 14
"""Version of Monty's dump (notes/monty.md): an older host must not take a newer checkpoint."""
CHECKOUT_TIMEOUT_S = 30.0
UNWIND_TIMEOUT_S = 2.0
"""A killed worker's step fails within 5 ms; this is only the bound."""
SUSPENSIONS = 100_000
"""Host round trips Monty itself allows; we count calls over the whole run (limits.CALLS_PER_RUN)."""

_TIME = re.compile(r"(turn|feed) time limit exceeded")
_UNSUPPORTED = re.compile(r"^The monty syntax parser does not yet support|^Monty does not support|not yet supported")


class MontyPool(SandboxPool):
    def __init__(self, *, directory: Path, max_processes: int) -> None:
        self._directory = directory
        self._max = max_processes
        self._pool: Any = None
        self._opened_in = os.getpid()
        self._opening = asyncio.Lock()
        # First come, first served: Monty's own waiting is not, and some callers waited seconds (docs/performance.md).
        self._places = asyncio.Semaphore(max_processes)
        self._made: dict[str, Any] = {}
        self._made_of: object = None

    async def _open(self) -> Any:
        if self._opened_in != os.getpid():
            raise RuntimeError("a Monty pool must not be carried over a fork")
        async with self._opening:
            if self._pool is None:
                self._pool = await pm.AsyncMonty(
                    binary_path=str(worker_path(self._directory)),
                    min_processes=1,
                    max_processes=self._max,
                    checkout_timeout=CHECKOUT_TIMEOUT_S,
                ).__aenter__()
        return self._pool

    def _modules(self, tools: Mapping[str, tuple[str, ...]]) -> Mapping[str, Any]:
        """What code can import; made once for each catalog, which hands out the same mapping while it lives."""
        if self._made_of is not tools:
            self._made = {
                source: pm.ExternalModule(dict.fromkeys(names, _call_surfaces)) for source, names in tools.items()
            }
            self._made_of = tools
        return self._made

    async def checkout(
        self, *, compute_s: float, tools: Mapping[str, tuple[str, ...]], on_print: Callable[[str], None]
    ) -> "MontySandbox":
        try:
            await asyncio.wait_for(self._places.acquire(), CHECKOUT_TIMEOUT_S)
        except TimeoutError as error:
            raise SandboxUnavailable("every sandbox is in use") from error
        try:
            session, entered = await self._enter(compute_s, tools)
            return MontySandbox(session, entered, on_print, compute_s, self._places.release)
        except BaseException:
            self._places.release()
            raise

    async def _enter(self, compute_s: float, tools: Mapping[str, tuple[str, ...]]) -> tuple[Any, Any]:
        pool = self._pool or await self._open()
        session = pool.checkout(
            script_name="program.py",
            limits={
                "max_feed_duration_secs": compute_s,
                "max_memory": limits.MEMORY_BYTES,
                "max_recursion_depth": limits.RECURSION_DEPTH,
                "max_suspensions": SUSPENSIONS,
            },
            os_policy={"sleep": "call_host"},
            external_modules=self._modules(tools),
        )
        try:
            return session, await session.__aenter__()
        except TimeoutError as error:
            raise SandboxUnavailable("every sandbox is in use") from error
        except pm.MontyError as error:
            raise SandboxUnavailable("no sandbox worker could be started") from error

    async def close(self) -> None:
        pool, self._pool = self._pool, None
        if pool is not None:
            await pool.__aexit__(None, None, None)


class MontySandbox(Sandbox):
    def __init__(
        self,
        context: Any,
        session: Any,
        on_print: Callable[[str], None],
        compute_s: float,
        on_close: Callable[[], None],
    ) -> None:
        self._context = context
        self._on_close = on_close
        self._session = session
        self._on_print = on_print
        self._compute_limit_s = compute_s
        self._point: Any = None
        self._turn: asyncio.Future[Any] | None = None
        self._feed = 0
        self._closed = False
        # Monty hides the pid while a turn runs, so it is taken now (notes/monty.md); a descriptor of the process
        # names this very worker even after its pid was given to another.
        self.worker_pid: int = session.worker_pid
        self._worker = os.pidfd_open(self.worker_pid)

    async def start(self, program: Program, inputs: Mapping[str, Any]) -> Step:
        if program.prelude:
            step = await self._step(lambda: self._session.feed_start(program.prelude))
            if isinstance(step, Broken):
                raise RuntimeError(f"the prelude failed: {step.message}")
            self._feed = 1
        return await self._step(
            lambda: self._session.feed_start(
                program.source, inputs={"inputs": dict(inputs)}, print_callback=self._printed
            )
        )

    async def restore(self, program: Program, snapshot: bytes) -> Step:
        self._feed = 1 if program.prelude else 0
        try:
            point = await self._session.load_snapshot(snapshot, print_callback=self._printed)
        except (pm.MontyError, ValueError) as error:
            raise SnapshotRejected(str(error)) from error
        return self._arrived(point)

    async def answer(self, answer: Answer | Deferred) -> Step:
        point = self._point
        return await self._step(lambda: point.resume(_external(answer)))

    async def answer_waiting(self, answers: Mapping[int, Answer]) -> Step:
        point = self._point
        given = {index: _external(answer) for index, answer in answers.items()}
        return await self._step(lambda: point.resume(given))

    async def snapshot(self) -> bytes:
        try:
            return bytes(self._point.dump())
        except pm.MontyError as error:
            raise SnapshotImpossible(str(error)[:200]) from error

    async def interrupt(self) -> None:
        if self._closed:
            return
        turn = self._turn
        worker = os.dup(self._worker)
        try:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(worker, signal.SIGKILL)
            if turn is not None and not turn.done():
                await asyncio.wait({turn}, timeout=UNWIND_TIMEOUT_S)
            await self.close()
            await _gone(worker)
        finally:
            os.close(worker)

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            os.close(self._worker)
            try:
                await self._context.__aexit__(None, None, None)
            except pm.MontyCrashedError:
                pass  # the worker was killed on purpose; the pool replaces it
            finally:
                self._on_close()

    def _printed(self, _stream: str, text: str) -> None:
        self._on_print(text)

    async def _step(self, begin: Callable[[], Awaitable[Any]]) -> Step:
        """One turn of the program: until it needs its host again, or ends."""
        self._turn = asyncio.ensure_future(begin())
        try:
            point = await asyncio.shield(self._turn)
            # An import answers itself: the modules were given at checkout.
            while isinstance(point, pm.AsyncFunctionSnapshot) and point.function_name == "import":
                self._turn = asyncio.ensure_future(point.resume_auto())
                point = await asyncio.shield(self._turn)
            while isinstance(point, pm.AsyncNameLookupSnapshot):
                self._turn = asyncio.ensure_future(point.resume())
                point = await asyncio.shield(self._turn)
        except pm.MontyError as error:
            return self._broken(error)
        return self._arrived(point)

    def _arrived(self, point: Any) -> Step:
        self._point = point
        if isinstance(point, pm.MontyComplete):
            return Finished(point.output)
        if isinstance(point, pm.AsyncFutureSnapshot):
            return Waiting(tuple(sorted(point.pending_call_ids)))
        if isinstance(point, pm.AsyncFunctionSnapshot):
            return Called(
                index=point.call_id,
                name=str(point.function_name),
                args=tuple(point.args),
                kwargs=dict(point.kwargs),
                is_os=bool(point.is_os_function),
                awaited=bool(point.allow_eager_await),
                position=(point.position.start, point.position.end),
            )
        raise TypeError(f"Monty stopped at an unexpected point: {type(point).__name__}")

    def _broken(self, error: pm.MontyError) -> Broken:
        line = self._line(error)
        if isinstance(error, pm.MontySyntaxError):
            return Broken("syntax_error", str(error), line)
        if isinstance(error, pm.MontyCrashedError):
            if error.timed_out:
                return Broken("compute_time_exceeded", self._time_message())
            return Broken("sandbox_crashed", "The sandbox ended without an answer.")
        inner = error.exception()
        text = str(inner)
        if isinstance(inner, TimeoutError) and _TIME.search(text):
            return Broken("compute_time_exceeded", self._time_message(), line)
        if isinstance(inner, MemoryError):
            return Broken(
                "memory_exceeded",
                f"The program used more than {limits.MEMORY_BYTES:,} bytes of memory.",
                line,
            )
        if isinstance(inner, RecursionError):
            return Broken("recursion_exceeded", text, line)
        if isinstance(inner, SyntaxError):
            return Broken("syntax_error", text, line)
        if isinstance(inner, NotImplementedError) and _UNSUPPORTED.search(text):
            return Broken("unsupported_construct", text, line)
        message = f"{type(inner).__name__}: {text}" if text else type(inner).__name__
        return Broken("program_error", message[: limits.ERROR_MESSAGE_CHARS], line)

    def _time_message(self) -> str:
        return f"The program computed for more than {self._compute_limit_s:g} s."

    def _line(self, error: pm.MontyError) -> int | None:
        traceback = getattr(error, "traceback", None)
        frames = traceback() if traceback is not None else []
        own = [frame.line for frame in frames if frame.filename == f"<python-input-{self._feed}>"]
        return own[-1] if own else None


def _call_surfaces(*_args: object, **_kwargs: object) -> None:
    """Stands for every tool; never called here, because each call stops the program and surfaces as a step."""
    raise AssertionError("a tool was called inside the driver")


def _external(answer: Answer | Deferred) -> Any:
    if isinstance(answer, Deferred):
        return {"future": ...}
    if isinstance(answer, Raised):
        return {"exc_type": answer.type, "message": answer.message}
    return {"return_value": answer.value}


async def _gone(worker: int) -> None:
    """Wait until the worker's process is really gone: its descriptor becomes readable."""
    loop, gone = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(worker, gone.set)
    try:
        await asyncio.wait_for(gone.wait(), UNWIND_TIMEOUT_S)
    finally:
        loop.remove_reader(worker)
