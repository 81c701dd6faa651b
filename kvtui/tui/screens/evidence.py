"""What is behind a value."""

from __future__ import annotations

from collections.abc import Sequence

from kvtui.procedure.checks import setting_checks
from kvtui.procedure.memory import breakdown
from kvtui.tui import files, view_evidence, view_memory
from kvtui.tui.lines import Line, Span, line
from kvtui.tui.messages import Loaded
from kvtui.tui.screens.details import DetailScreen


class EvidenceScreen(DetailScreen):
    """A setting's log line with its neighbours, or the measurements behind `speed` or `memory`."""

    about = (
        "Why the value is believed: the line of the engine's log with its neighbours, or the measurements."
    )

    def __init__(self, run: int, subject: str) -> None:
        super().__init__()
        self._run = run
        self._subject = subject
        self._file: list[str] = []
        self._file_name = ""

    def on_mount(self) -> None:
        """The log is read beside the screen."""
        run = self.live.state.run(self._run) if self.live.state else None
        if self.live.folder is not None and run is not None and self._subject not in ("speed", "memory"):
            files.read_log(self, self.live.folder, run)

    def on_loaded(self, message: Loaded) -> None:
        """It is here."""
        self._file, self._file_name = message.lines, message.name
        self.show_live()

    def name_of(self) -> str:
        """See DetailScreen."""
        return f"Evidence: {self._subject}, run {self._run}"

    def build(self, cells: int) -> Sequence[Line]:
        """See DetailScreen."""
        state = self.live.state
        run = state.run(self._run) if state else None
        if state is None or run is None:
            return [line(Span("this run is gone", "dim"))]
        if self._subject == "speed":
            return view_evidence.speeds(run, cells)
        if self._subject == "memory":
            return view_memory.budget(state, run, breakdown(state, run, None), cells)
        check = next((c for c in setting_checks(run) if c.setting == self._subject), None)
        if check is None:
            return [line(Span("the setting does not apply to this run", "dim"))]
        lines, first = ([], 1) if check.line is None else view_evidence.neighbourhood(self._file, check.line)
        return view_evidence.setting(run, check, self._file_name, lines, first, cells)
