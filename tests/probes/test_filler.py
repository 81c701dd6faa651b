"""Filler: the same for ever, and never the same line twice where it would matter."""

from __future__ import annotations

from collections import Counter
from itertools import islice

import pytest

from kvtui.probes.filler import Stream, records


def test_the_text_of_a_seed_never_changes() -> None:
    assert list(islice(records(1), 3)) == [
        "Lot 2319 holds 569 sacks of sugar and goes to Sundby on Monday.",
        "The magpie was seen 30 times near Tormarch before 10:40.",
        "The carpenter noted that the saw is under repair and that barley is running short.",
    ]


def test_other_seeds_give_other_text() -> None:
    firsts = [next(records(depth, seed)) for depth in (512, 1024, 2048) for seed in range(5)]
    assert len(set(firsts)) == len(firsts)


def test_every_record_is_one_plain_line_that_ends_in_a_full_stop() -> None:
    for line in islice(records(3), 2000):
        assert line.isascii()
        assert line.isprintable()
        assert line.endswith(".")


def test_enough_for_128k_tokens_hardly_repeats_a_line() -> None:
    lines = list(islice(records(7), 10_000))
    repeated = sum(count - 1 for count in Counter(lines).values())
    assert sum(len(line.split()) for line in lines) > 110_000
    assert repeated < 100


def test_no_record_looks_like_a_planted_fact() -> None:
    assert not any("code" in line or "ferry pass" in line for line in islice(records(5), 5000))


@pytest.mark.parametrize("size", [1, 5, 16])
def test_a_sample_has_no_word_twice(size: int) -> None:
    words = tuple("abcdefghijklmnop")
    assert len(set(Stream(9).sample(words, size))) == size


def test_numbers_stay_within_their_bounds_and_reach_them() -> None:
    stream = Stream(2)
    assert {stream.between(3, 6) for _ in range(200)} == {3, 4, 5, 6}
