"""Where the demo service listens: one port, chosen once and recorded, so that its source stays right over restarts."""

import http.client
import json
import os
import socket
from pathlib import Path

HOST = "127.0.0.1"
"""Loopback only: whoever may reach it may write to its ledger."""
_ASK_S = 1.0


def document() -> bytes:
    """The service's OpenAPI document, as data: the source can be added while the service is not running."""
    return (Path(__file__).parent / "openapi.json").read_bytes()


def ledger_path(var_dir: Path) -> Path:
    return var_dir / "demo-ledger.jsonl"


def demo_port(var_dir: Path, wanted: int | None, beside: int) -> int:
    """The recorded port; else `wanted` (0: any), else the one after `beside`, else any that is free: then recorded.

    A recorded port that another program took meanwhile, or that is not the wanted one, is given up and chosen anew.
    Raises OSError where nothing can be bound or written.
    """
    recorded = recorded_port(var_dir)
    if recorded is not None and wanted in (None, 0, recorded) and (is_free(recorded) or _is_ours(recorded)):
        return recorded
    candidates = [wanted] if wanted is not None else [beside + 1 if 0 < beside < 65_535 else 0, 0]
    for candidate in candidates:
        if candidate == 0 or is_free(candidate):
            port = candidate or _any_port()
            _record(var_dir, port)
            return port
    raise OSError(f"port {wanted} on {HOST} is taken; set another DEMO_PORT")


def recorded_port(var_dir: Path) -> int | None:
    """What was chosen before; None: nothing was, or the record cannot be read."""
    try:
        port = json.loads((var_dir / "demo.json").read_text())["port"]
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None
    return port if isinstance(port, int) and 0 < port < 65_536 else None


def bound_socket(port: int) -> socket.socket:
    """Raises OSError while the port is taken."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((HOST, port))
        # Linux lets two sockets bind with SO_REUSEADDR until one listens: only now is the port taken for certain.
        listener.listen(1024)
    except OSError:
        listener.close()
        raise
    return listener


def is_free(port: int) -> bool:
    try:
        bound_socket(port).close()
    except OSError:
        return False
    return True


def _any_port() -> int:
    with bound_socket(0) as listener:
        port: int = listener.getsockname()[1]
        return port


def _is_ours(port: int) -> bool:
    """Whether the demo service itself is what listens there."""
    asked = http.client.HTTPConnection(HOST, port, timeout=_ASK_S)
    try:
        asked.request("GET", "/openapi.json")
        return asked.getresponse().read(len(document()) + 1) == document()
    except (OSError, http.client.HTTPException):
        return False  # somebody else, or nobody who answers
    finally:
        asked.close()


def _record(var_dir: Path, port: int) -> None:
    var_dir.mkdir(parents=True, exist_ok=True)
    half = var_dir / f"demo.json.{os.getpid()}"
    half.write_text(json.dumps({"port": port, "url": f"http://{HOST}:{port}"}) + "\n")
    half.replace(var_dir / "demo.json")
