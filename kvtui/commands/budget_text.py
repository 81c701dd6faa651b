"""`kvtui budget` for a person: the caches, the formula with this model's numbers, a stacked bar, what fits."""

from __future__ import annotations

import textwrap

from kvtui.core.text import clip
from kvtui.core.units import size, tokens
from kvtui.model.context import ContextPlan
from kvtui.model.extras import extras
from kvtui.model.geometry import Geometry
from kvtui.model.request import ContextRequest
from kvtui.model.weights import WeightPlacement
from kvtui.procedure.budget import words
from kvtui.procedure.budget.money import Money
from kvtui.procedure.budget.question import Answer, PairRow

WIDTH = 80
BAR = 72

Rows = list[tuple[ContextRequest, ContextPlan]]


def text(answer: Answer, rows: Rows) -> str:
    """The whole page, without colour, at most 80 columns wide where names allow; `rows` are all contexts asked for."""
    lines = [
        clip(words.title(answer.source.header), WIDTH),
        *(_prose(f"source   {note}") for note in answer.source.notes),
        *_weights(answer.placement),
    ]
    for request, made in rows:
        lines += ["", *_context(answer.shape, request, made)]
    if answer.money is not None:
        lines += ["", *_bar(answer.money, answer.made), *_split(answer), "", *_pairs(answer.pairs)]
    lines += ["", *_extras(answer.shape, answer.request, answer.made)]
    lines += [_prose(f"note: {note}") for note in answer.shape.notes]
    return "\n".join(line.rstrip() for line in lines)


def _prose(line: str, indent: int = 9) -> str:
    return textwrap.fill(line, WIDTH, subsequent_indent=" " * indent, break_long_words=False)


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
    lines = [f"         = {term}" for term in words.formula(shape, made)]
    deviation = words.deviation(shape, made)
    return [*lines, _prose(f"         {deviation}")] if deviation else lines


def _extras(shape: Geometry, request: ContextRequest, made: ContextPlan) -> list[str]:
    """What no figure above contains."""
    lines = []
    for extra in extras(shape, request, made):
        amount = "unknown" if extra.n_bytes is None else f"up to {size(extra.n_bytes)}"
        lines.append(_prose(f"  {extra.name:<13} {extra.place}  {amount}: {extra.why}", 22))
    return ["not counted", *lines] if lines else []


def _bar(money: Money, made: ContextPlan) -> list[str]:
    kept, terms = made.kv_bytes, money.budget
    parts = words.parts(money, kept)
    scale, free = words.scale_bytes(money, parts), words.free_bytes(money, parts)
    stacked = [*((part.name, part.n_bytes or 0) for part in parts), ("free", free)]
    bar = "".join(words.GLYPHS[name] * round(BAR * n / scale) for name, n in stacked)
    card = f"  {clip(words.card_name(money.card), 60)}" if words.card_name(money.card) else ""
    lines = [f"card     {size(terms.total_bytes)}{card}", f"[{bar[:BAR]:<{BAR}}]"]
    for part in parts:
        if part.n_bytes or part.name != "reserve" or part.source == "not measured":
            shown = "unknown" if part.n_bytes is None else size(part.n_bytes)
            source = f" ({part.source})" if part.source else ""
            lines.append(f"  {words.GLYPHS[part.name]} {part.name:<9}{shown:>12}{source}")
    if money.measured is not None:
        lines.append(_prose(f"  runtime measured by {words.measured_by(money.measured)}", 4))
    verdict = "" if kept is None else f": {words.verdict(money, kept)}"
    return [*lines, f"budget   {size(terms.kv_budget_bytes)} for KV{verdict}"]


def _split(answer: Answer) -> list[str]:
    shares = answer.shares
    rows = [_prose(f"         {words.share(one, n)}", 16) for n, one in enumerate(shares)]
    return ["", _prose(f"split    {words.SPLIT_RULE}"), *rows] if shares else []


def _pairs(pairs: tuple[PairRow, ...]) -> list[str]:
    heads = "".join(f"{tokens(p.n_ctx):>11}" for p in pairs[0].plans) if pairs else ""
    lines = [f"KV at    {'':<10}{heads}  largest -c"]
    for row in pairs:
        cells = "".join(f"{'-' if p.kv_bytes is None else size(p.kv_bytes):>11}" for p in row.plans)
        lines.append(f"         {row.name:<10}{cells}  {words.largest(row.largest)}")
    if any(row.largest and row.largest.capped for row in pairs):
        lines.append("         * the trained context: memory would hold more")
    return lines
