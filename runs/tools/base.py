"""What every kind of source answers: tools with a schema, and the outcome of calling one.

The engine's broker knows only these types; each kind of source (openapi, python, …) makes and serves them.
"""

from dataclasses import dataclass, field
from typing import Any

from runs.domain.effects import EffectClass

JSON = Any
"""None | bool | int | float | str | list | dict with string keys, nested: what json.dumps takes."""


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """One callable operation of a source, as imported: everything needed to show, check and call it."""

    source: str
    """The source's name: also the module the agent imports. snake_case, a Python identifier."""
    name: str
    """snake_case, a Python identifier, unique within its source, the same after every re-import."""
    description: str
    input_schema: dict[str, JSON]
    """JSON Schema 2020-12 of the keyword arguments: an object, `additionalProperties: false`, `$defs` local."""
    output_schema: dict[str, JSON] | None
    effect: EffectClass
    binding: dict[str, JSON] = field(default_factory=dict)
    """How the source's kind calls it (method, path, parameter places …). JSON; opaque to everybody else."""
    sensitive: frozenset[str] = frozenset()
    """Argument names marked as secret (`format: password`, `x-sensitive: true`)."""

    @property
    def address(self) -> str:
        return f"{self.source}.{self.name}"


@dataclass(frozen=True, slots=True)
class Succeeded:
    """The call was answered and the answer is `value`."""

    value: JSON
    status: int | None = None
    truncated: bool = False


@dataclass(frozen=True, slots=True)
class Unrepresentable:
    """The call succeeded upstream, but its answer cannot be handed on (broken JSON, too large, binary …)."""

    reason: str
    status: int | None = None


@dataclass(frozen=True, slots=True)
class Refused:
    """The call was answered with a failure, or it provably never left: nothing is unknown."""

    code: str
    """A name of the error registry: upstream_error, upstream_unreachable, upstream_timeout, connection_missing …"""
    message: str
    status: int | None = None
    body: str | None = None
    sent: bool = True
    """False where the request provably never left this process (refused address, connect error)."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """The request left, or may have left, and no answer came: it may have happened or not."""

    code: str
    message: str


CallOutcome = Succeeded | Unrepresentable | Refused | Unknown


@dataclass(frozen=True, slots=True)
class CallContext:
    """What the broker gives along with the arguments. The identity of the run comes from here, never from code."""

    run_id: str
    idempotency_key: str
    timeout_s: float
    """Seconds for the whole call, from connect to the last byte."""
