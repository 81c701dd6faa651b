"""The only place where text becomes something that Textual draws. Nothing here parses markup."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence

from rich.segment import Segment
from rich.style import Style
from textual.content import Content
from textual.strip import Strip

from kvtui.core.text import clean, width
from kvtui.tui.lines import Line, fit

ASCII = str.maketrans(
    {
        "✓": "+", "✗": "x", "▶": ">", "·": ".", "»": ">", "›": ">", "→": ">", "…": "~", "×": "x", "±": "~", "≈": "~",
        "─": "-", "│": "|", "┄": "-", "┼": "+", "┬": "+", "┴": "+", "├": "+", "▕": "[", "▏": "]", "╵": "|",
        "█": "#", "▓": "=", "▒": "+", "░": "-", "▚": "%", "▁": "_", "▂": "_", "▃": ".", "▄": ":", "▅": "+",
        "▆": "*", "▇": "#", "−": "-", "–": "-", "—": "-", "’": "'", "“": '"', "”": '"', "•": "*", "≥": ">",
        "≤": "<", "\u00a0": " ", "↑": "^", "↓": "v", "←": "<",
    }
)  # fmt: skip


def locale_is_utf8(environ: dict[str, str] | None = None, utf8_mode: int | None = None) -> bool:
    """Whether the terminal's locale says UTF-8, by LC_ALL, LC_CTYPE, LANG in that order.

    Python itself sets LC_CTYPE to C.UTF-8 when it starts in the C locale (and then runs in UTF-8 mode); that
    value says nothing about the terminal.
    """
    env = dict(os.environ) if environ is None else environ
    mode = sys.flags.utf8_mode if utf8_mode is None else utf8_mode
    ctype = env.get("LC_CTYPE", "")
    if mode and ctype == "C.UTF-8":
        ctype = ""
    name = env.get("LC_ALL") or ctype or env.get("LANG") or ""
    return "utf" in name.lower()


UNICODE = locale_is_utf8()


def plain(text: str) -> str:
    """`text` as it may go to the terminal: no controls, in the glyphs that the terminal has."""
    if not text.isprintable():
        text = clean(text)
    if UNICODE or text.isascii():
        return text
    text = text.translate(ASCII)
    return "".join(c if c.isascii() else "?" * width(c) for c in text)


def content(spans: Line | str) -> Content:
    """A line (or plain text) for a widget of Textual's own: menus, dialogs, notifications."""
    if isinstance(spans, str):
        return Content(plain(spans))
    styles = {"good": "$success", "bad": "$error", "warn": "$warning", "accent": "$accent"}
    styles |= {"strong": "bold", "title": "bold", "key": "bold", "dim": "dim"}
    return Content.assemble(
        *((plain(s.text), " ".join(styles[t] for t in s.tone.split() if t in styles)) for s in spans)
    )


def paragraph(rows: Sequence[str]) -> Content:
    """Several rows of plain text, each indented by one cell."""
    return Content("\n".join(f" {plain(row)}" for row in rows))


def strip(spans: Line, cells: int, style_of: Callable[[str], Style]) -> Strip:
    """The line as exactly `cells` terminal cells."""
    return Strip([Segment(plain(s.text), style_of(s.tone)) for s in fit(spans, cells)], cells)
