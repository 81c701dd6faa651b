"""Divergence: the first token that differs, for every pair that can be compared."""

from __future__ import annotations

import pytest

from kvtui.probes.divergence import compare, first_difference
from kvtui.probes.results import TaskResult


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
