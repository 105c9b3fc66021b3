"""Compiled JSON Schema validators, kept in a bounded cache, that no schema or value can make hang.

Differences from plain jsonschema, each because schemas come from strangers and values from agents:
regular expressions run on a linear-time engine (one that it lacks is not asserted), `uniqueItems` is
linear, `$ref`s never leave the schema. `format` is not asserted.
"""

import hashlib
import json
import threading
from collections import OrderedDict
from collections.abc import Iterator
from functools import lru_cache
from itertools import islice
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError as SchemaMismatch
from jsonschema.exceptions import ValidationError
from jsonschema.validators import extend
from pydantic_core import SchemaError, SchemaValidator, core_schema
from pydantic_core import ValidationError as PatternMismatch
from referencing import Registry
from referencing.exceptions import Unresolvable

from runs.domain.effects import canonical_json
from runs.tools.base import JSON
from runs.tools.bounds import MAX_ASKED_SCHEMA_BYTES, MAX_SCHEMA_ERRORS, MAX_VALIDATORS


@lru_cache(maxsize=MAX_VALIDATORS)
def _pattern(pattern: str) -> SchemaValidator | None:
    """The pattern on Rust's linear-time regex engine; None for what it lacks (look-around)."""
    try:
        return SchemaValidator(core_schema.str_schema(pattern=pattern, regex_engine="rust-regex"))
    except SchemaError:
        return None


def _matches(pattern: str, text: str) -> bool:
    validator = _pattern(pattern)
    if validator is None:
        return True
    try:
        validator.validate_python(text)
    except PatternMismatch:
        return False
    return True


def _check_pattern(validator: Any, pattern: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if isinstance(instance, str) and isinstance(pattern, str) and not _matches(pattern, instance):
        yield ValidationError("does not match the pattern")


def _check_pattern_properties(validator: Any, patterns: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if isinstance(instance, dict):
        for pattern, subschema in patterns.items():
            for key, value in instance.items():
                if _matches(pattern, key):
                    yield from validator.descend(value, subschema, path=key, schema_path=pattern)


def _check_additional_properties(validator: Any, allowed: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if not isinstance(instance, dict):
        return
    known, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
    for key, value in instance.items():
        if key in known or any(_matches(pattern, key) for pattern in patterns):
            continue
        if allowed is False:
            yield ValidationError(f"unknown key {key!r}")
        elif isinstance(allowed, dict):
            yield from validator.descend(value, allowed, path=key)


def _check_unique(validator: Any, unique: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if unique is True and isinstance(instance, list) and len(set(map(canonical_json, instance))) != len(instance):
        yield ValidationError("holds the same value twice")


_extend: Any = extend
"""Typed by hand: the stubs leave its arguments open."""
_Validator = _extend(
    Draft202012Validator,
    {
        "pattern": _check_pattern,
        "patternProperties": _check_pattern_properties,
        "additionalProperties": _check_additional_properties,
        "uniqueItems": _check_unique,
    },
)


class _Cache:
    """Least recently used first out; by the schema's identity, then by digest (a catalog read anew)."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._lock = threading.Lock()
        self._by_id: OrderedDict[int, tuple[dict[str, JSON], Any]] = OrderedDict()
        """Holds the schema too: its id stays taken as long as the entry lives."""
        self._by_digest: OrderedDict[str, Any] = OrderedDict()

    def get(self, schema: dict[str, JSON]) -> Any:
        with self._lock:
            entry = self._by_id.get(id(schema))
            if entry is not None:
                self._by_id.move_to_end(id(schema))
                return entry[1]
        digest = hashlib.sha256(canonical_json(schema).encode()).hexdigest()
        with self._lock:
            validator = self._by_digest.get(digest)
            if validator is None:
                validator = _Validator(schema, registry=Registry())
                self._by_digest[digest] = validator
            self._by_digest.move_to_end(digest)
            self._by_id[id(schema)] = (schema, validator)
            while len(self._by_digest) > self._size:
                self._by_digest.popitem(last=False)
            while len(self._by_id) > self._size:
                self._by_id.popitem(last=False)
        return validator

    def __len__(self) -> int:
        return max(len(self._by_id), len(self._by_digest))


_cache = _Cache(MAX_VALIDATORS)


def validator_for(schema: dict[str, JSON]) -> Any:
    """A compiled validator (`iter_errors`, `is_valid`); the schema must not be changed afterwards."""
    return _cache.get(schema)


class SchemaUnusable(ValueError):
    """A schema that nothing can be checked against: it refers outside of itself, or to itself without end."""


def check_schema(schema: dict[str, JSON]) -> None:
    """Refuse a schema of a program before a person is asked. Raises SchemaUnusable; nothing is ever fetched."""
    if len(json.dumps(schema)) > MAX_ASKED_SCHEMA_BYTES:
        raise SchemaUnusable(f"it is over {MAX_ASKED_SCHEMA_BYTES:,} bytes")
    try:
        Draft202012Validator.check_schema(schema)
    except SchemaMismatch as error:
        raise SchemaUnusable(error.message[:300]) from None
    except RecursionError:
        raise SchemaUnusable("it is nested too deeply") from None
    probes: tuple[JSON, ...] = (None, "", 0, [], {})
    for probe in probes:
        errors_of(schema, probe)


def errors_of(schema: dict[str, JSON], value: JSON) -> list[ValidationError]:
    """What is wrong with `value`, at most MAX_SCHEMA_ERRORS. Raises SchemaUnusable."""
    try:
        return list(islice(validator_for(schema).iter_errors(value), MAX_SCHEMA_ERRORS))
    except RecursionError:
        raise SchemaUnusable("it refers to itself without end") from None
    except Unresolvable as error:
        raise SchemaUnusable(f"it refers to {str(error.ref)[:200]!r}, which is not part of it") from None


def cached_validators() -> int:
    return len(_cache)
