"""What an engine's program says of itself: `--help`, `--version`."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress

from kvtui.core.errors import StartError

_LIMIT_S = 60.0
_LIMIT_BYTES = 1 << 20
_POLL_S = 0.05


def ask_program(argv: Sequence[str], limit_s: float = _LIMIT_S) -> str:
    """Everything that the program prints, at most a MiB. Raises StartError (missing): it cannot be run, or goes on."""
    try:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    except OSError as error:
        raise StartError("missing", f"{argv[0]}: {error.strerror or error}") from error
    with process:
        try:
            answer, in_time = _said(process, limit_s)
        finally:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)  # a wrapper's child too
    if not in_time:
        raise StartError("missing", f"{argv[0]} did not answer {argv[-1]} in {limit_s:.0f} s")
    return answer.decode("utf-8", "replace")


def _said(process: subprocess.Popen[bytes], limit_s: float) -> tuple[bytes, bool]:
    """What it prints until it ends, and whether that was in time. What it left running may hold its output open."""
    assert process.stdout is not None
    deadline = time.monotonic() + limit_s
    answer = b""
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while (left := deadline - time.monotonic()) > 0:
            ended = process.poll() is not None
            if selector.select(0 if ended else min(left, _POLL_S)):
                chunk = os.read(process.stdout.fileno(), _LIMIT_BYTES - len(answer))
                answer += chunk
                if not chunk or len(answer) >= _LIMIT_BYTES:
                    return answer, True
            elif ended:
                return answer, True
    return answer, False
