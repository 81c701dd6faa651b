"""What a context may cost beside its KV, by name: the items that no figure of the budget contains.

Sources: llama.cpp b11434. The scratch is that of CUDA builds since mid-2026, which reserve an f16 copy of one
layer's whole K and V where the cache is quantized; the server's defaults are 8,192 MiB of prompt cache and 32
checkpoints per slot; speculation keeps `1 + depth` recurrent states (depth 3 by default) and the layers for
next-token prediction in f16.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from kvtui.model.cache_types import CACHE_TYPES
from kvtui.model.context import ContextPlan
from kvtui.model.geometry import Geometry
from kvtui.model.request import ContextRequest

PROMPT_CACHE_BYTES = 8192 << 20
CHECKPOINTS_PER_SLOT = 32
SPECULATION_DEPTH = 3
F16 = 2


@dataclass(frozen=True, slots=True)
class Extra:
    """`n_bytes` at most, on the card or on the host; None where nothing in the file tells."""

    name: str
    place: Literal["card", "host"]
    n_bytes: int | None
    why: str


def extras(geometry: Geometry, request: ContextRequest, made: ContextPlan) -> tuple[Extra, ...]:
    """What this context may cost beside its KV; nothing for a context that is not made."""
    if made.kv_bytes is None:
        return ()
    found = []
    scratch = scratch_bytes(geometry, made)
    if scratch:
        why = "recent CUDA builds keep an f16 copy of one layer of a quantized cache"
        found.append(Extra("f16 scratch", "card", scratch, why))
    speculation = _speculation(geometry, made)
    if speculation:
        why = f"next-token prediction or a draft, with a depth of {SPECULATION_DEPTH}, if switched on"
        found.append(Extra("speculation", "card", speculation, why))
    found.append(Extra("mmproj", "card", None, "weights and graph of a projector, if one is loaded"))
    checkpoint = _checkpoint(geometry, request, made)
    if checkpoint:
        total = checkpoint * CHECKPOINTS_PER_SLOT * max(1, request.n_seq_max)
        why = f"{CHECKPOINTS_PER_SLOT} per slot, as state that slides or recurs cannot be rolled back"
        found.append(Extra("checkpoints", "host", total, why))
    found.append(
        Extra("prompt cache", "host", PROMPT_CACHE_BYTES, "the server's default limit (--cache-ram)")
    )
    return tuple(found)


def scratch_bytes(geometry: Geometry, made: ContextPlan) -> int:
    """The f16 copy of one layer's whole K and V, of the largest cache that is quantized."""
    largest = 0
    for shape, planned in zip(geometry.caches, made.caches, strict=True):
        if shape.kind != "indexer" and any(
            CACHE_TYPES[t].quantized for t in (planned.type_k, planned.type_v)
        ):
            width = max((layer.k + layer.v for layer in shape.layers), default=0)
            largest = max(largest, planned.cells * planned.streams * width * F16)
    return largest


def _speculation(geometry: Geometry, made: ContextPlan) -> int:
    cells = max((c.cells * c.streams for c in made.caches), default=0)
    layers = sum(layer.k + layer.v for layer in geometry.nextn) * cells * F16
    states = made.recurrent.bytes * SPECULATION_DEPTH if made.recurrent and geometry.nextn else 0
    return layers + states


def _checkpoint(geometry: Geometry, request: ContextRequest, made: ContextPlan) -> int:
    """One checkpoint: what slides or recurs, of one sequence."""
    slides = 0
    if not request.swa_full:
        slides = sum(c.bytes for c, s in zip(made.caches, geometry.caches, strict=True) if s.sliding)
    recurs = made.recurrent.bytes if made.recurrent else 0
    return (slides + recurs) // max(1, request.n_seq_max)
