"""The first screen of plain `kvtui`: go on, begin, or look at what was recorded."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from textual import on
from textual.app import ComposeResult
from textual.message import Message
from textual.screen import Screen
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from kvtui.tui import files
from kvtui.tui.lines import Line, Span, fit, line, rule
from kvtui.tui.render import content
from kvtui.tui.screens.base import KvtuiScreen, bindings
from kvtui.tui.widgets import Lines

if TYPE_CHECKING:
    from kvtui.procedure.tune import Tuning
    from kvtui.session.state import SessionState


class Recorded(Message):
    """The sessions on disk, newest first; `open` are those that can be resumed."""

    bubble = False

    def __init__(self, sessions: list[tuple[Path, SessionState]], resumable: list[Path]) -> None:
        super().__init__()
        self.sessions = sessions
        self.resumable = resumable


def read_sessions() -> Recorded:
    """All sessions that can be read; slow on a slow disk."""
    from kvtui.core.errors import SessionError
    from kvtui.session.store import is_locked, list_folders, load

    sessions = []
    for folder in reversed(list_folders()):
        try:
            sessions.append((folder, load(folder)))
        except SessionError:
            continue
    return Recorded(sessions, [f for f, s in sessions if s.verdict is None and not is_locked(f)])


def session_line(folder: Path, state: SessionState) -> Line:
    """One session in one line: when, which model, how far."""
    done = sum(s.outcome is not None for s in state.steps)
    runs = sum(r.outcome is not None for r in state.runs)
    model = f"{state.started.model.name or state.started.model.file_name} {state.started.model.quant}"
    end = state.verdict.title if state.verdict else f"{done}/5 steps, {runs} run{'s' if runs != 1 else ''}"
    when = state.started.at[:16].replace("T", " ")
    return line(fit(line(when), 17), fit(line(Span(model, "strong")), 26), " ", end)


class StartScreen(KvtuiScreen):
    """Resume, tune, demo, sessions."""

    scope = "start"
    about = "Begin here: go on with an interrupted session, tune a model, try the demo, or read what was recorded."
    BINDINGS = bindings("start")

    def __init__(self) -> None:
        super().__init__()
        self._sessions: list[tuple[Path, SessionState]] = []
        self._resume: Path | None = None

    def compose(self) -> ComposeResult:
        """See Screen."""
        yield Lines(id="header")
        yield Lines(id="head")
        yield OptionList(id="menu")
        yield Lines(id="footer")

    def on_mount(self) -> None:
        """The menu at once; what is on disk follows."""
        self._fill(None)
        self.query_one("#menu").focus()
        files.aside(self, read_sessions)

    def show_live(self) -> None:
        """See KvtuiScreen."""
        cells = self.size.width
        self.query_one("#header", Lines).show(
            [line(Span("kvtui", "title"), Span("  make long context really fit", "dim"))]
        )
        self.query_one("#head", Lines).show([rule(line(Span("Start", "title")), cells)])

    def on_recorded(self, message: Recorded) -> None:
        """What is on disk is known now."""
        self._sessions = message.sessions
        self._fill(message)

    def _fill(self, found: Recorded | None) -> None:
        menu = self.query_one("#menu", OptionList)
        menu.clear_options()
        if found is not None and found.resumable:
            self._resume = found.resumable[0]
            state = next(s for f, s in found.sessions if f == self._resume)
            menu.add_option(_option("resume", "Go on", session_line(self._resume, state)))
        menu.add_option(
            _option("tune", "Tune a model", line("which context really holds on this box, and the proof"))
        )
        menu.add_option(_option("budget", "Budget", line("what fits this card, before anything is launched")))
        menu.add_option(
            _option("demo", "Demo", line("a small real model on the embedded engine, no GPU needed"))
        )
        menu.add_option(
            _option("engines", "Running", line("look at engines that already run: asked against actual"))
        )
        count = "" if found is None else f"{len(found.sessions)} recorded" if found.sessions else "none yet"
        menu.add_option(_option("sessions", "Sessions", line(count)))
        menu.add_option(_option("quit", "Quit", line()))
        menu.highlighted = 0

    @on(OptionList.OptionSelected)
    def _chosen(self, event: OptionList.OptionSelected) -> None:
        match event.option_id:
            case "resume" if self._resume is not None:
                self.kvtui.start_session(resume_job(self._resume))
            case "tune":
                from kvtui.tui.screens.form import TuneScreen

                self.app.push_screen(TuneScreen())
            case "budget":
                self.push_beside(models_screen)
            case "demo":
                self.kvtui.start_session(demo_job, unattended=True)
            case "sessions":
                self.app.push_screen(SessionsScreen(self._sessions))
            case "engines":
                from kvtui.tui.screens.attach import EnginesScreen

                self.app.push_screen(EnginesScreen())
            case "quit":
                self.kvtui.leave(0)
            case _:
                pass


def _option(name: str, title: str, text: Line) -> Option:
    return Option(content(line(" ", fit(line(Span(title, "strong")), 14), text)), id=name)


class SessionsScreen(KvtuiScreen):
    """What was recorded, newest first; Enter opens the report."""

    scope = "list"
    about = "The recorded sessions, newest first. Enter shows the report."
    BINDINGS = bindings("list")

    def __init__(self, sessions: list[tuple[Path, SessionState]]) -> None:
        super().__init__()
        self._sessions = sessions

    def compose(self) -> ComposeResult:
        """See Screen."""
        yield Lines(id="head")
        options = [
            Option(content(line(" ", session_line(f, s))), id=f"s{n}")
            for n, (f, s) in enumerate(self._sessions)
        ]
        yield OptionList(*options or [Option(content("no sessions yet"), disabled=True)], id="menu")
        yield Lines(id="footer")

    def show_live(self) -> None:
        """See KvtuiScreen."""
        self.query_one("#head", Lines).show([rule(line(Span("Sessions", "title")), self.size.width)])

    @on(OptionList.OptionSelected)
    def _chosen(self, event: OptionList.OptionSelected) -> None:
        from kvtui.tui.screens.details import TextScreen

        folder, state = self._sessions[event.option_index]
        self.live.state = state
        self.live.folder = folder
        self.app.push_screen(TextScreen(folder))

    def action_back(self) -> None:
        """Back."""
        self.app.pop_screen()


def models_screen() -> Callable[[], Screen[None]]:
    """The list of models with their budgets."""
    from kvtui.tui.screens.models import ModelsScreen

    return ModelsScreen


def demo_job(note: Callable[[str], None]) -> Tuning:
    """The demo."""
    from kvtui.procedure.setup import TuneRequest, prepare

    return prepare(TuneRequest(model=None, preset="demo"), note)


def resume_job(folder: Path) -> Callable[[Callable[[str], None]], Tuning]:
    """Going on with the session in `folder`."""

    def job(note: Callable[[str], None]) -> Tuning:
        from kvtui.procedure.setup import resume

        return resume(folder, note)

    return job
