"""Reads an engine's log file while it grows: facts for the run, cleaned lines for the screen."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from threading import Event, Lock, Thread

from kvtui.core.text import clean
from kvtui.engines.logsize import LogSize
from kvtui.logs.facts import EngineFacts
from kvtui.logs.parser import LogParser

_BUSY_S = 0.05
_IDLE_S = 0.25
_BATCH_S = 0.1
_CHUNK = 1 << 18
_ROUND = 1 << 20
_WAITING_LINES = 4096
_LINE_LIMIT = 1 << 16


class LogTail:
    """A thread of its own that follows `path`. `on_log` gets cleaned lines, at most ten batches a second
    unless more lines wait than should be kept.

    The engine writes to the file and never waits for kvtui. `bound` keeps the file from growing without limit: for
    files of our own only. `facts` and `size` may be read from any thread.
    """

    def __init__(
        self, path: Path, on_log: Callable[[list[str]], None], *, bound: LogSize | None = None
    ) -> None:
        self._file = path.open("rb", buffering=0)
        self._last = 0
        self._on_log = on_log
        self._bound = bound
        self._line_breaks = 0
        self._parser = LogParser()
        self._lock = Lock()
        self._ended = Event()
        self._size = 0
        self._thread = Thread(target=self._follow, name="engine-log", daemon=True)
        self._thread.start()

    @property
    def size(self) -> int:
        """Bytes read so far."""
        return self._size

    def facts(self) -> EngineFacts:
        """What the log proves up to now."""
        with self._lock:
            return self._parser.facts()

    def close(self) -> None:
        """Read what is left, then end. The engine must have ended before."""
        if not self._ended.is_set():
            # What a child that escaped goes on printing is not waited for.
            self._last = os.fstat(self._file.fileno()).st_size
            self._ended.set()
            self._thread.join()
            if self._bound is not None:
                self._bound.close(self._line_breaks)
        self._thread.join()

    def _follow(self) -> None:
        lines = _Lines()
        due = 0.0
        wait = _BUSY_S
        try:
            while True:
                last_round = self._ended.is_set()
                grew = self._read(lines)
                wait = _BUSY_S if grew else min(_IDLE_S, wait * 1.2)
                flood = len(lines.ready) > _WAITING_LINES
                if lines.ready and (last_round or flood or time.monotonic() >= due):
                    self._on_log(lines.take())
                    due = time.monotonic() + _BATCH_S
                if last_round and (self._size >= self._last or not grew):
                    break
                if grew < _ROUND:
                    self._ended.wait(wait)
            with self._lock:
                self._parser.close()
            if rest := lines.close():
                self._on_log(rest)
        finally:
            self._file.close()

    def _read(self, lines: _Lines) -> int:
        """Read what is there, as far as one round goes: an engine may print faster than it is read."""
        grew = 0
        while grew < _ROUND and (chunk := os.read(self._file.fileno(), _CHUNK)):
            grew += len(chunk)
            self._size += len(chunk)
            self._line_breaks += chunk.count(b"\n")
            with self._lock:
                self._parser.feed(chunk)
            lines.feed(chunk)
        if self._bound is not None and grew:
            self._bound.read(self._size)
        return grew


class _Lines:
    """Cuts bytes into cleaned lines; an unfinished line waits, up to a limit."""

    def __init__(self) -> None:
        self._pending = b""
        self.ready: list[str] = []

    def feed(self, chunk: bytes) -> None:
        *whole, self._pending = (self._pending + chunk).split(b"\n")
        self.ready += map(_line, whole)
        if len(self._pending) > _LINE_LIMIT:
            self.ready.append(_line(self._pending))
            self._pending = b""

    def take(self) -> list[str]:
        ready, self.ready = self.ready, []
        return ready

    def close(self) -> list[str]:
        if self._pending:
            self.ready.append(_line(self._pending))
        return self.take()


def _line(raw: bytes) -> str:
    return clean(raw[:_LINE_LIMIT].decode("utf-8", "replace").rstrip())
