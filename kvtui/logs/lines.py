"""Bytes to numbered lines, at any chunk boundary, in constant memory, and fast over what proves nothing.

A start of an engine is read line by line. Once it has settled (ready or failed), only lines that hold a mark
are read until a trigger announces the next start. Where starts come by the dozen, their lines are held back
unread: the next start supersedes them, or `release` reads them. All decisions fall on whole lines, so that
chunk boundaries change nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass

LIMIT = 8192
"""Bytes of one line that are kept: more than any fact needs, and enough for an engine's whole command line."""
SETTLES = 256 << 10
"""Bytes of a start that are read line by line at least, even where it has settled before."""
LONGEST_START = 4 << 20
"""Bytes after which a start that never settles is read by marks alone."""
READ_WHOLE = 1 << 20
"""Bytes of starts that are read at once; later starts are held back."""
EARLY = 16 << 20
HELD = 1 << 20
"""Bytes of a held start that are kept."""

Line = tuple[int, str]

_NO_FIGURE = re.compile(rb"[0-9]{21,}")
"""More digits than 64 bits have: beyond what rules can turn into numbers, and nothing an engine measured."""


@dataclass(frozen=True, slots=True)
class Marks:
    """Literals: `triggers` begin a start, the others make a single line worth reading.

    `early` are looked for in the first EARLY bytes after a start only: what they mark, an engine says at once
    or over and over.
    """

    triggers: tuple[bytes, ...]
    always: tuple[bytes, ...]
    early: tuple[bytes, ...] = ()


class LineReader:
    """Cuts a stream into lines and leaves out what cannot matter.

    `settled` tells whether the start being read has ended, `marks` what to look for after it. A line longer
    than LIMIT loses its tail, never its number.
    """

    def __init__(self, settled: Callable[[], bool], marks: Callable[[], Marks]) -> None:
        self.count = 0
        self._settled = settled
        self._choose = marks
        self._marks: Marks | None = None
        self._tail = b""
        self._overlong = False
        self._start_bytes = 0
        self._whole_bytes = 0
        self._early_bytes = 0
        self._held: bytearray | None = None
        self._held_from = 0
        self._held_by = b""

    def feed(self, data: bytes) -> Iterator[Line]:
        """The lines worth reading that `data` completes, as (number from 1, text)."""
        first = data.find(b"\n") + 1
        if first == 0:
            self._keep(data)
            return
        if self._tail:
            head = self._tail if self._overlong else self._tail + data[: first - 1]
            self._tail, self._overlong = b"", False
            yield from self._block(head[:LIMIT] + b"\n")
        else:
            first = 0
        end = data.rfind(b"\n") + 1
        self._keep(data[end:])
        yield from self._block(_shortened(data[first:end]))

    def close(self) -> Iterator[Line]:
        """What is held back, and the last line, where the stream ended without a line break."""
        yield from self.release()
        if self._tail:
            line, self._tail, self._overlong = self._tail, b"", False
            self.count += 1
            yield self.count, decode(line)

    def release(self) -> Iterator[Line]:
        """Read the start that is held back, because somebody asks for its facts now."""
        if self._held is None:
            return
        block, self._held = bytes(self._held[: self._held.rfind(b"\n") + 1]), None
        counted, self.count = self.count, self._held_from
        self._begin()
        at = yield from self._whole(block, 0)
        if at < len(block):
            yield from self._marked(block, at, (), self._choose().always)
        self.count = counted

    def _keep(self, rest: bytes) -> None:
        if self._overlong or not rest:
            return
        room = LIMIT - len(self._tail)
        self._overlong = len(rest) > room
        self._tail += rest[:room]

    def _block(self, block: bytes) -> Iterator[Line]:
        at = 0
        while at < len(block):
            if self._held is not None:
                at = self._hold(block, at)
            elif self._marks is None:
                at = yield from self._whole(block, at)
            else:
                at = yield from self._quiet(block, at, self._marks)

    def _whole(self, block: bytes, at: int) -> Generator[Line, None, int]:
        """Line by line until the start has settled; returns where it stopped."""
        while at < len(block):
            end = block.index(b"\n", at)
            line = block[at:end]
            self.count += 1
            self._start_bytes += len(line) + 1
            self._whole_bytes += len(line) + 1
            at = end + 1
            yield self.count, decode(line)
            if self._start_bytes >= SETTLES and (self._settled() or self._start_bytes >= LONGEST_START):
                self._marks = self._choose()
                self._early_bytes = 0
                return at
        return at

    def _quiet(self, block: bytes, at: int, marks: Marks) -> Generator[Line, None, int]:
        """One stretch after a start; where the early ones end, the stretch ends on a line."""
        left = EARLY - self._early_bytes
        if left <= 0:
            return (yield from self._marked(block, at, marks.triggers, marks.always))
        end = block.find(b"\n", at + left) + 1 or len(block)
        stretch = block if at == 0 and end == len(block) else block[at:end]
        done = yield from self._marked(stretch, 0, marks.triggers, (*marks.always, *marks.early))
        self._early_bytes += done
        return at + done

    def _marked(
        self, block: bytes, at: int, triggers: tuple[bytes, ...], marks: tuple[bytes, ...]
    ) -> Generator[Line, None, int]:
        """From mark to mark; returns where a trigger stands, or the block's end."""
        found = {literal: block.find(literal, at) for literal in (*triggers, *marks)}
        while True:
            hit = min((pos for pos in found.values() if pos >= 0), default=None)
            if hit is None:
                self.count += block.count(b"\n", at)
                return len(block)
            start, end = block.rfind(b"\n", 0, hit) + 1, block.index(b"\n", hit)
            line = block[start:end]
            self.count += block.count(b"\n", at, start)
            for trigger in triggers:
                if trigger in line:
                    self._open(trigger)
                    return start
            self.count += 1
            at = end + 1
            yield self.count, decode(line)
            for name, pos in found.items():
                if 0 <= pos < at:
                    found[name] = block.find(name, at)

    def _begin(self) -> None:
        self._start_bytes, self._marks = 0, None

    def _open(self, trigger: bytes) -> None:
        if self._whole_bytes < READ_WHOLE:
            self._begin()
            return
        self._held, self._held_from, self._held_by = bytearray(), self.count, trigger

    def _hold(self, block: bytes, at: int) -> int:
        """Keep the lines of a start unread until the same trigger opens the next one; returns where it stands."""
        held = self._held
        assert held is not None
        search = at if held else block.index(b"\n", at)
        again = block.find(self._held_by, search)
        end = len(block) if again < 0 else block.rfind(b"\n", 0, again) + 1
        if len(held) < HELD:
            held += block[at : min(end, at + HELD - len(held))]
        self.count += block.count(b"\n", at, end)
        if again >= 0:
            self._held, self._held_from = bytearray(), self.count
        return end


def _shortened(block: bytes) -> bytes:
    """`block` with every line cut at LIMIT bytes; as a rule none is longer, and that is found out in long steps."""
    at = 0
    while at + LIMIT < len(block):
        last = block.rfind(b"\n", at, at + LIMIT + 1)
        if last < 0:
            return b"".join(line[:LIMIT] + b"\n" for line in block[:-1].split(b"\n"))
        at = last + 1
    return block


def decode(line: bytes) -> str:
    """Bytes as text: broken UTF-8 becomes U+FFFD, a run of digits that is no figure an ellipsis. Never raises."""
    return _NO_FIGURE.sub(b"\xe2\x80\xa6", line).decode("utf-8", "replace")
