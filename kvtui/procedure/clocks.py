"""Watches time itself during a run: whether kvtui stood still, whether the box slept, whether its clock was set."""

from __future__ import annotations

import time
from dataclasses import dataclass
from threading import Event, Thread
from types import TracebackType
from typing import Self

from kvtui.core.findings import Evidence, Finding
from kvtui.core.units import duration

TICK_S = 0.5
STOOD_STILL_S = 5.0
DRIFT_S = 2.0


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


def clock_findings(seen: Disturbed) -> tuple[Finding, ...]:
    """What of it an operator should know."""
    found = []
    if seen.stood_still_s > STOOD_STILL_S:
        found.append(
            Finding(
                "kvtui-stood-still",
                "warning",
                f"kvtui did not run for {duration(seen.stood_still_s)}",
                "it was suspended (Ctrl+Z, SIGSTOP) or the box was too busy; the engine went on. Peaks of that time"
                " were not sampled, and a first token that came then is timed too late",
                "the same run again; tmux keeps a session running when its terminal goes",
                (Evidence(None, f"two ticks of {TICK_S} s were {seen.stood_still_s:.1f} s apart"),),
            )
        )
    if seen.slept_s > DRIFT_S:
        found.append(
            Finding(
                "box-slept",
                "warning",
                f"The box slept for {duration(seen.slept_s)} during this run",
                "the GPU loses its clocks, and maybe its memory, when the box sleeps",
                "the same run again with sleep inhibited: systemd-inhibit kvtui ..",
                (Evidence(None, f"the clock that counts sleep went {seen.slept_s:.1f} s further"),),
            )
        )
    if abs(seen.set_by_s) > DRIFT_S:
        found.append(
            Finding(
                "clock-jumped",
                "info",
                f"The clock was set {'forward' if seen.set_by_s > 0 else 'back'} by {duration(abs(seen.set_by_s))}",
                "times of day in the record are off by that much; durations and speeds are not: they do not use it",
                "",
                (Evidence(None, f"calendar time changed {seen.set_by_s:+.1f} s against time passed"),),
            )
        )
    return tuple(found)


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
