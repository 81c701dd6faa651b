"""Tells a start that is slow from one that hangs."""

from __future__ import annotations

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
