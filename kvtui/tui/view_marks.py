"""States as a glyph and a word. Colour only adds."""

from __future__ import annotations

from kvtui.session.records import RunOutcome, StepOutcome
from kvtui.tui.lines import Line, Span, line

PROVEN = Span("✓", "good")
DIFFERS = Span("✗", "bad")
UNPROVEN = Span("?", "warn")
RUNNING = Span("▶", "accent")
WAITING = Span("·", "dim")
SKIPPED = Span("»", "dim")

CHECK: dict[str, Line] = {
    "proven": line(PROVEN, Span(" proven", "good")),
    "differs": line(DIFFERS, Span(" differs", "bad")),
    "unproven": line(UNPROVEN, Span(" unproven", "warn")),
}
STEP: dict[StepOutcome | None, Span] = {
    "passed": PROVEN,
    "failed": DIFFERS,
    "skipped": SKIPPED,
    "not-needed": SKIPPED,
    None: WAITING,
}
STEP_WORD: dict[StepOutcome | None, str] = {
    "passed": "passed",
    "failed": "failed",
    "skipped": "skipped",
    "not-needed": "not needed",
    None: "to do",
}
RUN: dict[RunOutcome, Line] = {
    "ok": line(PROVEN, Span(" ok", "good")),
    "failed": line(DIFFERS, Span(" failed", "bad")),
    "void": line(UNPROVEN, Span(" void", "warn")),
    "cancelled": line(SKIPPED, Span(" ended", "dim")),
}
RUN_NOW: Line = line(RUNNING, Span(" running", "accent"))
RUN_LOST: Line = line(SKIPPED, Span(" interrupted", "dim"))
