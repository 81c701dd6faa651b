"""A ratchet is told from noise, from one jump, and from what longer prompts need."""

from __future__ import annotations

import random

import pytest

from kvtui.gpu.samples import Level
from kvtui.gpu.trend import line, ratchet

MIB = 1 << 20


def levels(values: list[int], prompts: list[int] | None = None) -> list[Level]:
    return [
        Level(float(n), prompts[n] if prompts else 1000, value * MIB, "process")
        for n, value in enumerate(values)
    ]


def test_the_line_is_the_least_squares_one() -> None:
    slope, fit = line([1.0, 3.0, 2.0, 4.0])
    assert slope == pytest.approx(0.8)
    assert fit == pytest.approx(0.64)
    assert line([5.0, 5.0, 5.0]) == (0.0, 1.0)
    assert line([0.0, 7.0, 14.0]) == (7.0, 1.0)


def test_growth_with_each_request() -> None:
    found = ratchet(levels([4000, 4100, 4205, 4290, 4400, 4510]))
    assert found is not None
    assert found.slope / MIB == pytest.approx(101.4, abs=0.5)
    assert (found.n, found.growth) == (6, 510 * MIB)
    assert found.fit > 0.99


@pytest.mark.parametrize(
    "values",
    [
        [4000] * 9,
        [4000, 4300, 4300, 4300, 4300, 4300, 4300],
        [4000, 4000, 4000, 4000, 4400, 4400, 4400, 4400],
        [4000, 4005, 3996, 4010, 4001, 3998, 4012],
        [5000, 4900, 4800, 4700, 4600, 4500],
        [4000, 4100, 4200, 4300],
        [4000, 4003, 4006, 4009, 4012, 4015, 4018],
        [],
    ],
    ids=["flat", "one step after the first", "one jump", "noise", "falling", "too few", "too little", "none"],
)
def test_what_is_no_ratchet(values: list[int]) -> None:
    assert ratchet(levels(values)) is None


def test_what_longer_prompts_take_is_left_out() -> None:
    prompts = [1000, 2000, 4000, 8000, 16000, 32000]
    assert ratchet(levels([4000, 4100, 4300, 4700, 5500, 7100], prompts)) is None
    deep_then_more = [4000, 4500, 4600, 4700, 4800, 4900, 5000]
    found = ratchet(levels(deep_then_more, [1000, 8000, 500, 8000, 500, 8000, 500]))
    assert found is not None
    assert found.growth == 500 * MIB, "without the 500 MiB that the long prompt took"


def test_other_bases_are_not_compared() -> None:
    grown = [Level(float(n), 9, n * 500 * MIB, "growth") for n in range(6)]
    assert ratchet([*grown, *levels([4000] * 6)]) is None
    assert ratchet([*levels([4000] * 6), *grown]) is not None


def test_random_walks_without_a_trend_are_rarely_called_one() -> None:
    chance = random.Random(7)
    found = sum(
        ratchet(levels([4000 + chance.randint(-40, 40) for _ in range(12)])) is not None for _ in range(500)
    )
    assert found == 0
