"""The budget of a model before anything is launched: the list of models, and one model in figures."""

from __future__ import annotations

from collections.abc import Sequence

from kvtui.core.text import clip
from kvtui.core.units import GIB, MIB, size, tokens
from kvtui.model.context import ContextPlan
from kvtui.model.extras import extras
from kvtui.model.request import ContextRequest
from kvtui.procedure.budget import words
from kvtui.procedure.budget.explore import SUGGESTED_GIB
from kvtui.procedure.budget.listing import Largest, ModelRow
from kvtui.procedure.budget.money import Money
from kvtui.procedure.budget.question import STAGES, TYPE_PAIRS, Answer, PairRow, pair_name
from kvtui.tui.lines import EMPTY, Line, Span, columns, fit, labelled, line, tint, width_of, wrap

TONES = {"reserve": "others", "weights": "weights", "KV": "kv", "runtime": "compute", "margin": "other"}
_PAIR_W = 11


def list_head(cells: int, *, budgeted: bool) -> list[Line]:
    """What the columns of the list mean."""
    what = "largest -c that fits (* trained)" if budgeted else f"KV at {tokens(STAGES[0])}"
    heads = [(line(Span(pair_name(*pair), "dim")), -_PAIR_W) for pair in TYPE_PAIRS]
    return [columns([(line(Span(f" {what}", "dim")), cells - _PAIR_W * len(heads)), *heads])]


def list_row(row: ModelRow, cells: int) -> Line:
    """One model; the beginning of its path gives way, not its name."""
    room = cells - _PAIR_W * len(TYPE_PAIRS)
    if row.error:
        name = line(" ", Span(tail(row.name, min(room, 34) - 1), "dim"))
        return fit(line(fit(name, min(room, 34)), Span(f" {row.error}", "bad")), cells)
    figures = [(_figure(pair), -_PAIR_W) for pair in row.pairs]
    return columns([(line(" ", Span(tail(row.name, room - 2), "strong")), room), *figures])


def tail(text: str, cells: int) -> str:
    """`text`, cut at its beginning where it is too long."""
    return clip(text[::-1], cells)[::-1]


def _figure(pair: Largest) -> Line:
    if pair.refused:
        return line(Span("refused", "bad"))
    if pair.kv_bytes is None:
        return line(Span("unknown", "warn"))
    if pair.largest is None:
        return line(size(pair.kv_bytes))
    text = words.largest(pair.largest)
    return line(Span(text, "" if pair.largest.tokens else "bad"))


def model(made: Answer, cells: int) -> list[Line]:
    """Everything of one model, at most `cells` wide: what is at a glance first."""
    out = [_choice(made, cells), EMPTY]
    out += _card(made, made.money, cells) if made.money else _no_card(made, cells)
    return [*out, EMPTY, *_table(made, cells), EMPTY, *_caches(made, cells), EMPTY, *_rest(made, cells)]


def _choice(made: Answer, cells: int) -> Line:
    request = made.request
    shared = " unified" if request.kv_unified else " divided" if request.n_seq_max > 1 else ""
    values = (
        ("context", tokens(request.ctx)),
        ("KV", pair_name(*made.types)),
        ("slots", f"{request.n_seq_max}{shared}"),
        ("-ub", str(request.n_ubatch)),
    )
    spans: list[Span] = []
    for name, value in values:
        spans += [Span(f"{name} ", "dim"), Span(value, "strong"), Span("   ")]
    each = f"{made.made.usable_per_slot:,} usable" + (" per slot" if request.n_seq_max > 1 else "")
    return fit(line(*spans, Span(each, "dim")), cells)


def _no_card(made: Answer, cells: int) -> list[Line]:
    text = (
        "No GPU is seen here, so nothing tells what fits. v takes the memory of a card in GiB"
        f" ({SUGGESTED_GIB} is suggested)."
    )
    return [
        *_verdict(made, cells),
        *labelled("card", text, cells, tone="warn"),
    ]


def _card(made: Answer, money: Money, cells: int) -> list[Line]:
    card = money.card
    name = words.card_name(card) or "given"
    head = fit(line(Span("card    ", "dim"), Span(size(card.total_bytes), "strong"), f"  {name}"), cells)
    stacked = words.parts(money, made.made.kv_bytes)
    out = [head, bar(money, stacked, cells), *_legend(money, stacked, cells), *_verdict(made, cells)]
    shares = made.shares
    if shares:
        out += labelled("split", words.SPLIT_RULE, cells)
    for n, one in enumerate(shares):
        out += labelled("", words.share(one, n), cells, tone="bad" if one.over_bytes > 0 else "")
    return out


def bar(money: Money, stacked: Sequence[words.Part], cells: int) -> Line:
    """The card as a bar, every part at least one cell; where the parts take more, the card's end is marked."""
    room = cells - 2
    scale = words.scale_bytes(money, stacked)
    known = [part for part in stacked if part.n_bytes]
    widths = [max(1, round(room * (part.n_bytes or 0) / scale)) for part in known]
    free = words.free_bytes(money, stacked)
    while sum(widths) > room - (1 if free else 0) and max(widths, default=0) > 1:
        widths[widths.index(max(widths))] -= 1
    body = line(
        *(Span(words.GLYPHS[part.name] * n, TONES[part.name]) for part, n in zip(known, widths, strict=True))
    )
    end = round(room * money.budget.total_bytes / scale)
    if end < room:
        body = line(_cut(body, 0, end), Span("│", "bad strong"), _cut(body, end + 1, room))
    return line(Span("[", "dim"), fit(body, room), Span("]", "dim"))


def _cut(spans: Line, start: int, end: int) -> Line:
    """The cells from `start` to `end` of a line without wide characters."""
    out, at = [], 0
    for span in spans:
        out.append(Span(span.text[max(0, start - at) : max(0, end - at)], span.tone))
        at += len(span.text)
    return line(*out)


def _legend(money: Money, stacked: Sequence[words.Part], cells: int) -> list[Line]:
    """The parts in figures, as many in a line as fit."""
    items = [_item(part) for part in stacked]
    items.append(line(Span("free ", "dim"), _amount(words.free_bytes(money, stacked))))
    rows: list[Line] = [EMPTY]
    for item in items:
        if rows[-1] and width_of(rows[-1]) + 2 + width_of(item) > cells:
            rows.append(EMPTY)
        rows[-1] = line(rows[-1], "  " if rows[-1] else "", item)
    if money.measured is not None:
        text = f"runtime measured by {words.measured_by(money.measured)}"
        rows += [line(Span(row, "dim")) for row in wrap(text, cells)]
    return rows


def _item(part: words.Part) -> Line:
    glyph, tone = words.GLYPHS[part.name], TONES[part.name]
    amount = "unknown" if part.n_bytes is None else _amount(part.n_bytes)
    source = Span(f" ({part.source})", "warn" if part.source in ("assumed", "not measured") else "dim")
    return line(Span(glyph, tone), Span(f" {part.name} ", "dim"), amount, source if part.source else "")


def _amount(n_bytes: int) -> str:
    return f"{n_bytes / GIB:.2f} GiB" if n_bytes >= GIB // 10 else f"{n_bytes / MIB:.0f} MiB"


def _verdict(made: Answer, cells: int) -> list[Line]:
    money, kept = made.money, made.made.kv_bytes
    if made.made.refused:
        return [line(Span(row, "bad")) for row in wrap(f"✗ refused: {made.made.refused}", cells)]
    if kept is None:
        return [line(Span("KV unknown", "warn"))]
    figure = line(Span("KV ", "dim"), Span(size(kept), "strong"), Span(f" ({made.made.exactness})", "dim"))
    if money is None:
        return [fit(figure, cells)]
    mark, tone = ("✓", "good") if made.fits else ("✗", "bad")
    said = Span(f"{mark} {words.verdict(money, kept)}", tone)
    budget = line(Span("budget ", "dim"), size(money.budget.kv_budget_bytes), Span(" for KV", "dim"))
    whole = line(said, "   ", figure, "   ", budget)
    return (
        [whole]
        if width_of(whole) <= cells
        else [fit(line(said), cells), fit(line(figure, "   ", budget), cells)]
    )


def _table(made: Answer, cells: int) -> list[Line]:
    """KV types by context; the chosen ones are marked."""
    largest_w = 13 if made.money else 0
    room = cells - 14 - largest_w
    shown = STAGES[: max(1, min(len(STAGES), room // 12))]
    each = min(13, room // len(shown))
    heads = [(line(Span(_head(ctx, made.request), "dim")), -each) for ctx in shown]
    last = [(line(Span("largest -c", "dim")), -largest_w)] if largest_w else []
    out = [columns([(line(Span("KV at", "dim")), 14), *heads, *last])]
    for row in made.pairs:
        figures = [(_planned(plan, made), -each) for plan in row.plans[: len(shown)]]
        end = [(_largest(row), -largest_w)] if largest_w else []
        chosen = row.types == made.types
        name = line(Span("▶ " if chosen else "  ", "accent"), Span(row.name, "strong" if chosen else ""))
        out.append(columns([(name, 14), *figures, *end]))
    if any(row.largest and row.largest.capped for row in made.pairs):
        out.append(line(Span("* the trained context: memory would hold more", "dim")))
    return [fit(row, cells) for row in out]


def _head(ctx: int, request: ContextRequest) -> str:
    return f"›{tokens(ctx)}" if ctx == request.ctx else tokens(ctx)


def _planned(plan: ContextPlan, made: Answer) -> Line:
    if plan.kv_bytes is None:
        return line(Span("refused" if plan.refused else "unknown", "bad" if plan.refused else "warn"))
    fits = made.money is None or made.money.budget.fits(plan.kv_bytes)
    return line(Span(size(plan.kv_bytes) if fits else f"✗ {size(plan.kv_bytes)}", "" if fits else "bad"))


def _largest(row: PairRow) -> Line:
    text = words.largest(row.largest)
    return line(Span(text, "bad" if text in ("refused", "0") else "strong"))


def _caches(made: Answer, cells: int) -> list[Line]:
    plan = made.made
    if plan.kv_bytes is None:
        return []
    rows = [("cache", "layers", "cells", "streams", "K", "V", "size")]
    for c in plan.caches:
        if c.layers:
            figures = (size(c.k_bytes), size(c.v_bytes), size(c.bytes))
            rows.append((c.kind, str(c.layers), f"{c.cells:,}", str(c.streams), *figures))
    if plan.recurrent:
        rows.append(("recurrent", "", "", "", "f32", "", size(plan.recurrent.bytes)))
    if plan.state_bytes:
        rows.append(("compressor", "", "", "", "f32", "", size(plan.state_bytes)))
    widths = (12, -7, -11, -8, -12, -12, -12) if cells >= 74 else (10, 0, -10, 0, 0, 0, -12)
    out = [columns([(line(cell), w) for cell, w in zip(row, widths, strict=True) if w]) for row in rows]
    out[0] = tint(out[0], "dim")
    for n, term in enumerate(words.formula(made.shape, plan)):
        out += labelled("KV =" if n == 0 else "   +", term, cells)
    if deviation := words.deviation(made.shape, plan):
        out += labelled("", deviation, cells, tone="accent")
    return out


def _rest(made: Answer, cells: int) -> list[Line]:
    """What no figure contains, and what else is to be known."""
    on, total = made.placement.offloaded
    weights = (
        f"{size(made.placement.gpu_bytes)} on the GPU ({on}/{total} layers),"
        f" {size(made.placement.host_bytes)} on the host"
    )
    out = labelled("weights", weights, cells)
    for note in (*made.source.notes, *made.made.notes, *made.shape.notes):
        out += labelled("note", note, cells)
    not_counted = extras(made.shape, made.request, made.made)
    if not_counted:
        out += [EMPTY, line(Span("Not counted", "title"))]
    for extra in not_counted:
        amount = "unknown" if extra.n_bytes is None else f"up to {size(extra.n_bytes)}"
        rows = wrap(f"{extra.place}  {amount}: {extra.why}", cells - 16)
        out += [line(Span(f"  {extra.name if n == 0 else '':<14}", "dim"), row) for n, row in enumerate(rows)]
    return out
