"""A comparison as text of at most 80 columns, for a terminal and for a file."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from kvtui.core.text import clean, clip, width
from kvtui.report import words
from kvtui.report.comparison import Comparison, Difference, RunPair
from kvtui.report.comparison_words import STATES, figure, percent, sentence, side, where

CELLS = 80
_NAME = 28


def render(found: Comparison) -> str:
    """The comparison, its verdict first."""
    return "\n".join(line.rstrip() for line in _lines(found)) + "\n"


def _lines(found: Comparison) -> Iterator[str]:
    yield from _wrapped(sentence(found))
    yield ""
    for name, state, second in (("A", found.a, False), ("B", found.b, True)):
        yield from _wrapped(f"{state.started.session}  {side(found, second=second)}", f"{name}  ")
    if found.box:
        yield from _table("Not the same box, model or engine", found.box)
    if found.of_runs:
        yield from _pair(found.pairs[0])
        return
    for run, name in [*((r, "A") for r in found.only_a), *((r, "B") for r in found.only_b)]:
        yield from _wrapped(f"only {name}: run {run.number}, {run.subject or words.purpose(run.purpose)}")
    for pair in found.pairs:
        yield from _short(pair)


def _short(pair: RunPair) -> Iterator[str]:
    a, b = pair.a.record, pair.b.record
    yield ""
    yield from _wrapped(
        f"{clean(a.subject or words.purpose(a.purpose))}: run {a.number} in A ({words.outcome(a)}), "
        f"run {b.number} in B ({words.outcome(b)})"
    )
    facts = "the same" if not pair.proven else f"{len(pair.proven)} differ"
    yield f"  facts      {facts}, of {pair.n_proven} that both logs prove"
    yield from _differences(pair.asked, "asked  ")
    yield from _differences(pair.proven, "proven ")
    for measure in pair.speeds:
        a_said, b_said = figure(measure.a, measure.unit), figure(measure.b, measure.unit)
        yield from _wrapped(
            f"{where(measure)}: {a_said} / {b_said}, {percent(measure)}: {STATES[measure.state]}", "  "
        )
    yield from _quality(pair)


def _pair(pair: RunPair) -> Iterator[str]:
    if pair.asked:
        yield from _table("Asked differently", pair.asked)
    if pair.proven:
        yield from _table("Proven by the logs to differ", pair.proven)
    else:
        yield ""
        yield f"The logs prove the same in all {pair.n_proven} facts that both show."
    if pair.measures:
        yield ""
        yield "Measured"
    for measure in pair.measures:
        cells = [figure(r, measure.unit) for r in (measure.a, measure.b)]
        yield from _row(where(measure), cells, f"{percent(measure):>9}  {STATES[measure.state]}")
    yield from _quality(pair)


def _quality(pair: RunPair) -> Iterator[str]:
    for recalled in pair.recalls:
        yield f"  recall at {recalled.depth:,}: {words.share(recalled.a)} / {words.share(recalled.b)}"
    if pair.outputs:
        same = sum(d.identical for d in pair.outputs)
        yield f"  outputs: {same} of {len(pair.outputs)} identical"
    for d in pair.turned:
        turned = "passed in A, fails in B" if d.baseline_passed else "failed in A, passes in B"
        yield from _wrapped(f"{d.task} at {d.depth:,}: {turned}", "  ")


def _table(title: str, rows: Sequence[Difference]) -> Iterator[str]:
    yield ""
    yield title
    for row in rows:
        yield from _row(row.what, [row.a, row.b], "")


def _row(name: str, cells: Sequence[str], rest: str) -> Iterator[str]:
    """Name and both sides beside each other where they fit, else below each other."""
    left, right = (clean(c) for c in cells)
    if max(width(left), width(right)) <= (CELLS - _NAME - 6) // 2:
        column = (CELLS - _NAME - 6) // 2
        yield f"  {_pad(name, _NAME)}  {_pad(left, column)}  {right}"
    else:
        yield f"  {clip(clean(name), CELLS - 2)}"
        yield from _wrapped(left, "    A  ")
        yield from _wrapped(right, "    B  ")
    if rest.strip():
        yield f"  {'':{_NAME}}  {rest.strip()}"


def _differences(rows: Sequence[Difference], label: str) -> Iterator[str]:
    for row in rows:
        yield from _wrapped(f"{row.what}: {row.a} → {row.b}", f"  {label}    ")


def _pad(text: str, cells: int) -> str:
    short = clip(clean(text), cells)
    return short + " " * (cells - width(short))


def _wrapped(text: str, lead: str = "") -> Iterator[str]:
    yield from textwrap.wrap(
        clean(text),
        CELLS,
        initial_indent=lead,
        subsequent_indent=" " * len(lead) if lead else "  ",
        break_on_hyphens=False,
    )
