"""What the demo service received: one line an effect, appended before it is answered, never deduplicated.

It is the outsider's count of effects: blind to keys on purpose, so that a request sent twice shows as two lines.
"""

import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any


class Ledger:
    """A file of JSON lines that only grows; it survives the service, killed or not. One writer at a time."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._end_half_line()
        self.count = path.read_bytes().count(b"\n")

    def append(self, operation: str, args: dict[str, Any], *, key: str | None, run_id: str | None) -> int:
        """The number of this effect, from 1. The line is with the kernel on return: killing us does not lose it."""
        line = json.dumps(
            {
                "at": datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
                "operation": operation,
                "args": args,
                "idempotency_key": key,
                "run_id": run_id,
            }
        )
        os.write(self._file, line.encode() + b"\n")
        self.count += 1
        return self.count

    def read(self) -> bytes:
        return self.path.read_bytes()

    def close(self) -> None:
        os.close(self._file)

    def _end_half_line(self) -> None:
        """A machine that lost power may have left part of a line: it must not swallow the next one."""
        size = os.fstat(self._file).st_size
        if size and os.pread(self._file, 1, size - 1) != b"\n":
            os.write(self._file, b"\n")
