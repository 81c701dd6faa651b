"""The remaining time that a run tells: what is extrapolated, and what is not claimed."""

from __future__ import annotations

import pytest

from kvtui.procedure.live import Progress
from kvtui.procedure.progress import ProgressMeter


class Told:
    """A meter on a clock that is set by hand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        self.said: list[Progress] = []
        monkeypatch.setattr("kvtui.procedure.progress.time.monotonic", lambda: self.now)
        self.meter = ProgressMeter(1, 1, 2, self.said.append)

    def at(self, now: float, what: str, done: float, total: float = 864) -> Progress:
        self.now = now
        self.meter(what, done, total, "tokens")
        return self.said[-1]


def test_three_requests_of_a_fast_prefill_and_a_slow_decode(monkeypatch: pytest.MonkeyPatch) -> None:
    told = Told(monkeypatch)
    assert told.at(0, "speed prefill", 0).eta_s is None
    assert told.at(2, "speed prefill", 128).eta_s == pytest.approx((864 - 128) / 64), "all that is known"
    told.at(4, "speed decode", 256)
    assert told.at(12, "speed decode", 288).eta_s is None, (
        "decode is slower than what was seen, none knows how much"
    )
    assert told.at(12, "speed prefill", 288).eta_s == pytest.approx(24)
    assert told.at(14, "speed prefill", 416).eta_s == pytest.approx(22)
    assert told.at(16, "speed decode", 544).eta_s == pytest.approx(20)
    assert told.at(24, "speed prefill", 576).eta_s == pytest.approx(12)
    assert told.at(40, "speed decode", 832).eta_s == 0.0, "late, and not negative"


def test_another_probe_starts_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    told = Told(monkeypatch)
    for now, what, done in (
        (0, "a prefill", 0),
        (1, "a decode", 400),
        (9, "a decode", 432),
        (9, "a prefill", 432),
    ):
        told.at(now, what, done)
    assert told.said[-1].eta_s is not None
    told.meter.job_done()
    assert told.at(20, "recall prefill", 0).eta_s is None
    assert told.at(20, "recall prefill", 0).overall == 0.5
