"""The process of one import: reads the request from stdin, works, commits, answers JSON on stdout.

`python -m runs.services.source_worker`; exit code 0 with the answer, REFUSED with a refusal, else a crash.
"""

import json
import resource
import sys
from typing import Any

import django

ADD, REFRESH = "add", "refresh"
REFUSED = 3
"""Exit code with a refusal on stdout."""


def main() -> int:
    from runs.domain import limits

    # A document that needs more than any honest one must not take the host's memory along.
    resource.setrlimit(resource.RLIMIT_AS, (limits.IMPORT_MEMORY_BYTES, limits.IMPORT_MEMORY_BYTES))
    django.setup()
    from runs.domain.codes import Refusal

    header = json.loads(sys.stdin.buffer.readline())
    body = sys.stdin.buffer.read(header["body"])
    fetched = sys.stdin.buffer.read(header["fetched"]) or None
    try:
        answer, code = _work(header, body, fetched), 0
    except Refusal as refusal:
        answer = {"code": refusal.code.name, "message": refusal.message, "detail": refusal.detail}
        code = REFUSED
    except MemoryError:
        answer = {"code": "spec_too_large", "message": "The document needs too much memory.", "detail": None}
        code = REFUSED
    sys.stdout.buffer.write(json.dumps(answer).encode())
    sys.stdout.buffer.flush()
    return code


def _work(header: dict[str, Any], body: bytes, fetched: bytes | None) -> dict[str, Any]:
    from runs.services import sources
    from runs.services.source_input import read_refresh, read_source

    if header["action"] == ADD:
        return sources.source_add(header["by"], read_source(body), fetched)
    return sources.source_refresh(header["name"], read_refresh(body), fetched)


if __name__ == "__main__":
    sys.exit(main())
