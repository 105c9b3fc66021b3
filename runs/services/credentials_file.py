"""`credentials.json` in VAR_DIR: what the first start made, for whoever started it. Mode 0600, written whole."""

import json
import os
from pathlib import Path

NAME = "credentials.json"


def credentials_read(var_dir: Path) -> dict[str, str]:
    """What the file says; empty where there is none or it cannot be understood."""
    try:
        found = json.loads((var_dir / NAME).read_text())
    except (FileNotFoundError, ValueError):
        return {}
    if not isinstance(found, dict):
        return {}
    return {key: value for key, value in found.items() if isinstance(key, str) and isinstance(value, str)}


def credentials_write(var_dir: Path, content: dict[str, str]) -> None:
    """On disk, or as it was before. Raises OSError."""
    half = var_dir / f".{NAME}.{os.getpid()}"
    half.unlink(missing_ok=True)
    # O_EXCL with the mode: at no moment can anybody else read it.
    descriptor = os.open(half, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(json.dumps(content, indent=2) + "\n")
            file.flush()
            os.fsync(file.fileno())
        half.replace(var_dir / NAME)
    except BaseException:
        half.unlink(missing_ok=True)
        raise
