"""Two runs against each other: which actual settings moved, and what quantized KV did to the outputs."""

from __future__ import annotations

from dataclasses import dataclass

from kvtui.core.config import RunConfig
from kvtui.logs.facts import EngineFacts
from kvtui.probes.divergence import compare as diverge
from kvtui.probes.results import Divergence
from kvtui.session.state import RunRecord, SessionState


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
    there already, which say nothing about KV.
    """

    baseline_run: int
    divergences: tuple[Divergence, ...]
    regressed: tuple[str, ...]
    baseline_failed: tuple[str, ...]
    recall_found: int | None
    recall_total: int | None
    baseline_recall_found: int | None

    @property
    def identical(self) -> int:
        """Outputs that are equal token by token."""
        return sum(d.identical for d in self.divergences)

    @property
    def total(self) -> int:
        """Outputs compared."""
        return len(self.divergences)


def _actual(facts: EngineFacts) -> dict[str, str]:
    found: dict[str, str] = {}
    main = facts.main
    if main is not None:
        numbers = (
            ("context", main.n_ctx),
            ("slots", main.n_seq_max),
            ("batch", main.n_batch),
            ("micro-batch", main.n_ubatch),
            ("n_rs_seq", main.n_rs_seq),
        )
        found |= {name: str(value) for name, value in numbers if value is not None}
        if main.kv_unified is not None:
            found["unified"] = "on" if main.kv_unified else "off"
        if main.flash_attn is not None:
            found["flash-attention"] = "on" if main.flash_attn == "enabled" else "off"
        pairs = sorted({f"{c.type_k}/{c.type_v}" for c in main.caches if c.type_k and c.type_v})
        if pairs:
            found["kv-types"] = ", ".join(pairs)
    if facts.offloaded is not None:
        found["gpu-layers"] = f"{facts.offloaded[0]}/{facts.offloaded[1]}"
    if facts.build is not None:
        found["engine build"] = facts.build
    return found


def moved(before: RunRecord, after: RunRecord) -> tuple[Moved, ...]:
    """Actual settings, proven in both runs, that differ between them. Consequences (bytes, cells) are left out."""
    a, b = _actual(before.facts), _actual(after.facts)
    return tuple(Moved(name, a[name], b[name]) for name in a if name in b and a[name] != b[name])


def hidden_moves(state: SessionState, run: RunRecord) -> tuple[Moved, ...]:
    """What moved in `run` besides the variable it was meant to change."""
    if run.change is None:
        return ()
    reference = state.run(run.change.against_run)
    if reference is None:
        return ()
    return tuple(m for m in moved(reference, run) if m.variable != run.change.variable)


def is_full_precision(config: RunConfig) -> bool:
    """True when neither keys nor values are quantized."""
    return config.type_k in ("f16", "bf16", "f32") and config.type_v in ("f16", "bf16", "f32")


def baseline_of(state: SessionState) -> RunRecord | None:
    """The run whose outputs every later KV type is held against: the latest good full-precision run with tasks."""
    runs = [r for r in state.runs if r.counts and r.tasks and is_full_precision(r.config)]
    return runs[-1] if runs else None


def quality(state: SessionState, run: RunRecord) -> Quality | None:
    """`run` against the baseline, None when there is no baseline or the run has no tasks of its own."""
    base = baseline_of(state)
    if base is None or base.number == run.number or not run.tasks:
        return None
    divergences = diverge(base.tasks, run.tasks)
    regressed = tuple(f"{d.task}@{d.depth}" for d in divergences if d.baseline_passed and not d.passed)
    failed = tuple(f"{d.task}@{d.depth}" for d in divergences if not d.baseline_passed)
    depths = {r.depth: r for r in base.recalls}
    mine = next((r for r in run.recalls if r.depth in depths), None)
    theirs = depths[mine.depth] if mine else None
    return Quality(
        baseline_run=base.number,
        divergences=divergences,
        regressed=regressed,
        baseline_failed=failed,
        recall_found=mine.found if mine else None,
        recall_total=len(mine.needles) if mine else None,
        baseline_recall_found=theirs.found if theirs else None,
    )
