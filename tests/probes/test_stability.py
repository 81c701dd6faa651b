"""Stability: the same load again and again, what fails in it, and whether memory grows."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvtui.core.errors import EngineGone, RequestError
from kvtui.probes.prompt import raw_style
from kvtui.probes.stability import measure_stability, slope_bytes, stability_depth
from tests.probes.fake import FakeEngine, Watcher

MIB = 1 << 20


def levels(*values: int | None) -> Iterator[int | None]:
    return iter(values)


def test_every_request_is_new_and_nearly_fills_the_slot() -> None:
    ask, watcher, told = FakeEngine(slot=1024), Watcher(), levels(100 * MIB, 110 * MIB, 110 * MIB, 110 * MIB)
    depth = stability_depth(1024, 32)
    result = measure_stability(ask, raw_style(ask), depth, 32, 3, lambda: next(told), watcher)
    assert depth + 32 == int(1024 * 0.95)
    assert [len(r.prompt) for r in ask.requests] == [depth] * 3
    assert not any(r.cache_prompt for r in ask.requests)
    assert len({tuple(r.prompt[:40]) for r in ask.requests}) == 3
    assert (result.asked, result.failed, result.start_bytes) == (3, 0, 100 * MIB)
    assert [r.memory_bytes for r in result.requests] == [110 * MIB] * 3
    assert [r.timing.generated_tokens for r in result.requests if r.timing] == [32] * 3
    watcher.check()


def test_a_refused_request_is_kept_and_an_engine_that_is_gone_ends_it() -> None:
    ends: list[Exception | None] = [None, RequestError("busy"), EngineGone("it died"), None]

    def before() -> None:
        error = ends.pop(0)
        if error is not None:
            raise error

    ask = FakeEngine(before_answer=before)
    result = measure_stability(ask, raw_style(ask), 400, 8, 4, lambda: 1)
    assert [(r.error, r.memory_bytes, r.timing is None) for r in result.requests] == [
        ("", 1, False),
        ("busy", 1, True),
        ("it died", None, True),
    ]
    assert (result.asked, result.failed) == (4, 2)


def test_an_answer_cut_short_is_a_failure() -> None:
    ask = FakeEngine(slot=410)
    result = measure_stability(ask, raw_style(ask), 400, 32, 1, lambda: None)
    assert [r.error for r in result.requests] == ["ended after 9 of 32 tokens"]


@pytest.mark.parametrize(
    ("values", "slope"),
    [
        ([], None),
        ([5], None),
        ([None, 5, None], None),
        ([5, 5], 0),
        ([0, 10, 20, 30], 10),
        ([0, None, 20, 30], 10),
        ([0, 10, 900, 30, 40], 10),
        ([100, 100, 100, 100, 60], 0),
    ],
)
def test_slope(values: list[int | None], slope: float | None) -> None:
    assert slope_bytes(values) == slope


@given(st.lists(st.none() | st.integers(0, 1 << 40), max_size=12), st.integers(-(1 << 30), 1 << 30))
def test_slope_follows_a_steady_growth(values: list[int | None], step: int) -> None:
    before = slope_bytes(values)
    after = slope_bytes([None if v is None else v + i * step for i, v in enumerate(values)])
    if before is None:
        assert after is None
    else:
        assert after is not None
        assert abs(after - before - step) <= 1e-3


@pytest.mark.parametrize("usable", [0, 8, 40, 512, 131072])
def test_the_depth_leaves_room_for_the_answer(usable: int) -> None:
    depth = stability_depth(usable, 32)
    assert depth >= 0
    assert depth == 0 or depth + 32 + 8 <= usable
