"""The equation that everything hangs on.

usable VRAM = total - desktop and driver reserve
KV budget   = usable - weights on GPU - runtime (compute and graph buffers, workspace)
              - speculative/MTP state - safety margin
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from kvtui.model.context import PAD, plan
from kvtui.model.geometry import Geometry
from kvtui.model.request import ContextRequest

MAX_SEARCH = 1 << 31


@dataclass(frozen=True, slots=True)
class Assumptions:
    """The terms that are not read from the model file, in bytes.

    `runtime_bytes` is everything the engine needs beside weights and KV; `runtime_measured` says whether a
    run has measured it or it is assumed.
    """

    total_bytes: int
    reserve_bytes: int
    runtime_bytes: int
    runtime_measured: bool
    margin_bytes: int
    speculative_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Budget:
    """Every term of the equation, in bytes. `kv_budget_bytes` is negative where even the weights do not fit."""

    total_bytes: int
    reserve_bytes: int
    usable_bytes: int
    weights_bytes: int
    runtime_bytes: int
    runtime_measured: bool
    speculative_bytes: int
    margin_bytes: int
    kv_budget_bytes: int

    def over_bytes(self, kv_bytes: int) -> int:
        """Bytes by which `kv_bytes` go over the budget; zero or negative where they fit."""
        return kv_bytes - self.kv_budget_bytes

    def fits(self, kv_bytes: int) -> bool:
        """Whether `kv_bytes` fit and leave the margin."""
        return kv_bytes <= self.kv_budget_bytes


@dataclass(frozen=True, slots=True)
class LargestContext:
    """`tokens` of context that fit (a multiple of 256, 0: none), after the cap at the trained context.

    `by_memory` is what memory alone would hold, None where memory sets no limit below 2^31 tokens;
    `refused` says why the engine makes no such context at all.
    """

    tokens: int
    by_memory: int | None
    capped: bool
    refused: str | None = None


def budget(weights_gpu_bytes: int, assumptions: Assumptions) -> Budget:
    """What is left for the KV cache."""
    usable = assumptions.total_bytes - assumptions.reserve_bytes
    taken = (
        weights_gpu_bytes
        + assumptions.runtime_bytes
        + assumptions.speculative_bytes
        + assumptions.margin_bytes
    )
    return Budget(
        total_bytes=assumptions.total_bytes,
        reserve_bytes=assumptions.reserve_bytes,
        usable_bytes=usable,
        weights_bytes=weights_gpu_bytes,
        runtime_bytes=assumptions.runtime_bytes,
        runtime_measured=assumptions.runtime_measured,
        speculative_bytes=assumptions.speculative_bytes,
        margin_bytes=assumptions.margin_bytes,
        kv_budget_bytes=usable - taken,
    )


def largest_context(geometry: Geometry, request: ContextRequest, kv_budget_bytes: int) -> LargestContext:
    """The largest `-c` whose KV stays within the budget, all other options as in `request`."""
    step = PAD * (1 if request.kv_unified else max(1, request.n_seq_max))
    smallest = plan(geometry, replace(request, ctx=step))
    if smallest.kv_bytes is None:
        return LargestContext(0, 0, capped=False, refused=smallest.refused or "; ".join(geometry.notes))

    def fits(steps: int) -> bool:
        kept = plan(geometry, replace(request, ctx=steps * step)).kv_bytes
        return kept is not None and kept <= kv_budget_bytes

    if not fits(1):
        return LargestContext(0, 0, capped=False)
    low, high = 1, 2
    while fits(high):
        low, high = high, high * 2
        if high * step >= MAX_SEARCH:
            return _capped(geometry, request, None)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return _capped(geometry, request, low * step)


def _capped(geometry: Geometry, request: ContextRequest, by_memory: int | None) -> LargestContext:
    trained = geometry.n_ctx_train
    slots = 1 if request.kv_unified else max(1, request.n_seq_max)
    limit = trained * slots // PAD * PAD if trained else None
    if limit is None:
        return LargestContext(by_memory or 0, by_memory, capped=False)
    if by_memory is None or by_memory > limit:
        return LargestContext(limit, by_memory, capped=True)
    return LargestContext(by_memory, by_memory, capped=False)
