"""The bounds of a program's text, the same on every surface that takes one."""

import json
from typing import Any

from runs.domain import limits


def check_code(code: str) -> str:
    """Raises ValueError with what is wrong."""
    if len(code.encode("utf-8", errors="surrogatepass")) > limits.CODE_BYTES:
        raise ValueError(f"code is over {limits.CODE_BYTES:,} bytes")
    if "\0" in code:
        raise ValueError("code must not contain NUL characters")
    return code


def check_inputs(inputs: dict[str, Any]) -> dict[str, Any]:
    """Raises ValueError with what is wrong."""
    if len(json.dumps(inputs)) > limits.INPUTS_BYTES:
        raise ValueError(f"inputs are over {limits.INPUTS_BYTES:,} bytes as JSON")
    return inputs
