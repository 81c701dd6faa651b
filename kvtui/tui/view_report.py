"""The report as it is read on a screen: its Markdown taken apart and set for the width there is."""

from __future__ import annotations

from collections.abc import Iterator

from kvtui.core.text import clip, width
from kvtui.report.markdown_blocks import Block, Code, Heading, Inline, Items, Table, blocks
from kvtui.tui.lines import EMPTY, Line, Span, line, wrap

_TONES = {"plain": "", "strong": "strong", "code": "accent"}


def report(markdown: str, cells: int) -> list[Line]:
    """The whole report, at most `cells` wide; nothing of it is lost."""
    out: list[Line] = []
    for block in blocks(markdown):
        # A heading keeps to what it heads.
        if out and not (isinstance(block, Heading) and not out[-1]):
            out.append(EMPTY)
        out += _block(block, cells)
    return out


def _block(block: Block, cells: int) -> Iterator[Line]:
    match block:
        case Heading(level, text):
            yield from _set(text, cells, tone="title")
            if level < 3:
                yield line(Span("─" * min(cells, _width(text)), "rule"))
        case Table():
            yield from _table(block, cells)
        case Code(lines):
            for row in lines:
                lead = len(row) - len(row.lstrip())
                for part in wrap(row.strip(), cells - 2 - lead) or [""]:
                    yield line("  " + " " * lead, Span(part, "accent"))
        case Items(items):
            for text, below in items:
                yield from _set(text, cells, lead="• ")
                for each in below:
                    yield from _set(each, cells, lead="    ")
        case _:
            yield from _set(block.text, cells)


def _table(table: Table, cells: int) -> Iterator[Line]:
    """Columns where they fit; else one entry a row, each cell behind the name of its column."""
    named = any(table.head[0]) or any(map(_width, table.head[1:]))
    rows = [table.head, *table.rows] if named else list(table.rows)
    widths = [max(_width(row[n]) for row in rows) for n in range(len(table.head))]
    if sum(widths) + 2 * (len(widths) - 1) <= cells:
        for number, row in enumerate(rows):
            tone = "dim" if named and number == 0 else ""
            yield _columns(row, widths, tone)
        return
    if len(table.head) == 2:
        lead = min(widths[0], cells // 3)
        for row in table.rows:
            yield from _beside(_text(row[0]), row[1], lead, cells)
        return
    for row in table.rows:
        yield from _set(row[0], cells, tone="strong")
        named_cells = [
            f"{_text(head)}: {_text(cell)}"
            for head, cell in zip(table.head[1:], row[1:], strict=False)
            if _text(cell)
        ]
        for part in wrap("; ".join(named_cells), cells - 4):
            yield line("    ", part)


def _columns(row: tuple[Inline, ...], widths: list[int], tone: str) -> Line:
    parts: list[Span] = []
    for cell, wide in zip(row, widths, strict=False):
        parts += [Span(t, f"{_TONES[k]} {tone}".strip()) for t, k in cell]
        parts.append(Span(" " * (wide - _width(cell) + 2)))
    return line(*parts[:-1])


def _beside(name: str, text: Inline, lead: int, cells: int) -> Iterator[Line]:
    for number, part in enumerate(wrap(_text(text), cells - lead - 2) or [""]):
        shown = clip(name, lead) if number == 0 else ""
        yield line(Span(f"{shown}{' ' * (lead - width(shown))}  ", "dim"), part)


def _set(text: Inline, cells: int, *, lead: str = "", tone: str = "") -> Iterator[Line]:
    """Wrapped text behind `lead`; where it fits on one line its tones are kept."""
    if _width(text) <= cells - len(lead):
        yield line(lead, *(Span(t, tone or _TONES[k]) for t, k in text))
        return
    first = next((k for _, k in text), "plain")
    for number, part in enumerate(wrap(_text(text), cells - len(lead))):
        whole = tone or ("strong" if first == "strong" and len(text) < 3 else "")
        yield line(lead if number == 0 else " " * len(lead), Span(part, whole))


def _text(runs: Inline) -> str:
    return "".join(run.text for run in runs)


def _width(runs: Inline) -> int:
    return sum(width(run.text) for run in runs)
