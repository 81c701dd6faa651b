"""What is seen before there is a session: what is being prepared, and what will then be done."""

from __future__ import annotations

from textual.app import ComposeResult

from kvtui.procedure.steps import STEPS
from kvtui.tui.lines import EMPTY, Line, Span, labelled, line, rule, wrap
from kvtui.tui.screens.base import KvtuiScreen, bindings
from kvtui.tui.widgets import Lines

ABOUT = """The model file is read and the engine is asked what it can do; then the first recommendation comes.
Nothing is started before it is decided."""


class OpeningScreen(KvtuiScreen):
    """Light, so that it is there at once; the procedure's screen takes its place."""

    scope = "opening"
    about = ABOUT
    BINDINGS = bindings("opening")

    def compose(self) -> ComposeResult:
        """See Screen."""
        yield Lines(id="header")
        yield Lines(id="content")
        yield Lines(id="footer")

    def unavailable(self) -> frozenset[str]:
        """See KvtuiScreen."""
        return frozenset() if self.live.failure and self.kvtui.from_start else frozenset({"back"})

    def show_live(self) -> None:
        """See KvtuiScreen."""
        if self.live.state is not None:
            from kvtui.tui.screens.procedure import ProcedureScreen

            self.app.switch_screen(ProcedureScreen())
            return
        cells = self.size.width
        self.query_one("#header", Lines).show([line(Span("kvtui", "title"))])
        self.query_one("#content", Lines).show(opening(self.live.note, self.live.failure, cells))

    def action_back(self) -> None:
        """Back to the start screen."""
        self.app.pop_screen()


def opening(note: str, failure: str, cells: int) -> list[Line]:
    """What is being done, or why it cannot be, and the five steps that follow."""
    if failure:
        head = line(Span("✗ Cannot begin", "bad title"))
        return [rule(head, cells), *(line(Span(f" {row}", "bad")) for row in wrap(failure, cells - 2))]
    out = [
        rule(line(Span("Preparing", "title")), cells),
        line(Span(" ▶ ", "accent"), note or "starting"),
        EMPTY,
    ]
    out.append(rule(line(Span("What follows", "title")), cells))
    for step in STEPS:
        out.append(line(Span(f" {step.number} {step.title}", "strong")))
        out += [line("  ", row) for row in labelled("", step.goal, cells - 2)]
    return out
