"""Leaving on time: whatever hangs, the terminal is restored and the process is gone within half a second."""

from __future__ import annotations

import errno
import os
import termios
import threading
import time
from contextlib import suppress
from typing import Any

LIMIT_S = 0.34
RESTORE = (
    b"\x1b[?1000l\x1b[?1003l\x1b[?1015l\x1b[?1006l\x1b[?2004l\x1b[?1004l\x1b[<u\x1b[?7h\x1b[?1049l\x1b[?25h"
)


class Deadline:
    """Armed when the operator (or a signal) ends the app; `disarm` when everything ended by itself.

    Past the limit the process exits without waiting for anybody; the engine follows, because it dies with the
    thread that started it.
    """

    def __init__(self) -> None:
        self._armed_at: float | None = None
        self._done = threading.Event()
        self._attrs = _terminal_attributes()

    def arm(self, status: int) -> None:
        """Start the clock; a second call changes nothing."""
        if self._armed_at is None:
            self._armed_at = time.monotonic()
            threading.Thread(target=self._watch, args=(status,), name="kvtui-deadline", daemon=True).start()

    def left(self) -> float:
        """Seconds until the process would be ended, all of them when the clock does not run."""
        return LIMIT_S if self._armed_at is None else max(0.0, self._armed_at + LIMIT_S - time.monotonic())

    def disarm(self) -> None:
        """Everything has ended in order."""
        self._done.set()

    def _watch(self, status: int) -> None:
        if self._done.wait(LIMIT_S):
            return
        if self._attrs is not None:
            with suppress(termios.error, OSError):
                termios.tcsetattr(0, termios.TCSANOW, self._attrs)
        # A terminal that takes no more output would hold this thread too.
        writer = threading.Thread(target=_restore, daemon=True)
        writer.start()
        writer.join(0.05)
        os._exit(status)


def _restore() -> None:
    with suppress(OSError):
        os.write(2, RESTORE)


def _terminal_attributes() -> list[Any] | None:
    try:
        return termios.tcgetattr(0)
    except termios.error:
        return None


def terminal_gone() -> bool:
    """True when the terminal was closed without a hang-up signal reaching us."""
    try:
        termios.tcgetattr(0)
    except termios.error as error:
        return bool(error.args[0] == errno.EIO)
    return False
