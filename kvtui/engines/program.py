"""What an engine's program says of itself: `--help`, `--version`."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from threading import Timer

from kvtui.core.errors import StartError

_LIMIT_S = 60.0
_LIMIT_BYTES = 1 << 20


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
        assert process.stdout is not None
        limit = Timer(limit_s, os.killpg, (process.pid, signal.SIGKILL))
        limit.start()
        try:
            answer = process.stdout.read(_LIMIT_BYTES)
        finally:
            in_time = limit.is_alive()
            limit.cancel()
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)  # a wrapper's child too
    if not in_time:
        raise StartError("missing", f"{argv[0]} did not answer {argv[-1]} in {limit_s:.0f} s")
    return answer.decode("utf-8", "replace")
