"""Does a run hold? Context, memory margin, repeats, speed, recall: a successful allocation is not a result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from kvtui.core.units import GIB, MIB, rate, size
from kvtui.probes.results import RecallResult
from kvtui.probes.stability import slope_bytes
from kvtui.procedure.compare import baseline_of, is_full_precision, quality
from kvtui.procedure.preset import Preset
from kvtui.procedure.speeds import CLIFF, share_of_expected
from kvtui.session.state import RunRecord, SessionState

Trouble = Literal[
    "run", "context", "margin", "spill", "concurrency", "leak", "kernel", "speed", "recall", "quality"
]

KERNEL_SHARE = 0.35
"""Below this share of the baseline's speed at the same depth, attention is not computed where it should be."""
FULL_CARD_BYTES = 512 * MIB
"""Less than this free: what does not fit may have gone to host memory."""
LEAK_BYTES, LEAK_SHARE = 8 * MIB, 0.005
"""Growth for each repeated request, absolute and as a share of the engine's memory, that still counts as none."""


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
    for problem in (_context, _margin, _spill, _concurrency, _repeats, _kernel, _speed, _recall, _quality):
        found = problem(state, plan, run)
        if found is not None:
            return found
    return Stability(True)


def _context(state: SessionState, plan: Preset, run: RunRecord) -> Stability | None:
    allocated = run.facts.main.n_ctx if run.facts.main else (run.facts.actual or {}).get("n_ctx")
    if not isinstance(allocated, int) or allocated >= run.config.n_ctx:
        return None
    return Stability(False, "context", f"{run.config.n_ctx:,} tokens asked, the engine made it {allocated:,}")


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


def _spill(state: SessionState, plan: Preset, run: RunRecord) -> Stability | None:
    free, share = free_at_peak(state, run), share_of_expected(state, run)
    if state.started.device.kind == "host" or free is None or share is None:
        return None
    if free >= FULL_CARD_BYTES or share >= CLIFF:
        return None
    return Stability(
        False,
        "spill",
        f"decode is at {share:.0%} of what this depth lets expect and only {size(free)} of the card is free: "
        "memory spills to the host",
    )


def _concurrency(state: SessionState, plan: Preset, run: RunRecord) -> Stability | None:
    for result in run.concurrency:
        if result.failed:
            return Stability(
                False, "concurrency", f"{result.failed} of {result.requested} simultaneous requests failed"
            )
    return None


def growth_per_request(run: RunRecord) -> int | None:
    """Bytes by which the engine grew with each repeated request at the end of `run`.

    The first request allocates what the load did not and is left out; None with fewer than two levels after it.
    """
    slope = slope_bytes([r.memory_bytes for s in run.stability[-1:] for r in s.requests[1:]])
    return None if slope is None else round(slope)


def _repeats(state: SessionState, plan: Preset, run: RunRecord) -> Stability | None:
    for result in run.stability:
        if result.failed:
            of = f"{result.failed} of {result.asked} requests at {result.depth:,} tokens"
            return Stability(False, "leak", f"{of} failed when they were repeated")
    growth, levels = growth_per_request(run), [r.memory_bytes for s in run.stability for r in s.requests]
    level = next((b for b in reversed(levels) if b is not None), None)
    if growth is None or level is None or growth <= max(LEAK_BYTES, LEAK_SHARE * level):
        return None
    return Stability(
        False, "leak", f"memory grows by {size(growth)} with every request: it will run out later"
    )


def _kernel(state: SessionState, plan: Preset, run: RunRecord) -> Stability | None:
    """Attention that left the GPU: the speed of the baseline at the very same depth is gone."""
    base = baseline_of(state)
    if base is None or is_full_precision(run.config) or state.started.device.kind == "host":
        return None
    before = {s.depth: s for s in base.speeds}
    for speed in run.speeds:
        then = before.get(speed.depth)
        pairs = (
            ()
            if then is None
            else (
                ("decode", speed.decode_tps, then.decode_tps),
                ("prefill", speed.prompt_tps, then.prompt_tps),
            )
        )
        for what, now, earlier in pairs:
            if now and earlier and now < KERNEL_SHARE * earlier:
                return Stability(
                    False,
                    "kernel",
                    f"{what} fell to {now / earlier:.0%} of the baseline's at {speed.depth:,} tokens: "
                    f"this build has no fast kernel for {run.config.kv_types}",
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
