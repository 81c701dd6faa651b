"""Where the outputs of two runs part. Greedy outputs of the same prompts, compared token by token.

Beyond the first token that differs, two outputs are answers to different texts: an engine's API cannot force one
model's text upon another, so everything here is measured up to that token and no further.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp
from typing import Literal

from kvtui.probes.results import Choice, Divergence, TaskResult

Conclusion = Literal["identical", "wording", "verdicts", "none"]


def compare(
    baseline: Sequence[TaskResult], other: Sequence[TaskResult], repeated: Sequence[TaskResult] = ()
) -> tuple[Divergence, ...]:
    """One `Divergence` for each result of `other` whose task and depth the baseline has as well.

    `repeated` are the baseline's tasks asked once more. A pair in which one request ended in an error says nothing
    about the outputs and is left out.
    """
    known = {(r.task, r.depth): r for r in baseline if not r.error}
    again = {(r.task, r.depth): r for r in repeated}
    pairs = [(known[r.task, r.depth], r) for r in other if not r.error and (r.task, r.depth) in known]
    return tuple(
        _pair(before, after, again.get((after.task, after.depth)) if again else None)
        for before, after in pairs
    )


def _pair(before: TaskResult, after: TaskResult, again: TaskResult | None) -> Divergence:
    first_token, first_char = _parting(before, after)
    agreement, shift, compared = _probabilities(before.choices, after.choices, first_token)
    return Divergence(
        task=after.task,
        depth=after.depth,
        identical=first_token is None and first_char is None,
        first_token=first_token,
        baseline_tokens=len(before.tokens),
        passed=after.passed,
        baseline_passed=before.passed,
        first_char=first_char,
        compared=compared,
        top_agreement=agreement,
        shift=shift,
        repeats=None if again is None else _repeats(before, again),
        graded=before.graded and after.graded,
    )


def _parting(before: TaskResult, after: TaskResult) -> tuple[int | None, int | None]:
    """The first token that differs or, where one of the two engines told no tokens, the first character."""
    if before.tokens and after.tokens:
        return first_difference(before.tokens, after.tokens), None
    return None, first_difference(before.text, after.text)


def _repeats(before: TaskResult, again: TaskResult) -> bool:
    return not again.error and again.passed == before.passed and _parting(before, again) == (None, None)


def first_difference(one: Sequence[object], two: Sequence[object]) -> int | None:
    """The index of the first element that differs; the shorter length when one only goes on; None when equal."""
    for index, (a, b) in enumerate(zip(one, two, strict=False)):
        if a != b:
            return index
    return None if len(one) == len(two) else min(len(one), len(two))


def _probabilities(
    before: Sequence[Choice], after: Sequence[Choice], parting: int | None
) -> tuple[float | None, float | None, int]:
    """Share of positions with the same likeliest token, mean shift of the baseline's token, positions compared."""
    theirs = {c.index: c for c in after}
    pairs = [
        (c, theirs[c.index]) for c in before if c.index in theirs and (parting is None or c.index <= parting)
    ]
    if not pairs:
        return None, None, 0
    same = sum(b.ids[0] == a.ids[0] for b, a in pairs)
    shift = sum(abs(exp(b.logprobs[0]) - _probability(a, b.ids[0])) for b, a in pairs)
    return same / len(pairs), shift / len(pairs), len(pairs)


def _probability(choice: Choice, token: int) -> float:
    """The probability of `token`; that of the least likely one told where it is not among them: it is no more."""
    known = dict(zip(choice.ids, choice.logprobs, strict=True))
    return exp(known.get(token, choice.logprobs[-1]))


@dataclass(frozen=True, slots=True)
class Summary:
    """What all divergences of a run come to.

    `usable` leaves out outputs that the baseline did not repeat. `lost` names task@depth that passed at the
    baseline, both times, and fails now; `gained` the reverse. `top_agreement` and `shift` are means over all
    compared positions. `conclusion`: `wording` means that text changed and no verdict did; `none` that the
    baseline cannot be relied upon or there is nothing to compare.
    """

    total: int
    usable: int
    identical: int
    lost: tuple[str, ...]
    gained: tuple[str, ...]
    baseline_failed: tuple[str, ...]
    not_repeated: tuple[str, ...]
    earliest: int | None
    top_agreement: float | None
    shift: float | None
    conclusion: Conclusion


def summarise(divergences: Sequence[Divergence]) -> Summary:
    """All divergences of one run against its baseline."""
    usable = [d for d in divergences if d.repeats is not False]
    lost = tuple(_name(d) for d in usable if d.graded and d.baseline_passed and not d.passed)
    gained = tuple(_name(d) for d in usable if d.graded and d.passed and not d.baseline_passed)
    told = [d for d in usable if d.top_agreement is not None and d.shift is not None]
    positions = sum(d.compared for d in told)
    identical = sum(d.identical for d in usable)
    return Summary(
        total=len(divergences),
        usable=len(usable),
        identical=identical,
        lost=lost,
        gained=gained,
        baseline_failed=tuple(_name(d) for d in divergences if d.graded and not d.baseline_passed),
        not_repeated=tuple(_name(d) for d in divergences if d.repeats is False),
        earliest=min((d.first_token for d in usable if d.first_token is not None), default=None),
        top_agreement=_mean([(d.top_agreement, d.compared) for d in told], positions),
        shift=_mean([(d.shift, d.compared) for d in told], positions),
        conclusion=_conclusion(usable, lost, identical),
    )


def _conclusion(usable: Sequence[Divergence], lost: tuple[str, ...], identical: int) -> Conclusion:
    if lost:
        return "verdicts"
    if not usable or not any(d.baseline_passed for d in usable):
        return "none"
    return "identical" if identical == len(usable) else "wording"


def _mean(values: Sequence[tuple[float | None, int]], positions: int) -> float | None:
    return sum((value or 0.0) * count for value, count in values) / positions if positions else None


def _name(divergence: Divergence) -> str:
    return f"{divergence.task}@{divergence.depth}"


def brief(summary: Summary) -> str:
    """How many outputs are identical and what became of the verdicts, in a few words."""
    if not summary.usable:
        return "no conclusion about KV"
    return f"{summary.identical} of {summary.usable} outputs identical, {_verdicts_in_words(summary)}"


def in_words(summary: Summary) -> str:
    """The summary in one line, what cannot be concluded included."""
    if not summary.total:
        return "no outputs to compare"
    parts = []
    if summary.not_repeated:
        parts.append(
            f"the baseline does not repeat itself in {len(summary.not_repeated)} of {summary.total} outputs, "
            "of which nothing is concluded"
        )
    if summary.usable:
        parts.append(f"{summary.identical} of {summary.usable} outputs identical")
    if summary.earliest is not None:
        parts.append(f"the first to part does so at token {summary.earliest + 1}")
    if summary.shift is not None and summary.top_agreement is not None:
        parts.append(
            f"same likeliest token at {summary.top_agreement:.1%} of positions up to there, "
            f"probability shift {summary.shift:.3f}"
        )
    parts.append(_verdicts_in_words(summary))
    return "; ".join(parts)


def _verdicts_in_words(summary: Summary) -> str:
    match summary.conclusion:
        case "verdicts":
            return f"verdicts lost: {', '.join(summary.lost)}"
        case "wording":
            return "wording changed, no verdict did"
        case "identical":
            return "no verdict changed"
        case "none" if summary.usable:
            return "the baseline fails these tasks itself: no conclusion about KV"
    return "no conclusion about KV"
