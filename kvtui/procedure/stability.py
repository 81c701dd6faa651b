"""Does a run hold? Memory margin, speed floor, recall: a successful allocation is not a result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from kvtui.core.units import GIB, rate, size
from kvtui.probes.results import RecallResult
from kvtui.procedure.compare import baseline_of, quality
from kvtui.procedure.preset import Preset
from kvtui.session.state import RunRecord, SessionState

Trouble = Literal["run", "margin", "speed", "recall", "quality", "concurrency"]


@dataclass(frozen=True, slots=True)
class Stability:
    """`ok`, or the first thing that is wrong with the run and the words for it."""

    ok: bool
    trouble: Trouble | None = None
    why: str = ""


def stability(state: SessionState, plan: Preset, run: RunRecord) -> Stability:
    """Whether `run` may be called stable."""
    if run.outcome != "ok":
        return Stability(False, "run", run.reason or "the run did not end well")
    for problem in (_margin, _concurrency, _speed, _recall, _quality):
        found = problem(state, plan, run)
        if found is not None:
            return found
    return Stability(True)


def free_at_peak(state: SessionState, run: RunRecord) -> int | None:
    """Bytes free on the device at the run's highest moment."""
    peak = run.memory.highest if run.memory else None
    if peak is None or peak.used_bytes is None:
        return None
    return state.started.device.total_bytes - peak.used_bytes


def _margin(state: SessionState, plan: Preset, run: RunRecord) -> Stability | None:
    free = free_at_peak(state, run)
    if free is None or free >= plan.margin_gib * GIB:
        return None
    where = "host memory" if state.started.device.kind == "host" else "the card"
    return Stability(
        False,
        "margin",
        f"only {size(free)} of {where} free at the peak, the margin is {plan.margin_gib:.1f} GiB",
    )


def _concurrency(state: SessionState, plan: Preset, run: RunRecord) -> Stability | None:
    for result in run.concurrency:
        if result.failed:
            return Stability(
                False, "concurrency", f"{result.failed} of {result.requested} simultaneous requests failed"
            )
    return None


def _speed(state: SessionState, plan: Preset, run: RunRecord) -> Stability | None:
    for speed in run.speeds:
        if plan.min_decode_tps and speed.decode_tps is not None and speed.decode_tps < plan.min_decode_tps:
            return Stability(
                False,
                "speed",
                f"decode {rate(speed.decode_tps)} is below your floor of {rate(plan.min_decode_tps)}",
            )
        if plan.min_prompt_tps and speed.prompt_tps is not None and speed.prompt_tps < plan.min_prompt_tps:
            return Stability(
                False,
                "speed",
                f"prefill {rate(speed.prompt_tps)} is below your floor of {rate(plan.min_prompt_tps)}",
            )
    return None


def recall_reference(state: SessionState) -> RecallResult | None:
    """The recall that the baseline showed, which later recall is held against."""
    base = baseline_of(state)
    return base.recalls[-1] if base is not None and base.recalls else None


def _recall(state: SessionState, plan: Preset, run: RunRecord) -> Stability | None:
    reference = recall_reference(state)
    if reference is None or not reference.needles or not run.recalls:
        return None
    share = reference.found / len(reference.needles)
    if share < 0.5:
        return None  # the model does not recall at f16 either: no conclusion about KV or context
    latest = run.recalls[-1]
    if latest.found >= plan.min_recall * share * len(latest.needles):
        return None
    found = f"{latest.found} of {len(latest.needles)}"
    return Stability(
        False,
        "recall",
        f"recall at {latest.depth:,} tokens fell to {found} (baseline {reference.found} of {len(reference.needles)})",
    )


def _quality(state: SessionState, plan: Preset, run: RunRecord) -> Stability | None:
    found = quality(state, run)
    if found is None or not found.regressed:
        return None
    return Stability(False, "quality", f"passed at f16 and fails now: {', '.join(found.regressed)}")
