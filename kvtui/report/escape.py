"""Text inside Markdown: nothing a log, a file name or a model says can change how the report is read."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from kvtui.core.text import clean

_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "|": "&#124;"}
_SPECIAL = re.compile(r"[&<>|\\`*\[\]#~$]|(?<![^\W_])_|_(?![^\W_])")
_LEADING = re.compile(r"\A(\d*)((?<!\d)[-+=]|(?<=\d)[.)](?=\s|\Z))")
_LIMIT = 600


def text(value: str, limit: int = _LIMIT) -> str:
    """`value` as one line of plain text, cut at `limit` characters."""
    line = clean(value, limit).strip()
    escaped = _SPECIAL.sub(lambda m: _ENTITIES.get(m[0]) or "\\" + m[0], line)
    return _LEADING.sub(lambda m: f"{m[1]}\\{m[2]}", escaped)


def code(value: str, limit: int = _LIMIT) -> str:
    """`value` as a code span, or as escaped text where a code span could not hold it in a table."""
    line = clean(value, limit).strip()
    return text(value, limit) if not line or "`" in line or "|" in line else f"`{line}`"


def fence(value: str, language: str = "") -> list[str]:
    """A code block of `value`, with a fence longer than any run of backticks in it."""
    longest = max((len(run) for run in re.findall(r"`+", value)), default=0)
    ticks = "`" * max(3, longest + 1)
    return [f"{ticks}{language}", value, ticks]


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """A table of cells that are Markdown already, followed by an empty line; nothing when there are no rows."""
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return [f"| {' | '.join(head)} |", f"|{' --- |' * len(head)}", *lines, ""] if lines else []
