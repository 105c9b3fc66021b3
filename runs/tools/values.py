"""Values on their way into JSON: what programs hand over and what tools answer, normalised and bounded."""

import asyncio
import base64
import dataclasses
import json
import math
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from json.encoder import encode_basestring
from pathlib import PurePath
from uuid import UUID

from runs.domain.effects import canonical_json
from runs.tools.base import JSON
from runs.tools.bounds import MAX_ARGUMENTS_BYTES, MAX_INT_DIGITS, MAX_VALUE_DEPTH

_MAX_INT_BITS = int(MAX_INT_DIGITS * math.log2(10))


class NotJSON(ValueError):
    """The value at `path` (like `$.items[3]`) has no JSON form within the bounds; `why` says it in words."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"{path}: {why}")
        self.path = path
        self.why = why


def to_json(value: object, *, max_bytes: int = MAX_ARGUMENTS_BYTES, max_depth: int = MAX_VALUE_DEPTH) -> JSON:
    """A JSON copy of `value`, at most `max_bytes` long as compact UTF-8 text and `max_depth` levels deep.

    Tuples become lists, sets sorted lists, dates and times ISO text, durations seconds, bytes base64, paths
    text, enums their value, dataclasses objects; a Decimal becomes a number where a number says exactly the
    same, else text. NaN, infinities, lone surrogates, cycles and unknown types raise NotJSON. The work is
    bounded by `max_bytes` also where one object is referred to a billion times.
    """
    return _Converter(max_bytes, max_depth).convert(value, "$", 1)


def decimal_to_json(value: Decimal) -> int | float | str:
    """A number if it says exactly the same, else the text."""
    if value.is_finite() and value.adjusted() < MAX_INT_DIGITS:
        if value == value.to_integral_value() and value.adjusted() < 16:
            return int(value)
        as_float = float(value)
        if math.isfinite(as_float) and Decimal(repr(as_float)) == value:
            return as_float
    return str(value)


class _Converter:
    def __init__(self, max_bytes: int, max_depth: int) -> None:
        self.max_bytes = max_bytes
        self.max_depth = max_depth
        self.used = 0
        self.open: set[int] = set()
        """Ids of the containers around the present value: meeting one again is a cycle."""

    def spend(self, size: int, path: str) -> None:
        self.used += size
        if self.used > self.max_bytes:
            raise NotJSON(path, f"larger than {self.max_bytes} bytes as JSON")

    def convert(self, value: object, path: str, depth: int) -> JSON:
        if value is None or isinstance(value, bool):
            self.spend(5 if value is False else 4, path)
            return value
        if isinstance(value, Enum):
            return self.convert(value.value, path, depth)
        if isinstance(value, str):
            return self.text(value, path)
        if isinstance(value, (int, float)):
            return self.number(value, path)
        if isinstance(value, (dict, list, tuple, set, frozenset)) or _is_record(value):
            return self.container(value, path, depth)
        return self.scalar(value, path)

    def text(self, value: str, path: str) -> str:
        value = str(value)
        if "\0" in value:
            # The database's JSON has no NUL character: a value that cannot be kept must not be sent or answered.
            raise NotJSON(path, "text with a NUL character")
        try:
            encoded = encode_basestring(value).encode()
        except UnicodeEncodeError:
            raise NotJSON(path, "text with a lone surrogate, which is not valid Unicode") from None
        self.spend(len(encoded), path)
        return value

    def number(self, value: int | float, path: str) -> int | float:
        if isinstance(value, float):
            if not math.isfinite(value):
                raise NotJSON(path, f"{value} is not a JSON number")
            value = float(value)
        else:
            value = int(value)
            if value.bit_length() > _MAX_INT_BITS:
                raise NotJSON(path, f"a number with more than {MAX_INT_DIGITS} digits")
        self.spend(len(repr(value)), path)
        return value

    def scalar(self, value: object, path: str) -> JSON:
        match value:
            case datetime() | date() | time():
                return self.text(value.isoformat(), path)
            case timedelta():
                return self.number(value.total_seconds(), path)
            case Decimal():
                if not value.is_finite():
                    raise NotJSON(path, f"{value} is not a JSON number")
                number = decimal_to_json(value)
                return self.text(number, path) if isinstance(number, str) else self.number(number, path)
            case bytes() | bytearray() | memoryview():
                # Four letters for three bytes: refused by its size before anything is copied.
                if len(value) * 4 // 3 > self.max_bytes:
                    raise NotJSON(path, f"larger than {self.max_bytes} bytes as JSON")
                return self.text(base64.b64encode(value).decode("ascii"), path)
            case PurePath() | UUID():
                return self.text(str(value), path)
            case _:
                raise NotJSON(path, f"a {type(value).__name__} has no JSON form")

    def container(self, value: object, path: str, depth: int) -> JSON:
        if depth > self.max_depth:
            raise NotJSON(path, f"nested more than {self.max_depth} levels deep")
        if id(value) in self.open:
            raise NotJSON(path, "contains itself")
        self.open.add(id(value))
        self.spend(2, path)
        try:
            if isinstance(value, dict):
                return self.mapping(value, path, depth)
            if isinstance(value, (list, tuple)):
                return self.sequence(value, path, depth)
            if isinstance(value, (set, frozenset)):
                return sorted(self.sequence(list(value), path, depth), key=canonical_json)
            return self.mapping(_fields(value), path, depth)
        finally:
            self.open.discard(id(value))

    def sequence(self, items: list[object] | tuple[object, ...], path: str, depth: int) -> list[JSON]:
        result = []
        for index, item in enumerate(items):
            if index:
                self.spend(1, path)
            result.append(self.convert(item, f"{path}[{index}]", depth + 1))
        return result

    def mapping(self, items: dict[object, object], path: str, depth: int) -> dict[str, JSON]:
        result: dict[str, JSON] = {}
        for index, (key, item) in enumerate(items.items()):
            name = _key(key, path)
            if name in result:
                raise NotJSON(path, f"two keys that both read {name[:80]!r}")
            self.spend(2 if index else 1, path)
            self.text(name, path)
            result[name] = self.convert(item, f"{path}.{name[:80]}", depth + 1)
        return result


def _is_record(value: object) -> bool:
    return dataclasses.is_dataclass(value) and not isinstance(value, type)


def _fields(value: object) -> dict[object, object]:
    return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}  # type: ignore[arg-type]


def _key(key: object, path: str) -> str:
    """A key as json.dumps would write it; only texts, whole numbers, booleans and None can be keys."""
    if isinstance(key, Enum):
        key = key.value
    if isinstance(key, str):
        return str(key)
    if key is None or isinstance(key, bool):
        return json.dumps(key)
    if isinstance(key, int) and key.bit_length() <= _MAX_INT_BITS:
        return str(int(key))
    raise NotJSON(path, f"a {type(key).__name__} cannot be a key of a JSON object")


async def to_json_beside(
    value: object, *, at_once_bytes: int, max_bytes: int, max_depth: int = MAX_VALUE_DEPTH
) -> JSON:
    """`to_json` for an event loop: what is larger than `at_once_bytes` is converted in a thread. Raises NotJSON."""
    try:
        return to_json(value, max_bytes=min(at_once_bytes, max_bytes), max_depth=max_depth)
    except NotJSON:
        return await asyncio.to_thread(to_json, value, max_bytes=max_bytes, max_depth=max_depth)
