"""A module of functions as a site might register them."""

import asyncio
import threading
from dataclasses import dataclass
from datetime import date
from enum import Enum
from pathlib import PurePath  # an import is no tool
from typing import Literal

from pydantic import BaseModel
from typing_extensions import TypedDict

from runs.tools.base import CallContext
from runs.tools.python import ToolError, tool

release = threading.Event()
started = threading.Event()
calls: list[str] = []


class Size(Enum):
    SMALL = "S"
    LARGE = "L"


@dataclass
class Line:
    sku: str
    count: int = 1


class Address(TypedDict):
    city: str


class Order(BaseModel):
    lines: list[Line]
    due: date | None = None


@tool(effect="read", approval="none")
def add(a: int, b: int = 2) -> int:
    """Adds two numbers."""
    return a + b


@tool(effect="effect", approval="staff")
async def order(
    lines: list[Line],
    size: Size,
    *,
    address: Address | None = None,
    speed: Literal["slow", "fast"] = "slow",
    due: date | None = None,
) -> Order:
    """Orders something."""
    assert isinstance(size, Size)
    assert all(isinstance(line, Line) for line in lines)
    return Order(lines=lines, due=due)


def documented(text: str) -> str:
    """Documented, so it is a tool; of class effect, since nothing else is said."""
    return text


def undocumented(text: str) -> str:
    return text


def _private() -> None:
    """Private functions are not tools."""


@tool(effect="effect")
def who(context: CallContext) -> dict[str, str]:
    return {"run": context.run_id, "key": context.idempotency_key}


@tool(effect="effect")
def fails(kind: str) -> None:
    if kind == "told":
        raise ToolError("Not enough money.")
    if kind == "exit":
        raise SystemExit(3)
    raise RuntimeError("secret detail")


@tool(effect="effect")
async def fails_later(kind: str) -> None:
    fails(kind)


@tool(effect="read")
def odd(kind: str) -> object:
    return {"set": {2, 1}, "path": PurePath("/a"), "object": object(), "nan": float("nan"), "loop": _loop()}[kind]


def _loop() -> list[object]:
    loop: list[object] = []
    loop.append(loop)
    return loop


@tool(effect="effect")
def blocks() -> str:
    started.set()
    release.wait(30)
    return "late"


@tool(effect="read")
def blocks_reading() -> str:
    started.set()
    release.wait(30)
    return "late"


@tool(effect="effect")
async def waits() -> None:
    await asyncio.Event().wait()


@tool(effect="effect")
async def stubborn() -> None:
    while not release.is_set():
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            calls.append("cancelled")
            return
