"""Ends an engine that an earlier kvtui started and could not end."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path

from kvtui.engines.environment import LAUNCHED
from kvtui.gpu.host import process_started

_TERM_S = 5.0
_TOLERANCE_S = 1.5


def end_orphan(pid: int, started: float) -> bool:
    """End process `pid` if it is still the one that began at `started` (seconds since the epoch).

    Returns whether there was one. A pid that belongs to another process by now is left alone, and so is every process
    that no kvtui launched: a session file can be edited, the environment that a process began with cannot.
    """
    if not _is_it(pid, started) or not _is_ours(pid):
        return False
    _signal(pid, signal.SIGTERM)
    deadline = time.monotonic() + _TERM_S
    while _is_it(pid, started) and time.monotonic() < deadline:
        time.sleep(0.05)
    if _is_it(pid, started):
        _signal(pid, signal.SIGKILL)
    return True


def _is_it(pid: int, started: float) -> bool:
    at = process_started(pid)
    return at is not None and abs(at - started) < _TOLERANCE_S


def _is_ours(pid: int) -> bool:
    try:
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:  # another user's, or a system without it: not to be proven
        return False
    return f"{LAUNCHED}=1".encode() in variables


def _signal(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(os.getpgid(pid), number)
