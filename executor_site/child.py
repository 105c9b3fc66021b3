"""The trampoline every child of this product is started through: it ties the child's life to its parent's.

Run as a script (`python -I -S child.py … -- argv`), standard library only: it runs before and outside of
Django. `child_argv` builds that command line. The order inside is the promise: become the user first (a
change of user clears the parent-death signal), then ask for the signal, then look whether the parent died in
between, then exec.

The kernel sends the signal when the *thread* that spawned the child ends, not the process. So spawn from the
main thread, or from a thread that lives as long as the child may.
"""

import argparse
import ctypes  # here, not later: the interpreter's files may be out of reach once the user has changed
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

PR_SET_PDEATHSIG = 1  # linux/prctl.h
PRIVATE_UMASK = 0o077
EXIT_PARENT_GONE = 125
EXIT_CANNOT_START = 126


def child_argv(
    argv: Sequence[str],
    *,
    pdeathsig: signal.Signals,
    uid: int | None = None,
    gid: int | None = None,
    output: Path | None = None,
    cwd: Path | None = None,
    clear_env: bool = False,
) -> list[str]:
    """The command line that runs `argv` as a child of the calling process and dies with it.

    Only the process that called this may spawn it. `output` is opened (append) before the user changes.
    `clear_env` keeps this process's secrets out of a program that has no use for them.
    """
    options = ["--parent", str(os.getpid()), "--pdeathsig", pdeathsig.name.removeprefix("SIG")]
    if uid is not None and gid is not None:
        options += ["--uid", str(uid), "--gid", str(gid)]
    if output is not None:
        options += ["--output", str(output)]
    if cwd is not None:
        options += ["--cwd", str(cwd)]
    if clear_env:
        options += ["--clear-env"]
    return [sys.executable, "-I", "-S", str(Path(__file__).resolve()), *options, "--", *argv]


def _arguments(args: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="child.py", description=__doc__)
    parser.add_argument("--parent", type=int, required=True)
    parser.add_argument("--pdeathsig", required=True, help="INT, TERM, KILL …")
    parser.add_argument("--uid", type=int)
    parser.add_argument("--gid", type=int)
    parser.add_argument("--output")
    parser.add_argument("--cwd")
    parser.add_argument("--clear-env", action="store_true")
    parser.add_argument("argv", nargs="+")
    return parser.parse_args(args)


def _redirect(path: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.close(descriptor)


def _become(uid: int, gid: int) -> None:
    os.setgroups([gid])
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
    os.umask(PRIVATE_UMASK)


def _default_signals() -> None:
    """A shell's background job ignores SIGINT and passes that on; a child must hear what it is told."""
    for number in (
        signal.SIGINT,
        signal.SIGTERM,
        signal.SIGQUIT,
        signal.SIGHUP,
        signal.SIGPIPE,
        signal.SIGCHLD,
    ):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


def _die_with_parent(number: int, parent: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_PDEATHSIG, number, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    if os.getppid() != parent:  # it died before we asked: the signal would never come
        sys.exit(EXIT_PARENT_GONE)


def main(args: Sequence[str]) -> None:
    options = _arguments(args)
    environment = dict(os.environ)
    if options.clear_env:
        environment = {"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"}
    try:
        _default_signals()
        if options.output is not None:
            _redirect(options.output)
        if options.uid is not None:
            _become(options.uid, options.gid)
        _die_with_parent(signal.Signals[f"SIG{options.pdeathsig}"], options.parent)
        if options.cwd is not None:
            os.chdir(options.cwd)
        os.execvpe(options.argv[0], options.argv, environment)
    except OSError as error:
        sys.stderr.write(f"cannot start {options.argv[0]}: {error}\n")
        sys.exit(EXIT_CANNOT_START)


if __name__ == "__main__":
    main(sys.argv[1:])
