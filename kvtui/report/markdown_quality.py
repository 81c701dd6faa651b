"""Recall and the outputs against the f16 baseline, over all runs, in Markdown."""

from __future__ import annotations

from kvtui.probes.divergence import Conclusion
from kvtui.probes.results import Divergence
from kvtui.procedure.compare import Quality
from kvtui.report import words
from kvtui.report.escape import code, table, text
from kvtui.report.facts import SessionFacts

_CONCLUSIONS: dict[Conclusion, str] = {
    "identical": "every output identical",
    "wording": "text changed, no verdict did",
    "verdicts": "verdicts changed",
    "none": "no conclusion: the baseline fails or does not repeat",
}


def recall_section(session: SessionFacts) -> list[str]:
    """Every recall measurement, with where the facts stood that did not come back."""
    rows = [
        (
            str(run.record.number),
            text(words.quantization(session.state.started.model.quant, run)),
            f"{result.depth:,}",
            f"{result.found} of {len(result.needles)}",
            ", ".join(f"{n.position * 100:.0f} %" for n in result.needles if not n.found) or "none",
        )
        for run in session.runs
        for result in run.record.recalls
    ]
    head = ("run", "quantization", "depth", "found", "missed at (0 % is the start)")
    return ["## Recall", "", *(table(head, rows) or ["Not measured.", ""])]


def quality_section(session: SessionFacts) -> list[str]:
    """What each KV type did to the outputs and the verdicts of the baseline's own tasks."""
    rows = [
        (
            str(run.record.number),
            text(words.quantization(session.state.started.model.quant, run)),
            *_cells(run.quality),
        )
        for run in session.runs
        if run.quality is not None
    ]
    head = (
        *("run", "quantization", "baseline", "identical outputs", "first token that differs"),
        *("passed at the baseline, fails now", "failed at the baseline already"),
        *("baseline did not repeat", "same likeliest token", "probability moved", "conclusion"),
    )
    return ["## Quality against the f16 baseline", "", *(table(head, rows) or ["Not measured.", ""])]


def _cells(quality: Quality) -> tuple[str, ...]:
    summary = quality.summary
    return (
        f"run {quality.baseline_run}",
        f"{quality.identical} of {quality.total}",
        ", ".join(_where(d) for d in quality.divergences if not d.identical) or "none",
        ", ".join(code(t) for t in quality.regressed) or "none",
        ", ".join(code(t) for t in quality.baseline_failed) or "none",
        ", ".join(code(t) for t in summary.not_repeated) or "none",
        words.percent(summary.top_agreement),
        words.percent(summary.shift),
        _CONCLUSIONS[summary.conclusion],
    )


def _where(divergence: Divergence) -> str:
    lead = f"{code(divergence.task)} at {divergence.depth:,} from"
    if divergence.first_token is not None:
        return f"{lead} token {divergence.first_token}"
    return (
        f"{lead} character {divergence.first_char}"
        if divergence.first_char is not None
        else f"{lead} the start"
    )
