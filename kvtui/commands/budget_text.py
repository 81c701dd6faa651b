"""`kvtui budget` for a person: the caches, the formula with this model's numbers, a stacked bar, what fits."""

from __future__ import annotations

import textwrap

from kvtui.commands.budget_card import Money
from kvtui.core.text import clip
from kvtui.core.units import size, tokens
from kvtui.model.budget import LargestContext
from kvtui.model.cache_types import CACHE_TYPES
from kvtui.model.context import ContextPlan
from kvtui.model.extras import extras
from kvtui.model.geometry import Geometry
from kvtui.model.header import Header
from kvtui.model.request import ContextRequest
from kvtui.model.weights import WeightPlacement
from kvtui.sources.source import GgufModel

WIDTH = 80
BAR = 72
_FILL = {"reserve": "▒", "weights": "█", "KV": "▓", "runtime": "▚", "margin": "·", "free": " "}

Rows = list[tuple[ContextRequest, ContextPlan]]
PairRow = tuple[ContextRequest, list[ContextPlan], LargestContext]


def text(
    source: GgufModel,
    shape: Geometry,
    placement: WeightPlacement,
    rows: Rows,
    money: Money | None,
    pairs: list[PairRow],
) -> str:
    """The whole page, without colour, at most 80 columns wide where names allow."""
    lines = [
        _title(source.header),
        *(_prose(f"source   {note}") for note in source.notes),
        *_weights(placement),
    ]
    for request, made in rows:
        lines += ["", *_context(shape, request, made)]
    if money is not None:
        lines += ["", *_bar(money, rows[0][1]), "", *_pairs(pairs)]
    lines += ["", *_extras(shape, *rows[0])]
    lines += [_prose(f"note: {note}") for note in shape.notes]
    return "\n".join(line.rstrip() for line in lines)


def _prose(line: str, indent: int = 9) -> str:
    return textwrap.fill(line, WIDTH, subsequent_indent=" " * indent, break_long_words=False)


def _title(header: Header) -> str:
    trained = f"trained for {tokens(header.n_ctx_train)}" if header.n_ctx_train else "no trained length"
    parts = (
        header.name or header.path,
        header.arch,
        header.quant or "mixed",
        f"{header.n_layer} layers",
        trained,
    )
    return clip("  ".join(parts), WIDTH)


def _weights(placement: WeightPlacement) -> list[str]:
    on, total = placement.offloaded
    lines = [
        f"weights  {size(placement.gpu_bytes)} on the GPU ({on}/{total} layers), "
        f"{size(placement.host_bytes)} on the host"
    ]
    if placement.nextn_bytes:
        lines.append(
            f"         {size(placement.nextn_bytes)} of next-token prediction, not loaded for the main context"
        )
    return lines


def _context(shape: Geometry, request: ContextRequest, made: ContextPlan) -> list[str]:
    shared = "unified" if request.kv_unified else "divided"
    slots = f", {request.n_seq_max} sequences {shared}" if request.n_seq_max > 1 else ""
    lines = [
        _prose(
            f"context  {made.n_ctx:,} tokens{slots}, {made.usable_per_slot:,} usable per slot, "
            f"-ub {made.n_ubatch}, K {request.type_k}, V {request.type_v}"
        )
    ]
    if made.refused:
        return [*lines, _prose(f"refused  {made.refused}")]
    if made.exactness == "unknown":
        return [*lines, "KV       unknown"]
    lines += _table(made)
    lines.append(f"KV       {size(made.kv_bytes or 0)} ({made.exactness})")
    lines += _formula(shape, made)
    lines += [_prose(f"note: {note}") for note in made.notes]
    return lines


def _table(made: ContextPlan) -> list[str]:
    lines = [f"         {'cache':<10}{'layers':>6}{'cells':>11}{'streams':>8}{'K':>12}{'V':>12}{'size':>12}"]
    lines += [
        f"         {c.kind:<10}{c.layers:>6}{c.cells:>11,}{c.streams:>8}"
        f"{size(c.k_bytes):>12}{size(c.v_bytes):>12}{size(c.bytes):>12}"
        for c in made.caches
        if c.layers
    ]
    if made.recurrent:
        lines.append(f"         {'recurrent':<50}{'f32':>9}{size(made.recurrent.bytes):>12}")
    if made.state_bytes:
        lines.append(f"         {'compressor':<50}{'f32':>9}{size(made.state_bytes):>12}")
    return lines if len(lines) > 1 else []


def _formula(shape: Geometry, made: ContextPlan) -> list[str]:
    lines = []
    for cache, planned in zip(shape.caches, made.caches, strict=True):
        if cache.layers:
            k, v = sum(layer.k for layer in cache.layers), sum(layer.v for layer in cache.layers)
            values = f"({k:,} K x {_bytes(planned.type_k)}" + (
                f" + {v:,} V x {_bytes(planned.type_v)})" if v else ")"
            )
            lines.append(f"         = {planned.cells:,} cells x {planned.streams} x {values} bytes")
    conventional, kept = made.conventional_kv_bytes, made.kv_bytes
    if kept is not None and conventional and conventional != kept:
        lines.append(_prose(f"         the conventional formula says {size(conventional)}: {_why(shape)}"))
    return lines


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


def _extras(shape: Geometry, request: ContextRequest, made: ContextPlan) -> list[str]:
    """What no figure above contains."""
    lines = []
    for extra in extras(shape, request, made):
        amount = "unknown" if extra.n_bytes is None else f"up to {size(extra.n_bytes)}"
        lines.append(_prose(f"  {extra.name:<13} {extra.place}  {amount}: {extra.why}", 22))
    return ["not counted", *lines] if lines else []


def _bar(money: Money, made: ContextPlan) -> list[str]:
    kept, terms = made.kv_bytes, money.budget
    parts = [
        ("reserve", terms.reserve_bytes),
        ("weights", terms.weights_bytes),
        ("KV", kept or 0),
        ("runtime", terms.runtime_bytes),
        ("margin", terms.margin_bytes),
    ]
    used = sum(n for _, n in parts)
    scale = max(terms.total_bytes, used, 1)
    free = max(0, terms.total_bytes - used)
    bar = "".join(_FILL[name] * round(BAR * n / scale) for name, n in [*parts, ("free", free)])
    sources = {
        "reserve": f" ({money.reserve_source})",
        "runtime": " (given)" if terms.runtime_measured else " (assumed)",
    }
    card = f"  {clip(money.card, 50)}" if money.card else ""
    lines = [f"card     {size(terms.total_bytes)}{card}", f"[{bar[:BAR]:<{BAR}}]"]
    for name, n in parts:
        if n or name != "reserve" or money.reserve_source == "not measured":
            shown = "unknown" if name == "KV" and kept is None else size(n)
            lines.append(f"  {_FILL[name]} {name:<9}{shown:>12}{sources.get(name, '')}")
    if kept is None:
        return [*lines, f"budget   {size(terms.kv_budget_bytes)} for KV"]
    over = terms.over_bytes(kept)
    verdict = f"does not fit: {size(over)} too much" if over > 0 else f"fits, {size(-over)} to spare"
    return [*lines, f"budget   {size(terms.kv_budget_bytes)} for KV: {verdict}"]


def _pairs(pairs: list[PairRow]) -> list[str]:
    heads = "".join(f"{tokens(p.n_ctx):>11}" for p in pairs[0][1]) if pairs else ""
    lines = [f"KV at    {'':<10}{heads}  largest -c"]
    for asked, plans, largest in pairs:
        cells = "".join(f"{'-' if p.kv_bytes is None else size(p.kv_bytes):>11}" for p in plans)
        shown = "refused" if largest.refused else f"{largest.tokens:,}{'*' if largest.capped else ''}"
        name = asked.type_k if asked.type_k == asked.type_v else f"{asked.type_k}/{asked.type_v}"
        lines.append(f"         {name:<10}{cells}  {shown}")
    if any(largest.capped for _, _, largest in pairs):
        lines.append("         * the trained context: memory would hold more")
    return lines
