"""JSON in, strictly: objects only where the contract has objects, UTF-8, no NaN, no NUL, bounded nesting."""

import json
import math
from typing import Any, Never

from django.http import HttpRequest
from ninja.parser import Parser

from runs.domain import limits
from runs.domain.codes import Refusal


class StrictJSON(Parser):
    def parse_body(self, request: HttpRequest) -> Any:
        """Raises Refusal invalid_json or unsupported_media_type."""
        kind = (request.content_type or "").lower()
        if kind not in ("application/json", ""):
            raise Refusal("unsupported_media_type", "Send the body as application/json.")
        body = request.body
        if not body:
            raise Refusal("invalid_json", "The body is empty; send a JSON object.")
        try:
            value = json.loads(body.decode("utf-8"), parse_constant=_not_json, parse_float=_finite)
        except RecursionError:
            raise Refusal("invalid_json", "The body is nested too deeply.") from None
        except ValueError as error:
            raise Refusal("invalid_json", f"The body is not JSON in UTF-8: {_short(error)}") from None
        check_text(value)
        return value


def check_text(value: Any) -> None:
    """Refuse what the database cannot keep: NUL characters, lone surrogates, and endless nesting."""
    waiting = [(value, 1)]
    while waiting:
        item, depth = waiting.pop()
        if depth > limits.VALUE_DEPTH:
            raise Refusal("invalid_json", f"The body is nested more than {limits.VALUE_DEPTH} levels deep.")
        if isinstance(item, str):
            if "\0" in item:
                raise Refusal("invalid_request", "Text must not contain NUL characters.")
            if any("\ud800" <= char <= "\udfff" for char in item):
                raise Refusal("invalid_request", "Text must not contain lone surrogates.")
        elif isinstance(item, dict):
            waiting += [(part, depth + 1) for pair in item.items() for part in pair]
        elif isinstance(item, list):
            waiting += [(part, depth + 1) for part in item]


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"{text[:40]} is larger than a number can be")
    return number


def _not_json(name: str) -> Never:
    raise ValueError(f"{name} is not JSON")


def _short(error: ValueError) -> str:
    return str(error)[:200]
