"""Bytes to numbered lines, at any chunk boundary and in constant memory."""

from __future__ import annotations

from collections.abc import Iterator

LIMIT = 8192
"""Bytes of one line that are kept: more than any fact needs, and enough for an engine's whole command line."""


class LineCutter:
    """Cuts a stream into lines. A line longer than LIMIT loses its tail, never its number."""

    def __init__(self) -> None:
        self._pending = b""
        self._overlong = False
        self.count = 0

    def feed(self, data: bytes) -> Iterator[tuple[int, str]]:
        """The lines that `data` completes, as (number from 1, text). The rest waits for the next call."""
        start = 0
        while (end := data.find(b"\n", start)) >= 0:
            line = self._pending + data[start:end] if not self._overlong else self._pending
            self._pending, self._overlong = b"", False
            start = end + 1
            self.count += 1
            yield self.count, decode(line)
        self._keep(data[start:])

    def close(self) -> Iterator[tuple[int, str]]:
        """The last line, where the stream ended without a line break."""
        if self._pending:
            line, self._pending, self._overlong = self._pending, b"", False
            self.count += 1
            yield self.count, decode(line)

    def _keep(self, rest: bytes) -> None:
        if self._overlong or not rest:
            return
        room = LIMIT - len(self._pending)
        self._overlong = len(rest) > room
        self._pending += rest[:room]


def decode(line: bytes) -> str:
    """Bytes as text: broken UTF-8 becomes U+FFFD, and never raises."""
    return line[:LIMIT].decode("utf-8", "replace")
