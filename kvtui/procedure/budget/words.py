"""The budget in words and in proportions: the formula with a model's numbers, the parts of the card, the verdict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kvtui.core.units import GIB, size, tokens
from kvtui.model.budget import LargestContext
from kvtui.model.cache_types import CACHE_TYPES
from kvtui.model.context import ContextPlan
from kvtui.model.geometry import Geometry
from kvtui.model.header import Header
from kvtui.procedure.budget.card import Card
from kvtui.procedure.budget.money import MeasuredRuntime, Money
from kvtui.procedure.budget.split import Share

GLYPHS = {"reserve": "▒", "weights": "█", "KV": "▓", "runtime": "▚", "margin": "·", "free": " "}
"""What tells the parts of the card apart in a bar, without colour."""


@dataclass(frozen=True, slots=True)
class Part:
    """One part of the card. `n_bytes` None: not known; `source` says who tells it where that is a question."""

    name: str
    n_bytes: int | None
    source: str = ""


def title(header: Header) -> str:
    """The model in one line: its name, architecture, weights, layers, and the context it was trained for."""
    trained = f"trained for {tokens(header.n_ctx_train)}" if header.n_ctx_train else "no trained length"
    layers = f"{header.n_layer} layers"
    return "  ".join((header.name or header.path, header.arch, header.quant or "mixed", layers, trained))


def parts(money: Money, kv_bytes: int | None) -> tuple[Part, ...]:
    """What is laid on the card, in the order in which it is stacked; what is free is not among them."""
    terms = money.budget
    return (
        Part("reserve", terms.reserve_bytes, money.reserve_source),
        Part("weights", terms.weights_bytes),
        Part("KV", kv_bytes),
        Part("runtime", terms.runtime_bytes, money.runtime_source),
        Part("margin", terms.margin_bytes),
    )


def measured_by(measured: MeasuredRuntime) -> str:
    """`session 20261129-101010-bbbb, run 3, at 64K`."""
    return f"session {measured.session}, run {measured.run}, at {tokens(measured.n_ctx)}"


def card_name(card: Card) -> str:
    """The name, with the single memories where there are several; empty for one that was given."""
    if not card.gpus:
        return card.name or ""
    each = " + ".join(f"{gpu.total_bytes / GIB:.2f}" for gpu in card.gpus)
    return f"{card.name or f'{len(card.gpus)} cards given'}: the sum of {each}"


SPLIT_RULE = "about: layers in proportion to free memory, compute buffers not counted"


def share(one: Share, number: int) -> str:
    """One GPU of several: `GPU 0  17 layers + output, 5.40 GiB + 1.20 GiB KV of 15.75 GiB`."""
    index = number if one.gpu.index is None else one.gpu.index
    layers = f"{one.layers} layers{' + output' if one.output else ''}"
    over = f", {size(one.over_bytes)} too much" if one.over_bytes > 0 else ""
    return (
        f"GPU {index}  {layers}, {size(one.weights_bytes)} + {size(one.kv_bytes)} KV"
        f" of {size(one.free_bytes)}{over}"
    )


def free_bytes(money: Money, stacked: Sequence[Part]) -> int:
    """What the parts leave of the card, 0 where they take more than it has."""
    return max(0, money.budget.total_bytes - _sum(stacked))


def scale_bytes(money: Money, stacked: Sequence[Part]) -> int:
    """What the whole bar stands for: the card, or the parts where they take more."""
    return max(money.budget.total_bytes, _sum(stacked), 1)


def _sum(stacked: Sequence[Part]) -> int:
    return sum(part.n_bytes or 0 for part in stacked)


def verdict(money: Money, kv_bytes: int) -> str:
    """`fits, 1.20 GiB to spare`, or by how much it does not."""
    over = money.budget.over_bytes(kv_bytes)
    return f"does not fit: {size(over)} too much" if over > 0 else f"fits, {size(-over)} to spare"


def largest(found: LargestContext | None) -> str:
    """`45,056`, with a star where the trained context is the limit; `refused`; empty where no memory is known."""
    if found is None:
        return ""
    return "refused" if found.refused else f"{found.tokens:,}{'*' if found.capped else ''}"


def formula(shape: Geometry, made: ContextPlan) -> list[str]:
    """One term per cache with this model's numbers: `32,768 cells x 1 x (768 K x 2 + 768 V x 2) bytes`."""
    terms = []
    for cache, planned in zip(shape.caches, made.caches, strict=True):
        if cache.layers:
            k, v = sum(layer.k for layer in cache.layers), sum(layer.v for layer in cache.layers)
            values = f"({k:,} K x {_bytes(planned.type_k)}" + (
                f" + {v:,} V x {_bytes(planned.type_v)})" if v else ")"
            )
            terms.append(f"{planned.cells:,} cells x {planned.streams} x {values} bytes")
    return terms


def deviation(shape: Geometry, made: ContextPlan) -> str:
    """What the conventional formula says, and why it is wrong; empty where it is right."""
    conventional, kept = made.conventional_kv_bytes, made.kv_bytes
    if kept is None or not conventional or conventional == kept:
        return ""
    return f"the conventional formula says {size(conventional)}: {_why(shape)}"


def _bytes(name: str) -> str:
    kind = CACHE_TYPES[name]
    return f"{kind.n_bytes}/{kind.block}" if kind.block > 1 else str(kind.n_bytes)


def _why(shape: Geometry) -> str:
    """What the conventional formula (every layer keeps the whole context) leaves out."""
    reasons = []
    sliding = sum(len(c.layers) for c in shape.caches if c.sliding)
    if sliding:
        reasons.append(f"{sliding} layers slide")
    if shape.recurrent is not None and shape.recurrent.layers:
        reasons.append(f"{len(shape.recurrent.layers)} layers keep a state instead")
    if any(c.kind == "indexer" and c.layers for c in shape.caches):
        reasons.append("an indexer has keys of its own")
    if any(c.ratio > 1 for c in shape.caches):
        reasons.append("caches are compressed")
    if shape.equal_types:
        reasons.append("keys alone are kept")
    owners = sum(len(c.layers) for c in shape.caches)
    if not reasons and shape.n_layer and owners < shape.n_layer:
        reasons.append(f"{owners} of {shape.n_layer} layers own a cache")
    return ", ".join(reasons) or "cells are padded"
