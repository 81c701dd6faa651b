"""The app: one live state, one mailbox, one working thread, screens on top."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import ClassVar, Literal

from textual.app import App, SystemCommand
from textual.binding import Binding, BindingType
from textual.reactive import Reactive
from textual.screen import Screen
from textual.theme import BUILTIN_THEMES, Theme

from kvtui.core.errors import KvtuiError
from kvtui.tui import actions, files
from kvtui.tui.leave import Deadline, terminal_gone
from kvtui.tui.lines import Span, line
from kvtui.tui.live import Live, Question
from kvtui.tui.mailbox import Batch, Mailbox
from kvtui.tui.messages import Wake
from kvtui.tui.render import UNICODE, content
from kvtui.tui.screens.base import Dialog, KvtuiScreen
from kvtui.tui.tones import Palette
from kvtui.tui.work import Job, Work

FAILED = 3
INTERRUPTED = 130
COUNTDOWN_S = 2
LOOK_S = 0.1
FAREWELL_S = 0.08
COLOURLESS = ("dumb", "linux", "vt100", "vt220")
THEME = Theme(
    name="kvtui",
    primary="#5aa9e6",
    secondary="#59c3c3",
    accent="#f2a65a",
    success="#66c27c",
    warning="#e3b341",
    error="#f07178",
    foreground="#d8dee4",
    background="#12161b",
    surface="#161b21",
    panel="#1f262e",
    dark=True,
)


class KvtuiApp(App[int], inherit_bindings=False):
    """See the module. `job` None opens the start screen."""

    CSS_PATH = Path(__file__).with_name("kvtui.tcss")
    TITLE = "kvtui"
    theme = Reactive(THEME.name)
    ALLOW_SELECT = False
    ENABLE_COMMAND_PALETTE = True
    NOTIFICATION_TIMEOUT = 6
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(key, a.id, a.title, show=False, id=f"app.{a.id}.{key}", priority=key.startswith("ctrl+"))
        for a in actions.everywhere()
        for key in a.keys
    ]

    def __init__(self, job: Job | None = None, *, unattended: bool = False) -> None:
        no_color = bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") in COLOURLESS
        self._colourless = no_color
        if no_color:
            os.environ["NO_COLOR"] = "1"
        # Both are needed for no colour at all: Textual's own NO_COLOR still writes shades of grey.
        super().__init__(ansi_color=True if no_color else None)
        self.palette = Palette(self.theme_variables)
        self.animation_level = "none"
        self.live = Live(unattended=unattended)
        self.vram: tuple[float, ...] | None = None
        """GiB of the card that budgets are made for, as the operator says; None: what is seen here."""
        self.mailbox = Mailbox(lambda: self.post_message(Wake()))
        self.work: Work | None = None
        self.deadline: Deadline | None = None
        self.startup_error: KvtuiError | None = None
        self._job = job
        self.from_start = job is None
        self._looked = 0.0
        self._waiting = False

    @property
    def available_themes(self) -> dict[str, Theme]:
        """See App: Textual's own and ours."""
        return {**super().available_themes, THEME.name: THEME}

    def get_theme(self, theme_name: str) -> Theme | None:
        """See App: without colour, ours is the one that writes no colour codes."""
        return BUILTIN_THEMES["ansi-dark"] if self._colourless else super().get_theme(theme_name)

    def _restyle(self, theme: Theme) -> None:
        self.palette = Palette(self.theme_variables)
        self.screen.refresh(layout=True)

    def on_mount(self) -> None:
        """Signals, the first screen, and the job once that has been painted."""
        self._catch_signals()
        self.theme_changed_signal.subscribe(self, self._restyle)
        if not UNICODE:
            self.add_class("ascii")
        if self._job is None:
            from kvtui.tui.screens.start import StartScreen

            self.push_screen(StartScreen())
        else:
            job = self._job
            self._open()
            self.call_after_refresh(self.begin, job)
        self.set_interval(1.0, self._tick)

    def _open(self) -> None:
        from kvtui.tui.screens.opening import OpeningScreen

        self.push_screen(OpeningScreen())

    def start_session(self, job: Job, *, unattended: bool = False) -> None:
        """Begin `job` from the start screen."""
        self.live = Live(unattended=unattended)
        self._open()
        self.call_after_refresh(self.begin, job)

    def begin(self, job: Job) -> None:
        """Start the working thread."""
        self.live.working = True
        self.work = Work(job, self.mailbox)
        self.work.start()

    def _catch_signals(self) -> None:
        if self.is_headless:
            return
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            loop.add_signal_handler(number, self.leave, 128 + number)

    # What comes in

    def on_wake(self) -> None:
        """The mailbox has something; it is looked at no more than ten times a second."""
        due = self._looked + LOOK_S - time.monotonic()
        if due <= 0:
            self._look()
        elif not self._waiting:
            self._waiting = True
            self.set_timer(due, self._look)

    def _look(self, *, second: bool = False) -> None:
        self._waiting = False
        self._looked = time.monotonic()
        batch = self.mailbox.take()
        changed = self._take(batch)
        screen = self.screen_stack[-1] if self.screen_stack else None
        if isinstance(screen, KvtuiScreen):
            screen.draw(live=changed or second, log=bool(batch.log) or changed)

    def _take(self, batch: Batch) -> bool:
        live = self.live
        if batch.note is not None:
            live.note = batch.note
        if batch.folder is not None:
            live.folder = batch.folder
        if batch.state is not None:
            live.take_events(batch.events, batch.state)
            live.note = ""
        live.take_samples(batch.samples)
        if batch.progress is not None:
            live.progress = batch.progress
        live.log_total += batch.log_dropped
        live.take_log(batch.log)
        if batch.question is not None:
            self._ask(Question(*batch.question))
        if batch.failure:
            live.failure = batch.failure
        live.reports = batch.reports or live.reports
        if batch.ended:
            self._ended()
        return bool(
            batch.state or batch.note or batch.question or batch.failure or batch.reports or batch.ended
        )

    def _ended(self) -> None:
        live = self.live
        live.working = False
        live.question = None
        if live.failure and live.state is None and not self.from_start:
            self.startup_error = (self.work.error if self.work else None) or KvtuiError(live.failure)
            self.leave(FAILED)
        elif live.state is not None and live.state.verdict is not None:
            from kvtui.tui.screens.details import VerdictScreen

            if not any(isinstance(s, VerdictScreen) for s in self.screen_stack):
                self.push_screen(VerdictScreen())

    def _tick(self) -> None:
        if not self.is_headless and terminal_gone():
            self.leave(128 + signal.SIGHUP)
            return
        question = self.live.question
        if question is not None and question.seconds_left is not None and not self.live.paused:
            question.seconds_left -= 1
            if question.seconds_left < 0:
                self.decide("accept")
        self._look(second=True)

    # Decisions

    def _ask(self, question: Question) -> None:
        if self.live.unattended and not self.live.paused:
            question.seconds_left = COUNTDOWN_S
        self.live.question = question

    def hold(self) -> None:
        """The operator thinks about it: the countdown of this question ends."""
        if self.live.question is not None and self.live.unattended:
            self.live.paused = True
            self.live.question.seconds_left = None

    def toggle_pause(self) -> None:
        """Unattended: decisions to the operator, or back to kvtui."""
        self.live.paused = not self.live.paused
        if self.live.question is not None:
            self.live.question.seconds_left = None if self.live.paused else COUNTDOWN_S
        self._look(second=True)

    def decide(
        self,
        choice: Literal["accept", "change", "skip", "stop", "retry", "insist"],
        *,
        variable: str = "",
        value: str = "",
        reason: str = "",
    ) -> None:
        """Answer the question that waits."""
        question, work = self.live.question, self.work
        if question is None or work is None:
            return
        self.live.question = None
        from kvtui.session.events import Decided

        step = question.state.current_step
        alone = choice == "accept" and self.live.unattended and not self.live.paused
        by: Literal["operator", "unattended"] = "unattended" if alone else "operator"
        work.answer(Decided("", step.number if step else 0, choice, by, variable, value, reason))
        self._look(second=True)

    # Actions that work everywhere

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """The palette: what works on the screen below, from the registry."""
        if isinstance(screen, KvtuiScreen | Dialog):
            for action in screen.actions():
                if action.rank >= 0 and action.id != "command_palette":
                    where = "app" if action in actions.everywhere() else "screen"
                    run = partial(self.run_action, f"{where}.{action.id}", screen)
                    yield SystemCommand(action.title.capitalize(), action.help, run)
        yield SystemCommand("Theme", "Choose the colours.", self.action_change_theme)

    def action_help(self) -> None:
        """The keys of the screen on top."""
        from kvtui.tui.screens.details import HelpScreen

        screen = self.screen
        if isinstance(screen, KvtuiScreen | Dialog) and not isinstance(screen, HelpScreen):
            self.push_screen(
                HelpScreen(partial(actions.help_lines, screen.scope, screen.about, screen.actions()))
            )

    async def action_quit(self) -> None:
        """End; asks first when an engine runs, and only once."""
        from kvtui.tui.screens.dialogs import ConfirmDialog

        run = self.live.state.current_run if self.live.state else None
        if run is None or not self.live.working or isinstance(self.screen, ConfirmDialog):
            self.leave(self._status())
            return

        def confirmed(yes: bool | None) -> None:
            if yes:
                self.leave(self._status())

        text = f"Run {run.number} is in progress; its engine will be ended. Earlier runs are kept, kvtui resumes here."
        self.push_screen(ConfirmDialog("Quit", text, "quit"), confirmed)

    def _status(self) -> int:
        live = self.live
        if live.state is not None and live.state.verdict is not None:
            from kvtui.session.records import EXIT_STATUS

            return EXIT_STATUS[live.state.verdict.outcome]
        if live.failure:
            return FAILED
        return INTERRUPTED if self.work is not None else 0

    def leave(self, status: int) -> None:
        """End now: the work is told, the clock runs, nobody is waited for."""
        if self.deadline is not None:
            self.deadline.arm(status)
        if self.work is not None:
            self.work.cancel()
        self.exit(status)

    def copy_command(self) -> None:
        """Copy to the clipboard (OSC 52) and, since terminals may drop that, to a file whose path is shown."""
        text, what = self.live.command()
        if not text:
            return
        self.copy_to_clipboard(text)
        kept = ""
        if self.live.folder is not None:
            try:
                kept = f", also kept in {files.tilde(files.keep_command(self.live.folder, text))}"
            except OSError as error:
                kept = f", not kept in a file: {error.strerror}"
        self.say(f"{what} copied{kept}")

    def say(self, text: str, *, bad: bool = False) -> None:
        """A short message; never markup."""
        self.notify(content(line(Span(text))).plain, markup=False, severity="error" if bad else "information")


def run_app(
    job: Job | None, *, unattended: bool, no_mouse: bool = False, say: Callable[[str], None] | None = None
) -> int:
    """Open the app and stay until it ends; returns the exit status. `say` is told afterwards what to remember.

    0 done, 1 findings or stopped, 3 failed, 130 ended before the end, 128+N ended by signal N. Raises KvtuiError when
    `job` could not even begin.
    """
    app = KvtuiApp(job, unattended=unattended)
    app.deadline = Deadline()
    result = app.run(mouse=not no_mouse)
    if app.work is not None:
        # What is left to say needs a moment of the time there is.
        app.work.join(max(0.0, app.deadline.left() - FAREWELL_S))
    if app.startup_error is not None:
        app.deadline.disarm()
        raise app.startup_error
    status = FAILED if result is None else result
    if say is not None:
        from kvtui.tui.view_end import farewell

        for text in farewell(app.live):
            say(f"kvtui: {text}")
    if app.work is not None and app.work.running:
        # It hangs. The engine dies with the thread that started it, and that thread with this process.
        os._exit(status)
    app.deadline.disarm()
    # The interpreter looks through everything once more when it ends: 150 ms of a quit, for nothing.
    gc.freeze()
    return status
