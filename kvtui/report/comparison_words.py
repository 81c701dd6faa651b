"""A comparison in words: the verdict sentence, and each figure with what its spread allows to say."""

from __future__ import annotations

from kvtui.core.units import signed_size, size, tokens
from kvtui.report import words
from kvtui.report.comparison import Comparison, Difference, RunPair
from kvtui.report.readings import Measure, Reading, State

STATES: dict[State, str] = {
    "same": "the same",
    "within": "within the spread",
    "differs": "differs",
    "single": "one measurement each, no spread",
    "only-a": "measured in A only",
    "only-b": "measured in B only",
}
_NAMED = 3


def sentence(found: Comparison) -> str:
    """What the comparison comes to, in one sentence or two."""
    said = _of_runs(found) if found.of_runs else _of_sessions(found)
    if found.box:
        what = _listed([d.what for d in found.box])
        said += f" Not the same: {what}; speeds and memory cannot be held against each other."
    return said


def _of_sessions(found: Comparison) -> str:
    verdict = {True: "Same verdict", False: "Different verdicts", None: "No two verdicts"}[found.same_verdict]
    same = sum(pair.same_facts for pair in found.pairs)
    facts = f"same facts in {same} of {len(found.pairs)} runs"
    alone = len(found.only_a) + len(found.only_b)
    if alone:
        facts += f" that both made ({alone} made by one alone)"
    return f"{verdict}, {facts}, {_speeds(found.speeds)}."


def _speeds(speeds: tuple[Measure, ...]) -> str:
    if not speeds:
        return "no speeds in common"
    agree = sum(m.state in ("same", "within") for m in speeds)
    parts = [f"{agree} of {len(speeds)} speeds within their spread"]
    apart = [m for m in speeds if m.state == "differs"]
    if apart:
        worst = max(apart, key=lambda m: abs(m.change or 0))
        parts.append(f"{len(apart)} differ (most: {where(worst)} by {percent(worst)})")
    single = sum(m.state == "single" for m in speeds)
    if single:
        parts.append(f"{single} measured once on each side, which has no spread")
    return ", ".join(parts)


def _of_runs(found: Comparison) -> str:
    (pair,) = found.pairs
    varied = pair.varied
    lead = _changed(varied, pair.asked)
    also = [d.what for d in pair.proven if d.what in _SETTINGS and d.what not in {v.what for v in varied}]
    if also:
        lead += f"; {_listed(also)} moved without being asked to"
    return f"{lead}. {_effects(pair)}."


_SETTINGS = frozenset(
    (
        "context",
        "sequences",
        "batch",
        "micro-batch",
        "unified KV",
        "flash attention",
        "layers on GPU",
        "build",
    )
)


def _changed(varied: tuple[Difference, ...], asked: tuple[Difference, ...]) -> str:
    if not asked:
        return "Nothing was asked differently"
    if not varied:
        return f"{_capital(_listed([d.what for d in asked]))} asked differently, proven to be the same"
    if len(varied) == 1:
        return f"{_capital(varied[0].what)} {varied[0].a} → {varied[0].b}"
    return f"{len(varied)} variables changed ({_listed([d.what for d in varied])}), so none alone explains it"


def _capital(text: str) -> str:
    return text if text[:2].isupper() else text[:1].upper() + text[1:]


def _effects(pair: RunPair) -> str:
    a, b = pair.a.record, pair.b.record
    if a.outcome != b.outcome:
        return f"Run {a.number} ended {words.outcome(a)}, run {b.number} {words.outcome(b)}"
    parts = [
        f"{m.name} {signed_size(m.b.value - m.a.value)}"
        for m in pair.measures
        if m.name in ("KV", "peak in prefill") and m.a and m.b
    ]
    deepest = max((m for m in pair.speeds if m.name == "decode"), key=lambda m: m.depth or 0, default=None)
    if deepest is not None:
        parts.append(f"{where(deepest)} {percent(deepest)} ({STATES[deepest.state]})")
    parts += [f"recall {words.share(r.a)} → {words.share(r.b)}" for r in pair.recalls[-1:] if r.a and r.b]
    if pair.outputs:
        parts.append(f"{sum(d.identical for d in pair.outputs)} of {len(pair.outputs)} outputs identical")
        lost = [d.task for d in pair.turned if d.baseline_passed]
        won = [d.task for d in pair.turned if d.passed]
        parts.append(f"lost {_listed(lost)}" if lost else "no task lost")
        parts += [f"won {_listed(won)}"] if won else []
    return _capital(", ".join(parts)) or "Nothing was measured on both sides"


def where(measure: Measure) -> str:
    """`decode at 4,016 tokens`."""
    return measure.name if measure.depth is None else f"{measure.name} at {measure.depth:,} tokens"


def percent(measure: Measure) -> str:
    """The change from A to B as `+2.1 %`, `-` where it cannot be told."""
    return "-" if measure.change is None else f"{measure.change * 100:+.1f} %"


def figure(reading: Reading | None, unit: str) -> str:
    """A figure with the range of its repeats: `31.2 t/s (30.8 to 31.4)`."""
    if reading is None:
        return words.NOT_MEASURED
    if unit == "B":
        return size(reading.value)
    if unit == "s":
        return words.seconds(reading.value)
    said = words.speed(reading.value)
    return f"{said} ({reading.low:,.1f} to {reading.high:,.1f})" if reading.spread is not None else said


def side(found: Comparison, *, second: bool) -> str:
    """What one side is: its run, or its verdict."""
    state = found.b if second else found.a
    quant = state.started.model.quant or "unknown"
    if found.of_runs:
        pair = found.pairs[0]
        run = pair.b if second else pair.a
        context = tokens(run.record.config.n_ctx)
        return (
            f"run {run.record.number} ({words.purpose(run.record.purpose)}), {context} of context, "
            f"{words.quantization(quant, run)}: {words.outcome(run.record)}"
        )
    verdict = state.verdict
    return "unfinished, no verdict" if verdict is None else f"{verdict.outcome}: {verdict.title}"


def _listed(names: list[str]) -> str:
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")
