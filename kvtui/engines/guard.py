"""Ties an engine's life to kvtui's: `python guard.py PARENT_PID -- argv...` becomes the engine itself.

On Linux the kernel kills this process when the thread that launched it ends (PR_SET_PDEATHSIG), whatever
ended it, `kill -9` included; the setting survives exec. Elsewhere it only execs. Standard library only, and
nothing of kvtui: it is run as a plain file, before anything else could go wrong.

The *thread* counts, not the process: launch from a thread that lives as long as the run. A wrapper program
must exec the engine: what a wrapper starts as its child ends with `stop`, but not with a `kill -9` of kvtui.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1
CANNOT_RUN = 127


def die_with_parent(parent_pid: int) -> None:
    """Ask the kernel for SIGKILL when the parent ends, and exit at once if it has ended already."""
    if not sys.platform.startswith("linux"):
        return
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) refused")
    if os.getppid() != parent_pid:
        sys.exit(f"the launching process {parent_pid} is gone")


def main(args: list[str]) -> None:
    """Become the program. Exit status 127 with one line when it cannot be run."""
    if len(args) < 3 or args[1] != "--" or not args[0].isdecimal():
        sys.exit("usage: guard PARENT_PID -- PROGRAM [ARGUMENTS...]")
    die_with_parent(int(args[0]))
    program = args[2:]
    try:
        os.execvp(program[0], program)  # noqa: S606 - no shell is the point
    except OSError as error:
        sys.stderr.write(f"cannot run {program[0]}: {error.strerror}\n")
        sys.exit(CANNOT_RUN)


if __name__ == "__main__":
    main(sys.argv[1:])
