"""The program that Monty's pool spawns: the real binary behind a wrapper that binds and bounds it.

The wrapper makes a worker die with its parent (an orphan in a busy loop spins for ever, notes/monty.md), keeps
it from gaining privileges, bounds its address space and yields the CPU to the web process.
"""

import os
import shlex
import shutil
import stat
from pathlib import Path

import pydantic_monty._binary as monty_binary  # the package's own finder; it has no public name
import structlog

ADDRESS_SPACE_BYTES = 2_000_000_000
"""Backstop behind Monty's own heap limit, which misses big-integer work (notes/monty.md)."""
NICENESS = 5
"""A program in a loop must not slow the server's own answers."""

log = structlog.get_logger(__name__)


def real_binary() -> str:
    return str(monty_binary.find_monty_binary())


def wrapper_script() -> str:
    binary = shlex.quote(real_binary())
    parts: list[str] = []
    if setpriv := shutil.which("setpriv"):
        parts.append(f"{setpriv} --pdeathsig KILL --no-new-privs")
    else:
        log.warning("sandbox_not_bound", missing="setpriv", effect="a busy worker may outlive its parent")
    if prlimit := shutil.which("prlimit"):
        parts.append(f"{prlimit} --as={ADDRESS_SPACE_BYTES} --core=0 --")
    if nice := shutil.which("nice"):
        parts.append(f"{nice} -n {NICENESS}")
    return f'#!/bin/sh\nexec {" ".join(parts)} {binary} "$@"\n'


def worker_path(directory: Path) -> Path:
    """Write the wrapper where it is missing or differs, atomically, and return its path."""
    path = directory / "monty-worker"
    script = wrapper_script()
    if path.exists() and path.read_text() == script and os.access(path, os.X_OK):
        return path
    directory.mkdir(parents=True, exist_ok=True)
    fresh = directory / f".monty-worker.{os.getpid()}"
    fresh.write_text(script)
    fresh.chmod(stat.S_IRWXU | stat.S_IRGRP | stat.S_IXGRP | stat.S_IROTH | stat.S_IXOTH)
    fresh.replace(path)
    return path
