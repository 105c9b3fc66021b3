"""How driving a run ends: stopped from outside, or over by itself. Raised inside the engine, never out of it."""

from enum import StrEnum
from typing import Any

Body = dict[str, Any]
"""A stored answer: the result union."""


class Stop(StrEnum):
    SCOPE = "scope"
    """The scope ends: hand the run on."""
    CANCEL = "cancel"
    LOST = "lost"
    """Another epoch holds the run: write nothing."""
    FLOOD = "flood"
    """The program printed more than it may."""


class Stopped(Exception):
    def __init__(self, why: Stop) -> None:
        self.why = why


class Over(Exception):
    """The run has stopped and its outcome is stored; no body where it goes on elsewhere."""

    def __init__(self, body: Body | None) -> None:
        self.body = body
