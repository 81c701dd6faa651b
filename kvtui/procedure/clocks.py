"""Watches time itself during a run: whether kvtui stood still, whether the box slept, whether its clock was set."""

from __future__ import annotations

import time
from dataclasses import dataclass
from threading import Event, Thread
from types import TracebackType
from typing import Self

TICK_S = 0.5


@dataclass(frozen=True, slots=True)
class Reading:
    """Three clocks at one moment, in seconds: one that stands while the box sleeps, one that does not, and the
    calendar's."""

    running: float
    awake: float
    calendar: float


@dataclass(frozen=True, slots=True)
class Disturbed:
    """Seconds: the longest time in which kvtui did not run, the time the box slept, and by how much the calendar's
    clock was set (negative: back)."""

    stood_still_s: float = 0.0
    slept_s: float = 0.0
    set_by_s: float = 0.0


def disturbed(first: Reading, last: Reading, longest_s: float) -> Disturbed:
    """What the first and the last reading and the longest time between two readings show. Pure."""
    ran, passed = last.running - first.running, last.awake - first.awake
    return Disturbed(longest_s, passed - ran, (last.calendar - first.calendar) - passed)


class ClockWatch:
    """Reads the clocks twice a second while its `with` block runs; `seen` tells what happened."""

    def __init__(self) -> None:
        self._first = self._last = _read()
        self._longest = 0.0
        self._done = Event()
        self._thread = Thread(target=self._watch, name="clocks", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        self._thread.join()

    def seen(self) -> Disturbed:
        """Up to the last reading."""
        return disturbed(self._first, self._last, self._longest)

    def _watch(self) -> None:
        while True:
            done = self._done.wait(TICK_S)
            now = _read()
            self._longest = max(self._longest, now.running - self._last.running)
            self._last = now
            if done:
                return


def _read() -> Reading:
    running = time.monotonic()
    awake = time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else running
    return Reading(running, awake, time.time())
