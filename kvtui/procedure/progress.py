"""Turns what probes tell into progress with a rate and the time that remains."""

from __future__ import annotations

import time
from collections.abc import Callable

from kvtui.procedure.live import Progress


class ProgressMeter:
    """Progress of one run. `jobs` probes make the whole; each reports `done` of `total` in its own unit."""

    def __init__(self, step: int, run: int, jobs: int, tell: Callable[[Progress], None]) -> None:
        self._step, self._run, self._jobs, self._tell = step, run, max(1, jobs), tell
        self._finished = 0
        self._what = ""
        self._began = time.monotonic()
        self._first = 0.0

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
        eta = (total - done) / rate if rate else None
        share = done / total if total else 0.0
        self._tell(
            Progress(self._step, self._run, what, done, total, unit, rate, eta, overall=self._overall(share))
        )

    def job_done(self) -> None:
        """One of the probes is complete."""
        self._finished += 1

    def _overall(self, share: float) -> float:
        return min(1.0, (self._finished + share) / self._jobs)
