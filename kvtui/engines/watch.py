"""Tells a start that is slow from one that hangs, and time that passed from time in which kvtui stood still."""

from __future__ import annotations

import time
from collections.abc import Hashable


class Quiet:
    """Since when nothing has changed: no log line, no CPU time, no memory touched."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._activity: Hashable = None
        self._since = 0.0

    def too_long(self, now: float, activity: Hashable) -> bool:
        """True when `activity` has been the same for longer than the limit. `now` is seconds, monotonic."""
        if activity != self._activity:
            self._activity, self._since = activity, now
        return now - self._since > self._limit_s


class Stopwatch:
    """Seconds since its making in which kvtui ran. It is to be asked often: more than `longest_tick_s` between two
    questions means that kvtui was suspended, and nobody has been waiting for an engine."""

    def __init__(self, longest_tick_s: float) -> None:
        self._longest_tick_s = longest_tick_s
        self._asked = time.monotonic()
        self._seconds = 0.0

    def seconds(self) -> float:
        """Up to now."""
        now = time.monotonic()
        self._seconds += min(now - self._asked, self._longest_tick_s)
        self._asked = now
        return self._seconds
