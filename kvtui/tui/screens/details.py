"""The screens one key away: each is a list of lines made by a view, with a scroll."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import overload

from textual.app import ComposeResult

from kvtui.procedure.memory import breakdown
from kvtui.tui import files, view_end, view_log, view_memory, view_next, view_readings, view_runs, view_steps
from kvtui.tui.lines import EMPTY, Line, Span, line, rule
from kvtui.tui.messages import Loaded
from kvtui.tui.screens.base import KvtuiScreen, bindings
from kvtui.tui.view_header import header
from kvtui.tui.widgets import Lines, ScrollLines


class DetailScreen(KvtuiScreen):
    """Header, title, lines, footer. Subclasses give `name_of` and `build`."""

    scope = "detail"
    BINDINGS = bindings("detail")
    follow = False

    def compose(self) -> ComposeResult:
        """See Screen."""
        yield Lines(id="header")
        yield Lines(id="head")
        yield ScrollLines(id="content", follow=self.follow)
        yield Lines(id="footer")

    def name_of(self) -> str:
        """The title over the lines."""
        return ""

    def build(self, cells: int) -> Sequence[Line]:
        """The lines, at most `cells` wide."""
        return []

    def unavailable(self) -> frozenset[str]:
        """See KvtuiScreen."""
        return frozenset() if self.live.command()[0] else frozenset({"copy"})

    def show_live(self) -> None:
        """See KvtuiScreen."""
        cells = self.size.width
        self.query_one("#header", Lines).show([header(self.live.state, cells, note=self.live.note)])
        self.query_one("#head", Lines).show([rule(line(Span(self.name_of(), "title")), cells)])
        self.query_one("#content", ScrollLines).show(self.build(cells - 2))

    def on_mount(self) -> None:
        """The lines take the keys."""
        self.query_one("#content").focus()

    def action_back(self) -> None:
        """Back."""
        self.app.pop_screen()

    def action_copy(self) -> None:
        """The command that counts now."""
        self.kvtui.copy_command()

    def action_scroll_up(self) -> None:
        """One line up."""
        self.query_one("#content").scroll_up(animate=False)

    def action_scroll_down(self) -> None:
        """One line down."""
        self.query_one("#content").scroll_down(animate=False)

    def action_page_up(self) -> None:
        """A page up."""
        self.query_one("#content").scroll_page_up(animate=False)

    def action_page_down(self) -> None:
        """A page down."""
        self.query_one("#content").scroll_page_down(animate=False)

    def action_scroll_home(self) -> None:
        """To the first line."""
        self.query_one("#content").scroll_home(animate=False)

    def action_scroll_end(self) -> None:
        """To the last line."""
        self.query_one("#content").scroll_end(animate=False)


class HelpScreen(DetailScreen):
    """The keys of the screen below, and what it is for."""

    about = "This help."

    def __init__(self, lines: Callable[[int], list[Line]]) -> None:
        super().__init__()
        self._lines = lines

    def name_of(self) -> str:
        """See DetailScreen."""
        return "Help"

    def build(self, cells: int) -> Sequence[Line]:
        """See DetailScreen."""
        return self._lines(cells)


class BudgetScreen(DetailScreen):
    """Memory in figures and the chart over it."""

    about = (
        "Where the memory is: the chart of this run, forecast against log, and the exact peaks of each phase."
    )

    def name_of(self) -> str:
        """See DetailScreen."""
        return "Budget"

    def build(self, cells: int) -> Sequence[Line]:
        """See DetailScreen."""
        live, state = self.live, self.live.state
        if state is None:
            return []
        run = live.run
        sample = live.sample if run is not None and run.outcome is None else None
        b = breakdown(state, run, sample)
        top = view_memory.panel(state, b, live.trace, cells, 9)
        head = line(view_memory.title(state, live.trace, sample), "  ", view_memory.peak_note(live.trace))
        vitals = view_readings.now(sample, state.started.host.cores)
        return [head, *top, EMPTY, *vitals, *view_memory.budget(state, run, b, cells)]


class RunsScreen(DetailScreen):
    """Every run."""

    about = (
        "One row a run: what changed, whether it counts, and what was measured. Below: why runs do not count."
    )

    def name_of(self) -> str:
        """See DetailScreen."""
        return "Runs"

    def build(self, cells: int) -> Sequence[Line]:
        """See DetailScreen."""
        state = self.live.state
        return [*view_runs.table(state, cells), EMPTY, *view_runs.reasons(state, cells)]


class NextScreen(DetailScreen):
    """The recommendation in full."""

    about = "What is recommended, why, what it should do to memory, what it risks, and the exact command."

    def name_of(self) -> str:
        """See DetailScreen."""
        return "Next"

    def build(self, cells: int) -> Sequence[Line]:
        """See DetailScreen."""
        return view_next.in_full(self.live, cells)


class StepsScreen(DetailScreen):
    """The steps in full."""

    about = "The five steps: what each is for, what decides whether the next may begin, and how it ended."

    def name_of(self) -> str:
        """See DetailScreen."""
        return "Steps"

    def build(self, cells: int) -> Sequence[Line]:
        """See DetailScreen."""
        return view_steps.steps_in_full(self.live.state, cells)


class VerdictScreen(DetailScreen):
    """The end: what holds, the command, the files."""

    about = "The verdict first: the configuration that holds and why; then its exact command and the report's files."

    def name_of(self) -> str:
        """See DetailScreen."""
        return "Verdict"

    def build(self, cells: int) -> Sequence[Line]:
        """See DetailScreen."""
        return view_end.verdict(self.live, cells)


class LogScreen(DetailScreen):
    """The engine's log."""

    scope = "log"
    about = "The engine's own log as it comes. Lines that prove (or disprove) a setting are marked."
    BINDINGS = bindings("log")
    follow = True

    def __init__(self) -> None:
        super().__init__()
        self._file: list[str] = []
        self._file_name = ""
        self._skip = 0

    def on_mount(self) -> None:
        """A run that is not live is read from its file."""
        live = self.live
        if not live.log and live.folder is not None and live.run is not None:
            files.read_log(self, live.folder, live.run)

    def on_loaded(self, message: Loaded) -> None:
        """The file is here."""
        self._file, self._file_name = message.lines, message.name
        self.show_log()

    def name_of(self) -> str:
        """See DetailScreen."""
        run = self.live.run
        return f"Log of run {run.number}  {self._file_name}" if run else "Log"

    def show_live(self) -> None:
        """See KvtuiScreen."""
        cells = self.size.width
        self.query_one("#header", Lines).show([header(self.live.state, cells, note=self.live.note)])
        self.query_one("#head", Lines).show([rule(line(Span(self.name_of(), "title")), cells)])

    def show_log(self) -> None:
        """See KvtuiScreen."""
        live = self.live
        lines = self._log_lines()
        total = live.log_total if live.log else len(lines)
        marks = view_log.proving(live.run)
        self.query_one("#content", ScrollLines).show(
            LogRows(lines, total - len(lines) + 1, marks, self.size.width - 1, self._skip)
        )

    def _log_lines(self) -> list[str]:
        return list(self.live.log) if self.live.log else self._file

    def unavailable(self) -> frozenset[str]:
        """See KvtuiScreen."""
        return super().unavailable() | (frozenset() if self._skip else {"line_starts"})

    def _shift(self, by: int) -> None:
        longest = max((len(text) for text in self._log_lines()), default=0)
        if 0 <= self._skip + by < longest:
            self._skip += by
            self.draw()

    def action_line_ends(self) -> None:
        """Half a screen to the right."""
        self._shift(self.size.width // 2)

    def action_line_starts(self) -> None:
        """Half a screen to the left."""
        self._shift(-min(self.size.width // 2, self._skip))


class LogRows(Sequence[Line]):
    """Rows of a log that are made when they are drawn: a log has thousands, a screen shows twenty."""

    def __init__(
        self, lines: Sequence[str], first: int, marks: dict[int, str], cells: int, skip: int = 0
    ) -> None:
        self._lines, self._first, self._marks, self._cells, self._skip = lines, first, marks, cells, skip

    def __len__(self) -> int:
        return len(self._lines)

    @overload
    def __getitem__(self, index: int) -> Line: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Line]: ...
    def __getitem__(self, index: int | slice) -> Line | Sequence[Line]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        return view_log.row(self._lines[index], self._first + index, self._marks, self._cells, self._skip)


class TextScreen(DetailScreen):
    """A report as it will be handed over."""

    scope = "report"
    about = "What will be handed over, as it stands in the session's folder."
    BINDINGS = bindings("report")

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder
        self._lines: list[str] = []
        self._error = ""

    def on_mount(self) -> None:
        """The report is made beside the screen, not on it."""
        files.render_report(self, self._folder)

    def on_loaded(self, message: Loaded) -> None:
        """It is here, or there is none."""
        self._lines, self._error = message.lines, message.error
        self.show_live()

    def name_of(self) -> str:
        """See DetailScreen."""
        return f"Report of {self._folder.name}"

    def build(self, cells: int) -> Sequence[Line]:
        """See DetailScreen."""
        if self._error:
            return [line(Span(self._error, "bad"))]
        if not self._lines:
            return [line(Span("reading", "dim"))]
        from kvtui.tui import view_report

        return view_report.report("\n".join(self._lines), cells)
