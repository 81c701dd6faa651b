"""The engine's log on the screen: line numbers, and a mark on every line that proves something."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kvtui.core.text import clean, clip
from kvtui.procedure.checks import setting_checks
from kvtui.session.state import RunRecord
from kvtui.tui.lines import Line, Span, fit, line, wrap


def proving(run: RunRecord | None) -> dict[int, str]:
    """Line number -> the setting that it proves (or disproves), for the run's log."""
    if run is None:
        return {}
    marks = dict.fromkeys(run.facts.texts, "")
    for check in setting_checks(run):
        if check.line is not None:
            marks[check.line] = f"{check.setting} {check.state}"
    return marks


def rows(lines: Sequence[str], first: int, marks: Mapping[int, str], cells: int) -> list[Line]:
    """`lines` as they stand in the log from line `first` on; proving ones carry a mark."""
    return [row(text, number, marks, cells) for number, text in enumerate(lines, first)]


def row(text: str, number: int, marks: Mapping[int, str], cells: int, skip: int = 0) -> Line:
    """One line of the log, without its first `skip` characters."""
    proves = number in marks
    mark = Span("▶ " if proves else "  ", "accent")
    tone = "strong" if proves else "bad" if " E " in text[:20] else "warn" if " W " in text[:20] else ""
    shown = clean(text)
    if skip and shown:
        shown = "…" + shown[skip + 1 :]
    return fit(line(Span(f"{number:>5} ", "dim"), mark, Span(clip(shown, max(cells - 8, 1)), tone)), cells)


def whole_row(text: str, number: int, cells: int) -> list[Line]:
    """A line that proves something, wrapped instead of cut: the proof may stand at its end."""
    rows = wrap(clean(text), max(cells - 8, 1)) or [""]
    head = line(Span(f"{number:>5} ", "dim"), Span("▶ ", "accent"))
    return [line(head if n == 0 else " " * 8, Span(r, "strong")) for n, r in enumerate(rows)]
