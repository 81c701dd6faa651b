"""Keeps an engine's raw log from filling the disk: its beginning and its end stay, the middle goes.

While the engine writes, blocks that were read already are given back to the file system (a hole in the file, so that
neither the writer nor a reader notices); when it has ended, the file is put together from its beginning, a line that
says what is missing, and its end. Nothing waits for it, and everything was read before it went.
"""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path

HEAD = 8 << 20
TAIL = 8 << 20
_STEP = 4 << 20
_BLOCK = 1 << 16
_KEEP_SIZE_PUNCH_HOLE = 0x01 | 0x02


class LogSize:
    """Bounds the file at `path`, which somebody else writes. `head` and `tail` are bytes to keep."""

    def __init__(self, path: Path, head: int = HEAD, tail: int = TAIL) -> None:
        self._path = path
        self._head = _rounded(head)
        self._tail = _rounded(tail)
        self._freed = self._head

    def read(self, position: int) -> None:
        """Everything up to `position` was read: free what is neither the beginning nor the present end."""
        end = position // _BLOCK * _BLOCK - self._tail
        if end - self._freed >= _STEP and _punch(self._path, self._freed, end - self._freed):
            self._freed = end

    def close(self, lines: int) -> None:
        """The writer has ended after `lines` lines: make the file as long as what it keeps. OSError is not raised: a
        log that cannot be shortened is still a log."""
        try:
            with self._path.open("r+b") as file:
                size = file.seek(0, os.SEEK_END)
                if size <= self._head + self._tail + _STEP:
                    return
                head = _piece(file.fileno(), 0, self._head)
                head = head[: head.rfind(b"\n") + 1]
                tail = _piece(file.fileno(), size - self._tail, self._tail)
                tail = tail[tail.find(b"\n") + 1 :]
                left = lines - head.count(b"\n") - tail.count(b"\n")
                gone = size - len(head) - len(tail)
                file.seek(len(head))
                file.write(b"[kvtui: %d lines, %d MiB, were read and are not kept]\n" % (left, gone >> 20))
                file.write(tail)
                file.truncate()
        except OSError:
            return


def _rounded(size: int) -> int:
    return max(_BLOCK, size // _BLOCK * _BLOCK)


def _piece(descriptor: int, start: int, length: int) -> bytes:
    return os.pread(descriptor, length, start)


def _punch(path: Path, start: int, length: int) -> bool:
    """Whether the blocks were freed; not every system and file system can."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        descriptor = os.open(path, os.O_WRONLY)
    except OSError:
        return False
    try:
        libc = ctypes.CDLL(None)
        offsets = (ctypes.c_int64(start), ctypes.c_int64(length))
        freed: int = libc.fallocate64(descriptor, ctypes.c_int(_KEEP_SIZE_PUNCH_HOLE), *offsets)
    except AttributeError:  # a C library without it
        return False
    finally:
        os.close(descriptor)
    return freed == 0
