"""Divergence: the first token that differs, for every pair that can be compared."""

from __future__ import annotations

from dataclasses import replace
from math import log
from typing import Any

import pytest

from kvtui.probes.divergence import brief, compare, first_difference, in_words, summarise
from kvtui.probes.results import Choice, Divergence, TaskResult


def result(
    task: str, depth: int, tokens: tuple[int, ...], *, passed: bool = True, error: str = ""
) -> TaskResult:
    return TaskResult(task, "retrieval", depth, passed, "", "", tokens, None, error)


@pytest.mark.parametrize(
    ("one", "two", "first"),
    [
        ((), (), None),
        ((1, 2, 3), (1, 2, 3), None),
        ((1, 2, 3), (1, 9, 3), 1),
        ((1, 2, 3), (9, 2, 3), 0),
        ((1, 2), (1, 2, 3), 2),
        ((1, 2, 3), (), 0),
    ],
)
def test_first_difference(one: tuple[int, ...], two: tuple[int, ...], first: int | None) -> None:
    assert first_difference(one, two) == first
    assert first_difference(two, one) == first


def test_results_are_paired_by_task_and_depth_and_keep_both_verdicts() -> None:
    baseline = [result("b", 100, (5, 6)), result("a", 200, (1, 2, 3)), result("a", 100, (7,))]
    other = [result("a", 200, (1, 2, 4), passed=False), result("a", 100, (7,)), result("b", 100, (5,))]
    made = compare(baseline, other)
    assert [(d.task, d.depth, d.identical, d.first_token, d.baseline_tokens) for d in made] == [
        ("a", 200, False, 2, 3),
        ("a", 100, True, None, 1),
        ("b", 100, False, 1, 2),
    ]
    assert [(d.passed, d.baseline_passed) for d in made] == [(False, True), (True, True), (True, True)]


def test_an_error_or_a_missing_partner_is_no_divergence() -> None:
    good = result("a", 100, (1,))
    bad = result("a", 100, (), passed=False, error="refused")
    assert compare([good], [bad]) == ()
    assert compare([bad], [good]) == ()
    assert compare([result("a", 200, (1,))], [good]) == ()
    assert compare([], [good]) == ()


def told(task: str, tokens: tuple[int, ...], *choices: Choice, **more: Any) -> TaskResult:
    return replace(result(task, 100, tokens, **more), choices=choices)


def test_probabilities_are_compared_up_to_the_token_that_differs_and_no_further() -> None:
    before = told(
        "a", (1, 2, 3), Choice(0, (1, 9), (log(0.8), log(0.1))), Choice(1, (2, 7), (log(0.6), log(0.3))),
        Choice(2, (3, 8), (log(0.9), log(0.05))),
    )  # fmt: skip
    after = told(
        "a", (1, 7, 5), Choice(0, (1, 9), (log(0.7), log(0.2))), Choice(1, (7, 2), (log(0.5), log(0.4))),
        Choice(2, (5, 8), (log(0.9), log(0.05))),
    )  # fmt: skip
    (made,) = compare([before], [after])
    assert (made.first_token, made.compared, made.top_agreement) == (1, 2, 0.5)
    assert made.shift == pytest.approx((0.1 + 0.2) / 2)


def test_a_token_that_is_no_longer_told_has_at_most_the_least_probability_told() -> None:
    before = told("a", (1,), Choice(0, (1, 9), (log(0.8), log(0.1))))
    after = told("a", (7,), Choice(0, (7, 9), (log(0.9), log(0.05))))
    (made,) = compare([before], [after])
    assert made.shift == pytest.approx(0.75)


def test_without_probabilities_none_are_made_up() -> None:
    (made,) = compare([told("a", (1, 2), Choice(0, (1,), (0.0,)))], [told("a", (1, 2))])
    assert (made.compared, made.top_agreement, made.shift) == (0, None, None)


def test_without_tokens_the_text_is_compared() -> None:
    one, two = (
        replace(result("a", 100, ()), text="over there"),
        replace(result("a", 100, ()), text="over here"),
    )
    (made,) = compare([one], [two])
    assert (made.identical, made.first_token, made.first_char) == (False, None, 5)
    (made,) = compare([one], [one])
    assert (made.identical, made.first_char) == (True, None)
    (made,) = compare([replace(one, tokens=(1,))], [two])
    assert (made.identical, made.first_char) == (False, 5)


def test_repeats_say_whether_the_baseline_can_be_relied_upon() -> None:
    base = [result("a", 100, (1, 2)), result("b", 100, (3,)), result("c", 100, (4,)), result("d", 100, (5,))]
    again = [
        result("a", 100, (1, 2)),
        result("b", 100, (9,)),
        result("c", 100, (4,), passed=False),
        result("d", 100, (), passed=False, error="refused"),
    ]
    assert [d.repeats for d in compare(base, base, again)] == [True, False, False, False]
    assert [d.repeats for d in compare(base, base)] == [None] * 4


def test_changed_wording_with_the_same_verdicts_is_exactly_that() -> None:
    base = [result("a", 100, (1, 2, 3)), result("b", 100, (4,))]
    made = summarise(compare(base, [result("a", 100, (1, 9, 3)), result("b", 100, (4,))], base))
    assert (made.conclusion, made.identical, made.usable, made.earliest) == ("wording", 1, 2, 1)
    assert in_words(made) == (
        "1 of 2 outputs identical; the first to part does so at token 2; wording changed, no verdict did"
    )


def test_a_lost_verdict_is_named() -> None:
    base = [result("a", 100, (1,)), result("b", 100, (2,), passed=False)]
    made = summarise(compare(base, [result("a", 100, (3,), passed=False), result("b", 100, (2,))], base))
    assert (made.conclusion, made.lost, made.gained) == ("verdicts", ("a@100",), ("b@100",))
    assert in_words(made).endswith("verdicts lost: a@100")
    assert brief(made) == "1 of 2 outputs identical, verdicts lost: a@100"


def test_nothing_is_concluded_from_what_does_not_repeat() -> None:
    base = [result("a", 100, (1,)), result("b", 100, (2,))]
    other = [result("a", 100, (3,), passed=False), result("b", 100, (2,))]
    made = summarise(compare(base, other, [result("a", 100, (9,)), result("b", 100, (2,))]))
    assert (made.conclusion, made.lost, made.not_repeated, made.usable) == ("identical", (), ("a@100",), 1)
    assert in_words(made) == (
        "the baseline does not repeat itself in 1 of 2 outputs, of which nothing is concluded; "
        "1 of 1 outputs identical; no verdict changed"
    )
    none = summarise(compare(base, other, [result("a", 100, (9,)), result("b", 100, (9,))]))
    assert none.conclusion == "none"
    assert in_words(none).endswith("; no conclusion about KV")
    assert brief(none) == "no conclusion about KV"


def test_a_baseline_that_fails_everything_gives_no_conclusion() -> None:
    base = [result("a", 100, (1,), passed=False)]
    made = summarise(compare(base, [result("a", 100, (2,), passed=False)], base))
    assert (made.conclusion, made.baseline_failed) == ("none", ("a@100",))
    assert "the baseline fails these tasks itself" in in_words(made)
    assert in_words(summarise([])) == "no outputs to compare"


def test_a_task_without_an_expectation_counts_for_divergence_alone() -> None:
    base = [replace(result("a", 100, (1,)), graded=False)]
    made = summarise(compare(base, [replace(result("a", 100, (2,), passed=False), graded=False)], base))
    assert (made.lost, made.identical, made.total, made.conclusion) == ((), 0, 1, "wording")


def test_shift_and_agreement_weigh_every_position_alike() -> None:
    long = Divergence("a", 1, False, 8, 9, True, True, compared=9, top_agreement=1.0, shift=0.1)
    short = Divergence("b", 1, False, 0, 9, True, True, compared=1, top_agreement=0.0, shift=0.6)
    made = summarise([long, short])
    assert made.top_agreement == pytest.approx(0.9)
    assert made.shift == pytest.approx(0.15)
    assert "same likeliest token at 90.0% of positions up to there, probability shift 0.150" in in_words(made)
