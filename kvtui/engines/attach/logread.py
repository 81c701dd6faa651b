"""Reads the start-up part of a log that may be huge, within bounded bytes and seconds."""

from __future__ import annotations

import os
import re
import selectors
import stat
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from kvtui.core.text import clean
from kvtui.engines.attach.logplace import LogPlace
from kvtui.logs.facts import EngineFacts
from kvtui.logs.parser import LogParser

_CHUNK = 1 << 20
_SEARCH = 256 << 20
_HEAD = 8 << 20
_TAIL = 2 << 20
_COMMAND_BYTES = 16 << 20
_OPENING = 1 << 12
_PREFIX = 80
_STARTS = re.compile(
    rb"llama_server: initializing|common_params_print_info: build \d|\bbuild: \d+ \(|main: build = \d|build_info: b\d"
    rb"|vLLM API server version|server config\"? env="
)
_DAEMON = re.compile(rb"server config\"? env=")
_DAEMON_BYTES = 1 << 16
_HINTS = (b"initializing", b"build", b"vLLM API", b"server config")
"""What an engine prints first, by era; `build: ` and its like come before or after `initializing`."""


@dataclass(frozen=True, slots=True)
class LogRead:
    """What a log proves. `parts` are those that were read: (number of the part's first line among the lines read, its
    number in the log; None where it was not counted). `problem` says why nothing, or not everything, was read."""

    facts: EngineFacts
    parts: tuple[tuple[int, int | None], ...] = ((1, 1),)
    problem: str = ""

    @property
    def first_line(self) -> int | None:
        """Where in the log it was begun to read, in lines."""
        return self.parts[0][1]

    @property
    def skipped(self) -> bool:
        """Whether something between was left out."""
        return len(self.parts) > 1

    def line(self, number: int) -> int | None:
        """The number in the log of a line that the facts name."""
        read, stands = next(part for part in reversed(self.parts) if part[0] <= max(number, 1))
        return None if stands is None else stands + number - read


def read_log(
    place: LogPlace, requested: Mapping[str, Any], limit_s: float, *, daemon: bool = False
) -> LogRead:
    """The facts of the newest start in the log at `place`; of a `daemon` that starts engines, its own start and the
    newest engine's. Never raises: `problem` says what went wrong."""
    deadline = time.monotonic() + limit_s
    parser = LogParser(requested)
    if place.path is not None:
        return _read_file(place.path, parser, deadline, _DAEMON if daemon else None)
    if place.command:
        return _read_command(place.command, parser, deadline)
    return LogRead(parser.facts(), problem=place.why)


def _read_file(path: str, parser: LogParser, deadline: float, daemon: re.Pattern[bytes] | None) -> LogRead:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "no such file"
        return LogRead(parser.facts(), problem=f"{clean(path)}: {reason}")
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            return LogRead(parser.facts(), problem=f"{clean(path)}: not a regular file")
        ranges = _ranges(descriptor, status.st_size, deadline, daemon)
        parts, late = _feed(descriptor, ranges, parser, deadline)
    except OSError as error:
        return LogRead(parser.facts(), problem=f"{clean(path)}: {error.strerror}")
    finally:
        os.close(descriptor)
    parser.close()
    return LogRead(parser.facts(), parts, "the log was not read to its end in time" if late else "")


def _feed(
    descriptor: int, ranges: list[tuple[int, int]], parser: LogParser, deadline: float
) -> tuple[tuple[tuple[int, int | None], ...], bool]:
    """Read the ranges; returns where each stands in lines, and whether time was up before the end."""
    parts: list[tuple[int, int | None]] = []
    read, stands, at = 1, 1, 0
    known = True
    for begin, end in ranges:
        skipped = _lines_between(descriptor, at, begin, deadline) if known else None
        known = skipped is not None
        stands += skipped or 0
        parts.append((read, stands if known else None))
        for chunk in _chunks(descriptor, begin, end):
            parser.feed(chunk)
            read += chunk.count(b"\n")
            stands += chunk.count(b"\n")
            if time.monotonic() > deadline:
                return tuple(parts), True
        at = end
    return tuple(parts) or ((1, 1),), False


def _ranges(
    descriptor: int, size: int, deadline: float, daemon: re.Pattern[bytes] | None
) -> list[tuple[int, int]]:
    """What is read: the start of a daemon, the start-up part of the newest engine, the newest lines. Whole lines."""
    start = _start(descriptor, size, deadline, _STARTS)
    own = start if daemon is None else _start(descriptor, size, deadline, daemon)
    if size - own <= _HEAD:
        return [(own, size)]
    wanted = [(own, own + _DAEMON_BYTES)] if own < start else []
    wanted += [(start, start + _HEAD), (size - _TAIL, size)]
    ranges: list[tuple[int, int]] = []
    for begin, end in wanted:
        begin = max(_line_start(descriptor, begin), ranges[-1][1] if ranges else 0)
        end = size if end >= size else _line_start(descriptor, end)
        if ranges and begin == ranges[-1][1]:
            ranges[-1] = (ranges[-1][0], max(end, begin))
        elif begin < end:
            ranges.append((begin, end))
    return ranges


def _start(descriptor: int, size: int, deadline: float, marks: re.Pattern[bytes]) -> int:
    """Where the newest start begins: before the last line that an engine prints first; 0 where none is found."""
    end = size
    while end > 0 and size - end < _SEARCH and time.monotonic() < deadline:
        begin = max(0, end - _CHUNK)
        data = os.pread(descriptor, end - begin + _PREFIX, begin)
        if (last := _last(data, marks)) is not None:
            return _line_start(descriptor, _opening(descriptor, begin + last, marks))
        end = begin
    return _line_start(descriptor, end) if end and size - end >= _SEARCH else 0


def _opening(descriptor: int, last: int, marks: re.Pattern[bytes]) -> int:
    """The first of the opening lines around `last`: they come in one burst."""
    begin = max(0, last - _OPENING)
    data = os.pread(descriptor, last - begin, begin)
    return begin + next((m.start() for m in marks.finditer(data) if _opens(data, m.start())), len(data))


def _last(data: bytes, marks: re.Pattern[bytes]) -> int | None:
    """Where the last opening line's mark stands."""
    if not any(hint in data for hint in _HINTS):
        return None
    found = [m.start() for m in marks.finditer(data) if _opens(data, m.start())]
    return found[-1] if found else None


def _opens(data: bytes, at: int) -> bool:
    """Whether only a prefix stands before it: somebody's prompt may quote such a line."""
    return data.rfind(b"\n", max(0, at - _PREFIX), at) >= 0 or at < _PREFIX


def _line_start(descriptor: int, at: int) -> int:
    begin = max(0, at - _OPENING)
    return begin + os.pread(descriptor, at - begin, begin).rfind(b"\n") + 1


def _lines_between(descriptor: int, at: int, end: int, deadline: float) -> int | None:
    lines = 0
    while at < end:
        if time.monotonic() > deadline:
            return None
        data = os.pread(descriptor, min(_CHUNK, end - at), at)
        if not data:
            return None
        lines += data.count(b"\n")
        at += len(data)
    return lines


def _chunks(descriptor: int, begin: int, end: int) -> Iterator[bytes]:
    while begin < end and (data := os.pread(descriptor, min(1 << 18, end - begin), begin)):
        yield data
        begin += len(data)


def _read_command(command: tuple[str, ...], parser: LogParser, deadline: float) -> LogRead:
    """What `command` prints, its errors among it; it is ended when its time or its bytes are up."""
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, "LC_ALL": "C", "SYSTEMD_COLORS": "0"},
        )
    except OSError as error:
        return LogRead(parser.facts(), problem=f"{command[0]}: {error.strerror}")
    total, first = 0, b""
    with process:
        assert process.stdout is not None
        for chunk in _until(process.stdout.fileno(), deadline):
            first = first or chunk[:400]
            total += len(chunk)
            parser.feed(chunk)
            if total > _COMMAND_BYTES:
                break
        with suppress(OSError):
            process.kill()  # it only prints: nothing is lost
    parser.close()
    facts = parser.facts()
    if facts.engine == "unknown":
        said = clean(first.decode("utf-8", "replace").strip().split("\n", 1)[0], 200)
        return LogRead(
            facts, problem=f"{command[0]} shows no engine's output" + (f": {said}" if said else "")
        )
    return LogRead(facts, problem="the log was not read to its end" if total > _COMMAND_BYTES else "")


def _until(descriptor: int, deadline: float) -> Iterator[bytes]:
    with selectors.DefaultSelector() as selector:
        selector.register(descriptor, selectors.EVENT_READ)
        while (left := deadline - time.monotonic()) > 0 and selector.select(left):
            if not (chunk := os.read(descriptor, 1 << 18)):
                return
            yield chunk
