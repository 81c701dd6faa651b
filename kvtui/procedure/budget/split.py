"""How llama.cpp would lay a model over several GPUs: by layers, in proportion to the memory that is free.

The rule (llama.cpp b11434, `load_tensors`): the layers on GPUs and the output, which counts as the last, are
positions 0 to n - 1; position i goes to the first GPU whose share of the free memory, added to that of the GPUs before
it, is above i / n. K, V and states of a layer lie where its weights do. It is an approximation: free memory changes,
compute buffers come on top, and `-ts`, `-sm` and the engine's own fitting change it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from kvtui.model.context import ContextPlan
from kvtui.model.geometry import Geometry
from kvtui.model.weights import WeightPlacement
from kvtui.procedure.budget.card import Gpu


@dataclass(frozen=True, slots=True)
class Share:
    """What one GPU gets: layers (the output not counted among them) and bytes, and the bytes that are free there."""

    gpu: Gpu
    layers: int
    output: bool
    weights_bytes: int
    kv_bytes: int
    free_bytes: int

    @property
    def over_bytes(self) -> int:
        """By how much weights and KV alone are more than is free; negative where they are less."""
        return self.weights_bytes + self.kv_bytes - self.free_bytes


def split(
    shape: Geometry,
    placement: WeightPlacement,
    made: ContextPlan,
    gpus: Sequence[Gpu],
    n_cpu_moe: int | None = None,
) -> tuple[Share, ...]:
    """One share for each of `gpus`; empty for a single one, and where what a layer keeps cannot be told apart."""
    on_gpu, positions = placement.offloaded
    free = [max(0, gpu.total_bytes - (gpu.used_bytes or 0)) for gpu in gpus]
    if len(gpus) < 2 or not on_gpu or not sum(free) or made.kv_bytes is None or made.state_bytes:
        return ()
    first = positions - on_gpu
    ends = [end / sum(free) for end in accumulate(free)]
    kept = dict.fromkeys(range(positions), 0)
    for layer, n_bytes in _kept(shape, made):
        kept[layer] = kept.get(layer, 0) + n_bytes
    layers, weights, kv = ([0] * len(gpus) for _ in range(3))

    def place_of(position: int) -> int:
        return min(bisect_right(ends, (position - first) / on_gpu), len(gpus) - 1)

    for one in placement.layers:
        if one.on_gpu:
            at = place_of(one.layer)
            layers[at] += 1
            weights[at] += one.n_bytes - (one.expert_bytes if one.layer < (n_cpu_moe or 0) else 0)
            kv[at] += kept[one.layer]
    last = place_of(positions - 1)
    weights[last] += placement.output_bytes
    return tuple(Share(gpu, layers[n], n == last, weights[n], kv[n], free[n]) for n, gpu in enumerate(gpus))


def _kept(shape: Geometry, made: ContextPlan) -> Iterator[tuple[int, int]]:
    """Layer and bytes: each cache in proportion to what its layers keep, states in equal parts."""
    for cache, planned in zip(shape.caches, made.caches, strict=True):
        k, v = sum(one.k for one in cache.layers), sum(one.v for one in cache.layers)
        for one in cache.layers:
            yield (
                one.layer,
                (planned.k_bytes * one.k // k if k else 0) + (planned.v_bytes * one.v // v if v else 0),
            )
    if shape.recurrent is not None and made.recurrent is not None:
        for layer in shape.recurrent.layers:
            yield layer, made.recurrent.bytes // len(shape.recurrent.layers)
