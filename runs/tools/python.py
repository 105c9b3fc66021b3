"""The site's own Python functions as tools: registered by module, described by signature, called with a deadline."""

import asyncio
import contextvars
import importlib
import inspect
import logging
import uuid
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeVar

from pydantic import TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError

from runs.domain.effects import EffectClass
from runs.tools.base import JSON, CallContext, CallOutcome, Refused, Succeeded, ToolSpec, Unknown, Unrepresentable
from runs.tools.bounds import MAX_DESCRIPTION_CHARS, MAX_PYTHON_RESULT_BYTES, PYTHON_THREADS
from runs.tools.policy import DECLARED_APPROVAL
from runs.tools.python_schema import Signature, read_signature
from runs.tools.values import NotJSON, to_json

log = logging.getLogger(__name__)

Approval = Literal["none", "owner", "staff"]
_F = TypeVar("_F", bound=Callable[..., Any])
_MARK: Final = "__executor_tool__"
_threads = ThreadPoolExecutor(PYTHON_THREADS, thread_name_prefix="tool")
_abandoned: set[asyncio.Task[Any]] = set()
"""Coroutines that were cancelled at their deadline and have not unwound yet: held, or they might vanish half-way."""


class ToolError(Exception):
    """A failure whose message is meant for whoever called the tool. Any other exception stays inside."""


@dataclass(frozen=True, slots=True)
class _Mark:
    effect: EffectClass
    approval: Approval | None


@dataclass(frozen=True, slots=True)
class _Function:
    call: Callable[..., Any]
    signature: Signature


def tool(
    effect: EffectClass | Literal["read", "idempotent", "effect"] = EffectClass.EFFECT,
    approval: Approval | None = None,
) -> Callable[[_F], _F]:
    """Registers the function as a tool of its module's source and says what it does to the world.

    `approval` is the default where no policy matches: `none`, or by the run's `owner`, or by `staff`.
    """

    def mark(function: _F) -> _F:
        setattr(function, _MARK, _Mark(EffectClass(effect), approval))
        return function

    return mark


class PythonSource:
    """The tools of one module. Raises ImportError for the module, TypeError for a signature no JSON can fill."""

    def __init__(self, name: str, module: str) -> None:
        self.name = name
        self._functions: dict[str, _Function] = {}
        specs = []
        for function_name, function in sorted(_public_functions(importlib.import_module(module)).items()):
            signature = read_signature(function)
            self._functions[function_name] = _Function(function, signature)
            specs.append(_spec(name, module, function_name, function, signature))
        self.tools: tuple[ToolSpec, ...] = tuple(specs)

    async def invoke(self, spec: ToolSpec, arguments: dict[str, JSON], context: CallContext) -> CallOutcome:
        """Calls the function once, within `context.timeout_s` seconds. Raises nothing but CancelledError.

        A thread cannot be stopped: a synchronous function that overruns goes on, and its outcome is unknown.
        """
        function = self._functions.get(spec.name)
        if function is None:
            return Refused("tool_not_found", f"{spec.address} is not registered any more.", sent=False)
        try:
            values = function.signature.values(arguments)
        except ValidationError as exc:
            first = exc.errors(include_url=False, include_input=False)[0]
            where = ".".join(map(str, first["loc"]))
            return Refused("invalid_arguments", f"{spec.address}: {where}: {first['msg']}", sent=False)
        if function.signature.takes_context:
            values["context"] = context
        try:
            result = await _run(function.call, values, context.timeout_s)
        except _NotStarted:
            return Refused("upstream_timeout", "The function was not started: all threads were busy.", sent=False)
        except _Overrun:
            return _overrun(spec, context.timeout_s)
        except ToolError as exc:
            return Refused("tool_failed", str(exc))
        except Exception as exc:  # noqa: BLE001 - the boundary to functions of others; logged, and told opaquely
            return _failed(spec, exc)
        return _result(spec, result)


class _NotStarted(Exception):
    """The deadline came while the call still waited for a thread."""


class _Overrun(Exception):
    """The deadline came while the function ran."""


async def _run(call: Callable[..., Any], values: dict[str, Any], timeout_s: float) -> Any:
    if inspect.iscoroutinefunction(call):
        return await _run_coroutine(call(**values), timeout_s)
    context = contextvars.copy_context()
    future: Future[Any] = _threads.submit(context.run, _contained, call, values)
    waiter = asyncio.wrap_future(future)
    done, _ = await asyncio.wait({waiter}, timeout=timeout_s)
    if done:
        return waiter.result()
    # True only while the call is still queued: then it never starts.
    not_started = future.cancel()
    # Whatever it still raises, nobody asks for any more; unread it would be reported as forgotten.
    waiter.add_done_callback(_read)
    raise _NotStarted if not_started else _Overrun


async def _run_coroutine(coroutine: Coroutine[Any, Any, Any], timeout_s: float) -> Any:
    task = asyncio.ensure_future(_contained_async(coroutine))
    try:
        done, _ = await asyncio.wait({task}, timeout=timeout_s)
    except asyncio.CancelledError:
        _abandon(task)
        raise
    if done:
        return task.result()
    _abandon(task)
    raise _Overrun


def _abandon(task: asyncio.Task[Any]) -> None:
    """Cancels without waiting: a function that ignores its cancellation must not hold the call."""
    task.cancel()
    _abandoned.add(task)
    task.add_done_callback(_abandoned.discard)
    task.add_done_callback(_read)


def _read(future: asyncio.Future[Any]) -> None:
    if not future.cancelled():
        future.exception()


def _contained(call: Callable[..., Any], values: dict[str, Any]) -> Any:
    try:
        return call(**values)
    except (SystemExit, StopIteration) as exc:
        # Either would end or confuse the loop instead of the call.
        raise RuntimeError(f"the function raised {type(exc).__name__}") from exc


async def _contained_async(coroutine: Coroutine[Any, Any, Any]) -> Any:
    try:
        return await coroutine
    except SystemExit as exc:
        raise RuntimeError("the function raised SystemExit") from exc


def _overrun(spec: ToolSpec, timeout_s: float) -> CallOutcome:
    message = f"The function took longer than {timeout_s:g} s."
    if spec.effect is EffectClass.READ:
        return Refused("upstream_timeout", message)
    return Unknown("upstream_timeout", f"{message} It may have taken effect.")


def _failed(spec: ToolSpec, exc: Exception) -> Refused:
    correlation_id = uuid.uuid4().hex
    log.error("tool %s failed (%s)", spec.address, correlation_id, exc_info=exc)
    return Refused("tool_failed", f"The tool failed unexpectedly; correlation id {correlation_id}.")


_ANY: Final[TypeAdapter[Any]] = TypeAdapter(Any)


def _result(spec: ToolSpec, result: Any) -> CallOutcome:
    try:
        # Models and dataclasses become plain objects first; to_json knows the rest and the bounds.
        return Succeeded(to_json(_ANY.dump_python(result), max_bytes=MAX_PYTHON_RESULT_BYTES))
    except NotJSON as exc:
        return Unrepresentable(f"the result at {exc.path}: {exc.why}")
    except (PydanticSerializationError, ValueError, RecursionError) as exc:
        return Unrepresentable(f"the result has no JSON form ({type(exc).__name__})")


def _public_functions(module: Any) -> dict[str, Callable[..., Any]]:
    """Functions the module itself defines that are marked or documented; imported and private ones are not."""
    return {
        name: value
        for name, value in vars(module).items()
        if inspect.isfunction(value)
        and value.__module__ == module.__name__
        and not name.startswith("_")
        and (hasattr(value, _MARK) or inspect.getdoc(value))
    }


def _spec(source: str, module: str, name: str, function: Callable[..., Any], signature: Signature) -> ToolSpec:
    mark: _Mark = getattr(function, _MARK, _Mark(EffectClass.EFFECT, None))
    binding: dict[str, JSON] = {"kind": "python", "module": module, "function": name}
    if mark.approval is not None:
        binding[DECLARED_APPROVAL] = mark.approval
    return ToolSpec(
        source=source,
        name=name,
        description=(inspect.getdoc(function) or name)[:MAX_DESCRIPTION_CHARS],
        input_schema=signature.input_schema,
        output_schema=signature.output_schema,
        effect=mark.effect,
        binding=binding,
        sensitive=signature.sensitive,
    )
