"""What the engine asks of an embedded sandbox: step a program, snapshot it, stop it. No effect happens in here.

A step ends where the program needs its host: a call, a wait for calls, or its end. A driver raises only for its
own defects; whatever the program does arrives as a step.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Program:
    """Source text ready to run, and which of its calls it will await later (`runs/engine/program.py`)."""

    source: str
    prelude: str = ""
    deferred: frozenset[tuple[int, int]] = frozenset()
    """UTF-8 byte ranges of call expressions whose value is awaited elsewhere: they are answered by a future."""


@dataclass(frozen=True, slots=True)
class Called:
    """The program called something of its host and waits for the answer."""

    index: int
    """Grows over the run and continues after a restore: the call's place in the effect key."""
    name: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    is_os: bool
    awaited: bool
    """The program awaits this very call: the answer may come later (`Deferred`)."""
    position: tuple[int, int]
    """UTF-8 byte range of the call expression in the source."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """The program awaits calls that were deferred."""

    indexes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Finished:
    value: Any


@dataclass(frozen=True, slots=True)
class Broken:
    """The program ended with an error, or the sandbox did. `code` is of the registry."""

    code: str
    message: str
    line: int | None = None


Step = Called | Waiting | Finished | Broken


@dataclass(frozen=True, slots=True)
class Returned:
    value: Any


@dataclass(frozen=True, slots=True)
class Raised:
    type: str
    message: str


@dataclass(frozen=True, slots=True)
class Deferred:
    pass


Answer = Returned | Raised


class Sandbox(ABC):
    """One program's sandbox. Not shared; used by one task at a time, but for `interrupt`."""

    @abstractmethod
    async def start(self, program: Program, inputs: Mapping[str, Any]) -> Step: ...

    @abstractmethod
    async def restore(self, program: Program, snapshot: bytes) -> Step:
        """Go back to the step at which `snapshot` was taken. Raises SnapshotRejected; nothing ran then."""

    @abstractmethod
    async def answer(self, answer: Answer | Deferred) -> Step:
        """Answer the last `Called`."""

    @abstractmethod
    async def answer_waiting(self, answers: Mapping[int, Answer]) -> Step:
        """Answer some of the last `Waiting`'s calls, at least one."""

    @abstractmethod
    async def snapshot(self) -> bytes:
        """The program's state at the last step. It can still be answered here afterwards. Raises SnapshotImpossible."""

    @abstractmethod
    async def interrupt(self) -> None:
        """Kill whatever works, and return only when its process is gone and the pending step has unwound."""

    @abstractmethod
    async def close(self) -> None:
        """Give the worker back. The program is gone, unless a snapshot was taken."""


class SandboxPool(ABC):
    @abstractmethod
    async def checkout(
        self, *, compute_s: float, tools: Mapping[str, tuple[str, ...]], on_print: Callable[[str], None]
    ) -> Sandbox:
        """A clean sandbox; `tools` are the modules it may import, with their functions.

        `compute_s` is the program's whole compute time: its clock travels in its snapshots. Raises
        SandboxUnavailable after a bounded wait; nothing has run then.
        """

    @abstractmethod
    async def close(self) -> None: ...


class SandboxUnavailable(Exception):
    """No sandbox could be had; nothing has run."""


class SnapshotImpossible(Exception):
    """The program's state cannot be taken; it can still be answered."""


class SnapshotRejected(Exception):
    """A snapshot could not be restored; nothing has run."""
