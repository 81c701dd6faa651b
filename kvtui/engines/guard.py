"""Ties an engine's life to kvtui's: `python guard.py FD [--then JSON] -- argv...` runs the engine and watches.

FD is one end of a socket pair: the guard writes the engine's process id to it, and its end of file means that
kvtui is gone, whatever ended it, `kill -9` included. Then, or when the engine has ended, everything that the engine
started is ended as well: on Linux the guard adopts what was left by its parent (PR_SET_CHILD_SUBREAPER), so that a
wrapper that does not exec, or a child in a session of its own, does not get away. TERM goes on to the engine. The
guard ends as the engine ended: same status, same signal. `--then` is a command (a JSON list) to run last, for
an engine that is no descendant, such as a container.

Standard library only, and nothing of kvtui: it is run as a plain file, before anything else could go wrong.
"""

from __future__ import annotations

import ctypes
import os
import resource
import select
import signal
import sys
import time
from contextlib import suppress

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_LINUX = sys.platform.startswith("linux")
_GRACE_S = 3.0
_SWEEPS = 250
_SWEEP_S = 0.02
_THEN_S = 10.0
CANNOT_RUN = 127


def main(args: list[str]) -> None:
    """Run the program until it or kvtui ends. Does not return."""
    then: list[str] = []
    if args[1:2] == ["--then"] and len(args) > 3:
        import json

        then = json.loads(args[2])
        args = [args[0], *args[3:]]
    if len(args) < 3 or args[1] != "--" or not args[0].isdecimal():
        sys.exit("usage: guard FD [--then JSON] -- PROGRAM [ARGUMENTS...]")
    lifeline = int(args[0])
    os.set_inheritable(lifeline, False)
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    woken = _wake_on((signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP))
    me, engine = os.getpid(), os.fork()
    if engine == 0:
        _become(args[2:], me)
    with suppress(OSError):
        os.write(lifeline, b"%d\n" % engine)
    status = _watch(engine, lifeline, woken)
    _sweep(engine)
    if then:
        _finally(then)
    _end_like(status)


def _prctl(option: int, value: int) -> None:
    if _LINUX:
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _wake_on(numbers: tuple[signal.Signals, ...]) -> int:
    """A descriptor that gets a byte, the signal's number, for each of these signals."""
    woken, wake = os.pipe()
    for descriptor in (woken, wake):
        os.set_blocking(descriptor, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    for number in numbers:
        signal.signal(number, lambda *_: None)
    return woken


def _become(program: list[str], guard: int) -> None:
    """The child: a process group of its own, that the kernel kills should the guard be killed. Then the program."""
    os.setsid()
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != guard:
        os._exit(CANNOT_RUN)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them, and what is ignored survives exec
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvp(program[0], program)  # noqa: S606 - no shell is the point
    except OSError as error:
        os.write(2, f"cannot run {program[0]}: {error.strerror}\n".encode("utf-8", "surrogateescape"))
    os._exit(CANNOT_RUN)


def _watch(engine: int, lifeline: int, woken: int) -> int:
    """The engine's status, as `waitpid` gives it."""
    watched = [lifeline, woken]
    asked, kill_at = False, float("inf")
    while True:
        pid, status = os.waitpid(engine, os.WNOHANG)
        if pid:
            return status
        now = time.monotonic()
        if now >= kill_at:
            _signal_group(engine, signal.SIGKILL)
            kill_at = float("inf")
        ready, _, _ = select.select(watched, [], [], max(0.0, kill_at - now) if kill_at < 1e300 else None)
        if woken in ready and set(os.read(woken, 512)) & {signal.SIGTERM, signal.SIGINT, signal.SIGHUP}:
            _signal_group(engine, signal.SIGTERM)
            asked = True
        if lifeline in ready and not _read(lifeline):
            watched.remove(lifeline)
            if not asked:
                _signal_group(engine, signal.SIGTERM)
            kill_at = time.monotonic() + (0.0 if asked else _GRACE_S)


def _read(lifeline: int) -> bytes:
    try:
        return os.read(lifeline, 64)
    except OSError:
        return b""


def _signal_group(group: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def _sweep(group: int) -> None:
    """KILL what the engine left behind, until the guard has no descendants."""
    if not _LINUX:
        _signal_group(group, signal.SIGKILL)
    for _ in range(_SWEEPS):
        for pid in _descendants(os.getpid()):
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(_SWEEP_S)


def _descendants(root: int) -> list[int]:
    children: dict[int, list[int]] = {}
    with suppress(OSError):
        for name in os.listdir("/proc"):
            with suppress(OSError, ValueError, IndexError):
                pid = int(name)
                with open(f"/proc/{pid}/stat", "rb") as file:
                    parent = int(file.read().rpartition(b")")[2].split()[1])
                children.setdefault(parent, []).append(pid)
    found, waiting = [], [root]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += below
    return found


def _finally(command: list[str]) -> None:
    import subprocess

    with suppress(OSError, subprocess.SubprocessError):
        subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_THEN_S,
            check=False,
        )


def _end_like(status: int) -> None:
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with suppress(OSError, ValueError):  # KILL cannot be set and need not be
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
        time.sleep(1)
    os._exit(os.waitstatus_to_exitcode(status) & 0xFF)


if __name__ == "__main__":
    main(sys.argv[1:])
