"""Two runs against each other: which actual settings moved, and what quantized KV did to the outputs."""

from __future__ import annotations

from dataclasses import dataclass

from kvtui.core.config import RunConfig
from kvtui.probes.divergence import Summary, summarise
from kvtui.probes.divergence import compare as diverge
from kvtui.probes.results import Divergence
from kvtui.procedure.actual import VOIDING, actual_settings, follows
from kvtui.session.state import RunRecord, SessionState

FULL_PRECISION = ("f32", "f16", "bf16", "float16", "bfloat16", "auto")
"""Names of types that are not quantized; `auto` is what an engine calls the model's own type."""


@dataclass(frozen=True, slots=True)
class Moved:
    """One actual setting that is not the same in two runs; `variable` is a name of kvtui.procedure.variables
    where there is one, else the engine's own name."""

    variable: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class Quality:
    """What a run's outputs are worth against the f16 baseline of the same session.

    `regressed` names task@depth that passed at the baseline and fails now; `baseline_failed` those that failed
    there already, which say nothing about KV. Outputs that the baseline did not repeat are in neither: `summary` names
    them, and says what all divergences come to.
    """

    baseline_run: int
    divergences: tuple[Divergence, ...]
    regressed: tuple[str, ...]
    baseline_failed: tuple[str, ...]
    recall_found: int | None
    recall_total: int | None
    baseline_recall_found: int | None
    summary: Summary

    @property
    def identical(self) -> int:
        """Outputs that are equal token by token."""
        return sum(d.identical for d in self.divergences)

    @property
    def total(self) -> int:
        """Outputs compared."""
        return len(self.divergences)


def moved(before: RunRecord, after: RunRecord) -> tuple[Moved, ...]:
    """Actual settings, proven in both runs, that differ between them. Consequences in bytes are left out."""
    a, b = actual_settings(before), actual_settings(after)
    return tuple(Moved(name, a[name], b[name]) for name in a if name in b and a[name] != b[name])


def hidden_moves(state: SessionState, run: RunRecord) -> tuple[Moved, ...]:
    """What moved in `run` besides the variable it was meant to change."""
    if run.change is None:
        return ()
    reference = state.run(run.change.against_run)
    if reference is None:
        return ()
    intended = run.change.variable
    return tuple(
        m for m in moved(reference, run) if m.variable != intended and not follows(intended, m.variable)
    )


def voided(state: SessionState, run: RunRecord) -> tuple[Moved, ...]:
    """What makes `run` and the run it is compared with incomparable: another engine build, another driver."""
    return tuple(m for m in hidden_moves(state, run) if m.variable in VOIDING)


def is_full_precision(config: RunConfig) -> bool:
    """True when neither keys nor values are quantized."""
    return config.type_k in FULL_PRECISION and config.type_v in FULL_PRECISION


def baseline_of(state: SessionState) -> RunRecord | None:
    """The run whose outputs every later KV type is held against: the latest good full-precision run with tasks."""
    runs = [r for r in state.runs if r.counts and r.tasks and is_full_precision(r.config)]
    return runs[-1] if runs else None


def quality(state: SessionState, run: RunRecord) -> Quality | None:
    """`run` against the baseline, None when there is no baseline or the run has no tasks of its own."""
    base = baseline_of(state)
    if base is None or base.number == run.number or not run.tasks:
        return None
    divergences = diverge(base.tasks, run.tasks, base.repeated)
    summary = summarise(divergences)
    depths = {r.depth: r for r in base.recalls}
    mine = next((r for r in run.recalls if r.depth in depths), None)
    theirs = depths[mine.depth] if mine else None
    return Quality(
        baseline_run=base.number,
        divergences=divergences,
        regressed=summary.lost,
        baseline_failed=summary.baseline_failed,
        recall_found=mine.found if mine else None,
        recall_total=len(mine.needles) if mine else None,
        baseline_recall_found=theirs.found if theirs else None,
        summary=summary,
    )
