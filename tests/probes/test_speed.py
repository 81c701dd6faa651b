"""Speed: the figures are medians of what was really processed, and a note says where they mean less."""

from __future__ import annotations

from dataclasses import replace
from threading import Event

import pytest

from kvtui.core.errors import Cancelled, RequestError
from kvtui.probes.prompt import raw_style
from kvtui.probes.results import Timing
from kvtui.probes.speed import clocks_apart, measure_speed, shallow_depth, summarise
from tests.probes.fake import DECODE_TPS, PROMPT_TPS, FakeEngine, Watcher

TIMING = Timing(1000, 0, 32, 500.0, 20.0, 2.0, 3.6, 2.0, 1.6)


def test_it_processes_exactly_the_depth_and_decodes_past_the_end_of_text() -> None:
    ask, watcher = FakeEngine(), Watcher()
    result = measure_speed(ask, raw_style(ask), 1000, 32, 3, progress=watcher)
    assert [len(r.prompt) for r in ask.requests] == [1000, 1000, 1000]
    assert all(r.ignore_eos and not r.cache_prompt and r.n_predict == 32 for r in ask.requests)
    assert (result.prompt_tps, result.decode_tps) == (PROMPT_TPS, DECODE_TPS)
    assert result.first_token_s == 1.0
    assert result.note == ""
    assert len(result.repeats) == 3
    watcher.check()


def test_no_repeat_finds_the_prompt_of_another_in_a_cache_that_cannot_be_switched_off() -> None:
    ask = FakeEngine(ignores_cache_prompt=True)
    result = measure_speed(ask, raw_style(ask), 1000, 8, 3)
    assert max(t.cached_tokens for t in result.repeats) <= 1
    assert result.note == ""


def test_progress_says_prefill_while_the_prompt_is_processed_and_decode_after() -> None:
    ask, watcher = FakeEngine(), Watcher()
    measure_speed(ask, raw_style(ask), 600, 8, 1, progress=watcher)
    assert [(what, done) for what, done, *_ in watcher.told] == [
        ("speed prefill", 0),
        ("speed prefill", 256),
        ("speed prefill", 512),
        ("speed decode", 600),
        ("speed decode", 608),
    ]


def test_medians_not_means() -> None:
    timings = [replace(TIMING, prompt_tps=p, decode_tps=d, first_token_s=f) for p, d, f in
               ((100.0, 1.0, 9.0), (500.0, 20.0, 2.0), (510.0, 21.0, 1.9))]  # fmt: skip
    result = summarise(1000, 32, timings)
    assert (result.prompt_tps, result.decode_tps, result.first_token_s) == (500.0, 20.0, 2.0)


def test_cached_requests_count_for_decode_alone() -> None:
    cached = replace(
        TIMING,
        cached_tokens=999,
        prompt_tps=9.0,
        prompt_s=0.1,
        first_token_s=0.1,
        decode_tps=30.0,
        wall_s=1.7,
    )
    result = summarise(1000, 32, [TIMING, cached])
    assert (result.prompt_tps, result.first_token_s, result.decode_tps) == (500.0, 2.0, 25.0)
    assert result.note == ""


def test_when_every_request_was_cached_the_note_says_so_and_no_first_token_time_is_given() -> None:
    result = summarise(1000, 32, [replace(TIMING, cached_tokens=900)])
    assert result.first_token_s is None
    assert result.note == "up to 900 of 1,000 prompt tokens came from the prompt cache"


def test_a_handful_of_cached_tokens_is_no_matter() -> None:
    assert summarise(1000, 32, [replace(TIMING, cached_tokens=10)]).note == ""


@pytest.mark.parametrize(
    ("timing", "note"),
    [
        (replace(TIMING, prompt_tokens=998), "the engine counted 998 prompt tokens, not 1,000"),
        (replace(TIMING, generated_tokens=5), "decode ended after 5 of 32 tokens"),
    ],
)
def test_what_the_engine_did_not_do_as_asked_is_noted(timing: Timing, note: str) -> None:
    assert summarise(1000, 32, [timing]).note == note


def test_the_depth_is_what_the_engine_counted() -> None:
    counted = replace(TIMING, prompt_tokens=998)
    assert summarise(1000, 32, [counted, counted]).depth == 998
    assert summarise(1000, 32, [counted, TIMING]).depth == 1000


def test_unknown_rates_are_none() -> None:
    unknown = replace(TIMING, prompt_tps=None, decode_tps=None, first_token_s=None)
    result = summarise(1000, 32, [unknown])
    assert (result.prompt_tps, result.decode_tps, result.first_token_s) == (None, None, None)


def test_a_refusal_and_a_cancellation_reach_the_caller() -> None:
    ask = FakeEngine(slot=500)
    with pytest.raises(RequestError, match="exceeds"):
        measure_speed(ask, raw_style(ask), 1000, 8, 1)
    stopped = Event()
    stopped.set()
    with pytest.raises(Cancelled):
        measure_speed(FakeEngine(), raw_style(ask), 100, 8, 1, cancel=stopped)


@pytest.mark.parametrize(
    ("prompt_s", "decode_s", "note"),
    [
        (2.0, 1.6, ""),
        (1.95, 1.55, ""),
        (2.15, 1.75, ""),
        (1.5, 1.6, "prefill took 1.50 s by the engine's clock and 2.00 s by ours"),
        (2.0, 3.2, "decode took 3.20 s by the engine's clock and 1.60 s by ours"),
    ],
)
def test_the_engines_clock_is_held_against_ours(prompt_s: float, decode_s: float, note: str) -> None:
    timing = replace(TIMING, prompt_s=prompt_s, decode_s=decode_s)
    assert clocks_apart([timing]) == note
    assert summarise(1000, 32, [timing]).note == note


def test_one_request_read_late_is_no_disagreement_and_small_times_are_not_compared() -> None:
    late = replace(TIMING, wall_s=9.0)
    assert clocks_apart([TIMING, late, TIMING]) == ""
    assert clocks_apart([late, late, TIMING]) != ""
    assert clocks_apart([replace(TIMING, prompt_s=0.01, first_token_s=0.09, decode_s=1.6, wall_s=1.7)]) == ""
    assert clocks_apart([]) == ""


def test_the_spread_is_from_slowest_to_fastest() -> None:
    timings = [replace(TIMING, decode_tps=tps, prompt_tps=10 * tps) for tps in (21.0, 19.0, 20.0)]
    result = summarise(
        1000, 32, [*timings, replace(TIMING, cached_tokens=900, prompt_tps=1.0, decode_tps=18.0)]
    )
    assert (result.decode_range, result.prompt_range) == ((18.0, 21.0), (190.0, 210.0))
    assert summarise(1000, 32, [TIMING]).decode_range is None


def test_a_decode_of_no_length_is_no_rate() -> None:
    short = replace(TIMING, decode_s=0.05, wall_s=2.05)
    assert summarise(1000, 32, [short]).note == "decode lasted 0.05 s, too short for a rate to rely upon"


@pytest.mark.parametrize(("depth", "shallow"), [(0, None), (2047, None), (2048, 512), (131072, 512)])
def test_depth_is_held_against_an_empty_context_where_they_differ(depth: int, shallow: int | None) -> None:
    assert shallow_depth(depth) == shallow
