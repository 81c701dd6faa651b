"""Where the outputs of two runs part. Greedy outputs of the same prompts, compared token by token."""

from __future__ import annotations

from collections.abc import Sequence

from kvtui.probes.results import Divergence, TaskResult


def compare(baseline: Sequence[TaskResult], other: Sequence[TaskResult]) -> tuple[Divergence, ...]:
    """One `Divergence` for each result of `other` whose task and depth the baseline has as well.

    A pair in which one request ended in an error says nothing about the outputs and is left out.
    """
    known = {(r.task, r.depth): r for r in baseline if not r.error}
    pairs = [(known[r.task, r.depth], r) for r in other if not r.error and (r.task, r.depth) in known]
    return tuple(_pair(before, after) for before, after in pairs)


def _pair(before: TaskResult, after: TaskResult) -> Divergence:
    first = first_difference(before.tokens, after.tokens)
    return Divergence(
        task=after.task,
        depth=after.depth,
        identical=first is None,
        first_token=first,
        baseline_tokens=len(before.tokens),
        passed=after.passed,
        baseline_passed=before.passed,
    )


def first_difference(one: Sequence[int], two: Sequence[int]) -> int | None:
    """The index of the first token that differs; the shorter length when one only goes on; None when equal."""
    for index, (a, b) in enumerate(zip(one, two, strict=False)):
        if a != b:
            return index
    return None if len(one) == len(two) else min(len(one), len(two))
