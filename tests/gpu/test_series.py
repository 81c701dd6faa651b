"""Peaks are exact and the series is thin, whatever was sampled."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from kvtui.gpu.samples import PHASES, Sample
from kvtui.gpu.series import MAX_POINTS, Series

bytes_or_none = st.none() | st.integers(0, 1 << 40)
readings = st.lists(
    st.tuples(st.sampled_from(PHASES), bytes_or_none, bytes_or_none, bytes_or_none), max_size=60
)


def samples_of(rows: list[tuple[str, int | None, int | None, int | None]]) -> list[Sample]:
    return [
        Sample(float(t), phase, engine, used, hosted, None)  # type: ignore[arg-type]
        for t, (phase, engine, used, hosted) in enumerate(rows)
    ]


@given(readings, st.integers(1, 40))
def test_no_peak_is_ever_lost(rows: list[tuple[str, int | None, int | None, int | None]], times: int) -> None:
    samples = samples_of(rows * times)
    series = Series()
    for sample in samples:
        series.add(sample)
    points = series.points()
    assert len(points) <= MAX_POINTS
    assert [p.t for p in points] == sorted({p.t for p in points})
    assert set(points) <= set(samples)
    peaks = {peak.phase: peak for peak in series.peaks()}
    assert set(peaks) == {sample.phase for sample in samples}
    for phase, peak in peaks.items():
        of_phase = [sample for sample in samples if sample.phase == phase]
        assert peak.n_samples == len(of_phase)
        for measure in ("engine_bytes", "used_bytes", "host_bytes"):
            known = [v for sample in of_phase if (v := getattr(sample, measure)) is not None]
            highest = max(known, default=None)
            assert getattr(peak, measure) == highest
            in_series = [v for p in points if p.phase == phase and (v := getattr(p, measure)) is not None]
            assert max(in_series, default=None) == highest


def test_memory_is_bounded_over_an_hour() -> None:
    series = Series()
    for t in range(10 * 60 * 60):
        engine = {777: 1 << 30, 12_346: 1 << 29}.get(t, 1 << 20)
        series.add(Sample(t / 10, "decode", engine, 5, None, "rss"))
    assert len(series._points) < 2 * MAX_POINTS
    points = series.points()
    assert points[0].t < 40
    assert points[-1].t > 60 * 60 - 40
    peak = series.peaks()[0]
    assert (peak.engine_bytes, peak.at) == (1 << 30, 77.7)
    assert {77.7, 1234.6} <= {p.t for p in points}, "the lower of two spikes is kept too"
    assert len(points) > MAX_POINTS / 3
    assert max(b.t - a.t for a, b in pairwise(points)) < 60, "spread over the whole hour"


def test_time_in_a_phase_adds_up() -> None:
    series = Series()
    series.add(Sample(0.0, "prefill", 10, None, None, "rss"))
    series.add(Sample(1.0, "decode", 30, None, None, "rss"))
    series.spent("prefill", 1.0)
    series.spent("decode", 0.25)
    series.spent("prefill", 0.5)
    assert [(p.phase, p.engine_bytes, p.seconds) for p in series.peaks()] == [
        ("prefill", 10, 1.5),
        ("decode", 30, 0.25),
    ]


def test_a_phase_with_time_but_no_sample_is_not_reported() -> None:
    series = Series()
    series.spent("load", 3.0)
    assert series.peaks() == ()
    assert series.points() == ()
