"""Lines of toned text: what every view produces and every widget draws. Plain values, no widget, no markup.

A tone names a meaning (`good`, `dim`, `weights`), several are joined by blanks; colours are those of `kvtui.tui.tones`.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from kvtui.core.text import clip, width


class Span(NamedTuple):
    """A run of text in one tone."""

    text: str
    tone: str = ""


Line = tuple[Span, ...]
EMPTY: Line = ()


def line(*parts: str | Span | Line) -> Line:
    """One line of the parts in order; strings have no tone, empty ones vanish."""
    spans: list[Span] = []
    for part in parts:
        if isinstance(part, str):
            part = Span(part)
        if isinstance(part, Span):
            if part.text:
                spans.append(part)
        else:
            spans.extend(part)
    return tuple(spans)


def text_of(spans: Line) -> str:
    """The text without tones."""
    return "".join(s.text for s in spans)


def width_of(spans: Line) -> int:
    """Terminal cells that the line takes."""
    return sum(width(s.text) for s in spans)


def fit(spans: Line, cells: int, *, right: bool = False) -> Line:
    """Exactly `cells` wide: cut with an ellipsis, or padded with blanks (on the left when `right`)."""
    used = width_of(spans)
    if used <= cells:
        pad = Span(" " * (cells - used))
        return line(pad, spans) if right else line(spans, pad)
    out: list[Span] = []
    left = cells
    for span in spans:
        taken = clip(span.text, left)
        # A cut must show, also when it falls between two spans.
        if taken == span.text and width(taken) == left and span is not spans[-1]:
            taken = clip(span.text + "x", left)
        out.append(Span(taken, span.tone))
        left -= width(taken)
        if taken != span.text:
            break
    out.append(Span(" " * left))
    return line(*out)


def spread(left: Line, right: Line, cells: int) -> Line:
    """`left` and `right` at the two ends; the left one is cut when both do not fit."""
    room = cells - width_of(right)
    if room <= 0:
        return fit(left, cells)
    return line(fit(left, room), right)


def columns(cells: Sequence[tuple[Line, int]]) -> Line:
    """Table cells side by side: each line fitted to its width, a negative width aligns right."""
    return line(*(fit(content, abs(w), right=w < 0) for content, w in cells))


def rule(title: Line, cells: int, note: Line = EMPTY) -> Line:
    """A horizontal rule that carries a title at its left and a note at its right."""
    bar = "─"
    head = line(Span(f"{bar} ", "rule"), title, " ") if title else EMPTY
    tail = line(" ", note, Span(f" {bar}", "rule")) if note else EMPTY
    room = cells - width_of(tail)
    if width_of(head) > room:
        return fit(line(fit(head, max(room, 0)), tail), cells)
    return line(head, Span(bar * (room - width_of(head)), "rule"), tail)


def wrap(text: str, cells: int, limit: int | None = None) -> list[str]:
    """`text` as lines of at most `cells`; when more than `limit` are needed the last one ends in an ellipsis."""
    if cells < 1 or limit == 0:
        return []
    rows = textwrap.wrap(text, cells, break_long_words=True, break_on_hyphens=False)
    rows = [clip(r, cells) for r in rows]
    if limit is not None and len(rows) > limit:
        rows = rows[:limit]
        rows[-1] = clip(rows[-1] + " …" if width(rows[-1]) + 2 <= cells else rows[-1] + "…", cells)
    return rows


_WORD = re.compile(r"""(?:[^\s'"\\]|'[^']*'|"(?:[^"\\]|\\.)*"|\\.|['"\\])+""")


def command_rows(command: str, cells: int) -> list[str]:
    """A command line broken between its words, each row but the last ending in a backslash: it can be copied off the
    screen and run as it stands. A single word longer than a row is left whole, for the terminal to break."""
    rows: list[str] = []
    row = ""
    for word in _WORD.findall(command):
        longer = f"{row} {word}" if row else word
        if row and width(longer) > cells - 2:
            rows.append(f"{row} \\")
            longer = word
        row = longer
    return [*rows, row] if row else rows


def labelled(label: str, text: str, cells: int, limit: int | None = None, tone: str = "") -> list[Line]:
    """`label` (8 cells, dim) and the wrapped `text` beside it."""
    rows = wrap(text, cells - 8, limit)
    return [line(Span(f"{label if n == 0 else '':<8}", "dim"), Span(row, tone)) for n, row in enumerate(rows)]


def tint(spans: Line, tone: str) -> Line:
    """The same line with `tone` added to every span."""
    return tuple(Span(s.text, f"{s.tone} {tone}".strip()) for s in spans)


def block(lines: Iterable[Line], cells: int, rows: int) -> list[Line]:
    """Exactly `rows` lines of `cells` each: cut or filled up."""
    out = [fit(item, cells) for item in lines][:rows]
    return out + [fit(EMPTY, cells)] * (rows - len(out))


def changed_cells(before: Line, after: Line) -> tuple[int, int] | None:
    """The range of cells in which two lines differ, None when they look the same.

    A line with wide characters counts as changed as a whole, because a cell is then not a character.
    """
    if before == after:
        return None
    old = [(c, s.tone) for s in before for c in s.text]
    new = [(c, s.tone) for s in after for c in s.text]
    if old == new:
        return None
    longest = max(width_of(before), width_of(after))
    if len(old) != width_of(before) or len(new) != width_of(after):
        return 0, longest
    blank = (" ", "")
    old += [blank] * (longest - len(old))
    new += [blank] * (longest - len(new))
    start = next(i for i in range(longest) if old[i] != new[i]) if old != new else longest
    if start == longest:
        return None
    end = next(i for i in range(longest, 0, -1) if old[i - 1] != new[i - 1])
    return start, end
