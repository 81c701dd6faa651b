"""Turns what probes tell into progress with a rate and the time that remains."""

from __future__ import annotations

import time
from collections.abc import Callable

from kvtui.procedure.live import Progress


class _Pace:
    """How long a probe still takes. It asks one request after the other, each of a prefill and a decode that pass at
    speeds of their own, and a decode is told only when it is over: whole requests are what can be extrapolated.
    """

    def __init__(self, now: float, done: float, total: float) -> None:
        self.total = total
        self.done = done
        self._began, self._base = now, done
        self._asked, self._before = now, done
        self._decoding = False

    def eta(self, now: float, done: float, decoding: bool, rate: float | None) -> float | None:
        """Seconds, None while they cannot be told. Of the first request: those of its prefill at `rate` per second."""
        if self._decoding and not decoding:
            self._asked, self._before = now, done
        self._decoding, self.done = decoding, done
        if self._before > self._base:
            per_unit = (self._asked - self._began) / (self._before - self._base)
            return max(0.0, (self.total - self._before) * per_unit - (now - self._asked))
        return (self.total - done) / rate if rate and not decoding else None


class ProgressMeter:
    """Progress of one run. `jobs` probes make the whole; each reports `done` of `total` in its own unit."""

    def __init__(self, step: int, run: int, jobs: int, tell: Callable[[Progress], None]) -> None:
        self._step, self._run, self._jobs, self._tell = step, run, max(1, jobs), tell
        self._finished = 0
        self._what = ""
        self._began = time.monotonic()
        self._first = 0.0
        self._pace: _Pace | None = None

    def say(self, what: str) -> None:
        """Something without a measure has begun."""
        self._what = what
        self._tell(Progress(self._step, self._run, what, overall=self._overall(0.0)))

    def __call__(self, what: str, done: float, total: float, unit: str) -> None:
        """The shape of kvtui.probes.asking.Progress."""
        now = time.monotonic()
        if what != self._what:
            self._what, self._began, self._first = what, now, done
        elapsed, gained = now - self._began, done - self._first
        rate = gained / elapsed if elapsed > 0.2 and gained > 0 else None
        pace = self._pace
        if pace is None or total != pace.total or done < pace.done:
            pace = self._pace = _Pace(now, done, total)
        eta = pace.eta(now, done, what.endswith(" decode"), rate)
        share = done / total if total else 0.0
        self._tell(
            Progress(self._step, self._run, what, done, total, unit, rate, eta, overall=self._overall(share))
        )

    def job_done(self) -> None:
        """One of the probes is complete."""
        self._finished += 1
        self._pace = None

    def _overall(self, share: float) -> float:
        return min(1.0, (self._finished + share) / self._jobs)
