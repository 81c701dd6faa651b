from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvtui.gpu.samples import PHASES, Sample
from kvtui.session import events as ev
from kvtui.session.state import fold
from kvtui.tui import files
from kvtui.tui.live import BUCKETS, Live, Trace, trace_of, trace_of_series
from tests.tui import story

VALUES = st.lists(st.one_of(st.none(), st.integers(0, 1 << 40)), max_size=120)


def traced(values: list[int | None], every: float = 0.1) -> Trace:
    trace = Trace(host=True)
    for n, value in enumerate(values):
        trace.add(Sample(5.0 + n * every, PHASES[n * 6 // max(len(values), 1)], value, None, None, "rss"))
    return trace


@given(VALUES, st.sampled_from([0.05, 0.1, 3.0, 40.0]), st.integers(1, 80))
def test_the_chart_keeps_the_exact_peak_in_any_number_of_columns(
    values: list[int | None], every: float, count: int
) -> None:
    trace = traced(values, every)
    known = [v for v in values if v is not None]
    assert trace.peak == max(known, default=None)
    assert len(trace.buckets) <= BUCKETS
    shown = trace.columns(count)
    assert len(shown) <= count
    assert max((b.value for b in shown if b.value is not None), default=None) == max(known, default=None)


def test_a_long_run_doubles_its_spans_and_earlier_columns_stay() -> None:
    trace = Trace(host=True)
    for n in range(20_000):
        trace.add(Sample(n / 10, "decode", n, None, None, "rss"))
    assert len(trace.buckets) <= BUCKETS
    assert trace.width_s == 4.0
    before = trace.columns(60)
    trace.add(Sample(2000.1, "decode", 5, None, None, "rss"))
    assert trace.columns(60)[: len(before) - 1] == before[:-1]


def test_a_silent_sampler_leaves_a_gap_and_a_late_one_does_not() -> None:
    trace = Trace(host=True)
    for t, value in ((0.0, 10), (1.6, 30), (6.1, 40)):
        trace.add(Sample(t, "load", value, None, None, "rss"))
    values = [b.value for b in trace.buckets]
    assert values[:4] == [10, 10, 10, 30]
    assert values[4:12] == [None] * 8
    assert values[12:] == [40]


def test_an_unreadable_sample_is_a_gap_and_not_a_zero() -> None:
    trace = traced([5, None, None, 7], every=0.5)
    assert [b.value for b in trace.buckets] == [5, None, None, 7]


def test_a_recorded_series_has_no_gaps_from_its_thinning() -> None:
    series = [Sample(n * 1.3, "decode", 5, None, None, "rss") for n in range(100)]
    assert all(b.value == 5 for b in trace_of_series(series, True).buckets)


def test_on_a_gpu_the_chart_shows_the_whole_device() -> None:
    sample = Sample(0, "load", 3, 7, None, "process")
    assert Trace(host=False).value_of(sample) == 7
    assert Trace(host=True).value_of(sample) == 3


def test_a_new_run_starts_a_new_chart_and_a_new_log() -> None:
    live = Live()
    events = story.up_to(story.ev.EngineReady)
    live.take_events(events, fold(events))
    live.take_log(["a", "b"])
    live.take_samples(story.samples()[:50])
    assert live.log_total == 2
    more = story.up_to(story.ev.RunStarted, 2)
    live.take_events(more[len(events) :], fold(more))
    assert (live.log_total, list(live.log), live.trace.peak, live.log_run) == (0, [], None, 2)


def test_a_resumed_session_shows_the_last_runs_memory_at_once() -> None:
    state = fold(story.up_to(story.ev.RunFinished))
    live = Live()
    live.take_events([], state)
    assert live.trace.peak == trace_of(state.runs[-1], True).peak
    assert live.trace.peak is not None


def test_the_command_is_the_verdicts_then_the_next_then_the_runs() -> None:
    live = Live()
    assert live.command() == ("", "")
    live.take_events([], fold(story.up_to(story.ev.EngineReady)))
    assert live.command()[1] == "command of run 1"
    assert live.command()[0].startswith("llama-server -m ")
    live.take_events([], fold(story.story()))
    assert live.command()[1] == "final command"


@pytest.mark.parametrize(
    ("decided", "unattended", "paused"),
    [
        ((), False, False),
        (("operator", "operator"), False, False),
        (("unattended", "unattended"), True, False),
        (("unattended", "operator"), True, True),
    ],
)
def test_a_resumed_session_goes_on_as_it_was_left(
    decided: tuple[str, ...], unattended: bool, paused: bool
) -> None:
    events = [e for e in story.up_to(ev.RunStarted) if not isinstance(e, ev.Decided)]
    events += [ev.Decided(story.AT, 1, "accept", by) for by in decided]  # type: ignore[arg-type]
    live = Live()
    live.take_events((), fold(events))
    assert (live.unattended, live.paused) == (unattended, paused)


def test_a_path_under_the_home_folder_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/op")
    assert files.tilde(Path("/home/op/.local/s/command.sh")) == "~/.local/s/command.sh"
    assert files.tilde(Path("/home/operator/command.sh")) == "/home/operator/command.sh"
