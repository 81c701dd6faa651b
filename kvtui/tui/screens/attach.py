"""Engines that somebody else runs: the list, and one of them. Looking happens beside the screen and changes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from textual import on
from textual.app import ComposeResult
from textual.message import Message
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from kvtui.core.errors import KvtuiError
from kvtui.tui import files
from kvtui.tui.lines import Line, Span, line, rule, wrap
from kvtui.tui.render import content
from kvtui.tui.screens.base import KvtuiScreen, bindings
from kvtui.tui.screens.details import DetailScreen
from kvtui.tui.widgets import Lines, ScrollLines

if TYPE_CHECKING:
    from kvtui.engines.attach.look import Found
    from kvtui.engines.attach.memory import GpuMemory
    from kvtui.procedure.attached.view import Attached

_GPU_S = 1.5


class Listed(Message):
    """The engines that run now."""

    bubble = False

    def __init__(self, found: list[Found], gpu: GpuMemory) -> None:
        super().__init__()
        self.found = found
        self.gpu = gpu


class Looked(Message):
    """What one engine is, or why it could not be looked at."""

    bubble = False

    def __init__(self, view: Attached | None, error: str = "") -> None:
        super().__init__()
        self.view = view
        self.error = error


def list_engines() -> Listed:
    """The engines of this machine with what they hold on GPUs."""
    from kvtui.engines.attach.look import discover
    from kvtui.engines.attach.memory import gpu_memory
    from kvtui.gpu.host import family

    found = discover()
    return Listed(found, gpu_memory({one.process.pid: family(one.process.pid) for one in found}, _GPU_S))


def look_at(found: Found) -> Looked:
    """One engine: log, answers, memory."""
    from kvtui.engines.attach.http_facts import Access
    from kvtui.engines.attach.look import look
    from kvtui.engines.attach.processes import still_runs
    from kvtui.procedure.attached.view import attach

    if not still_runs(found.process):
        return Looked(None, f"process {found.process.pid} has ended")
    try:
        return Looked(attach(look(found, Access())))
    except KvtuiError as error:
        return Looked(None, error.line())


class EnginesScreen(KvtuiScreen):
    """The engines that run on this machine; Enter looks at one."""

    scope = "engines"
    about = (
        "Engines that run on this machine, whoever started them. Enter shows what was asked of one against what it"
        " does. Nothing is signalled, changed or generated."
    )
    BINDINGS = bindings("engines")

    def __init__(self) -> None:
        super().__init__()
        self._found: list[Found] = []

    def compose(self) -> ComposeResult:
        """See Screen."""
        yield Lines(id="header")
        yield Lines(id="head")
        yield OptionList(id="menu")
        yield Lines(id="footer")

    def on_mount(self) -> None:
        """The list follows."""
        self.query_one("#menu").focus()
        self.action_refresh()

    def show_live(self) -> None:
        """See KvtuiScreen."""
        cells = self.size.width
        self.query_one("#header", Lines).show([line(Span("kvtui", "title"))])
        self.query_one("#head", Lines).show([rule(line(Span("Running engines", "title")), cells)])

    def action_refresh(self) -> None:
        """Look again."""
        self._fill(["looking ..."])
        files.aside(self, list_engines)

    def action_back(self) -> None:
        """Back."""
        self.app.pop_screen()

    def on_listed(self, message: Listed) -> None:
        """They are known now."""
        from kvtui.tui.view_attach import engine_row

        self._found = message.found
        if not message.found:
            self._fill(["no engine is seen to run here"])
            return
        menu = self.query_one("#menu", OptionList)
        menu.clear_options()
        for one in message.found:
            menu.add_option(
                Option(content(line(" ", engine_row(one, message.gpu))), id=f"p{one.process.pid}")
            )
        menu.highlighted = 0

    def _fill(self, texts: Sequence[str]) -> None:
        menu = self.query_one("#menu", OptionList)
        menu.clear_options()
        for text in texts:
            menu.add_option(Option(content(line(" ", Span(text, "dim"))), disabled=True))

    @on(OptionList.OptionSelected)
    def _chosen(self, event: OptionList.OptionSelected) -> None:
        self.app.push_screen(EngineScreen(self._found[event.option_index]))


class EngineScreen(DetailScreen):
    """One running engine: requested against actual."""

    scope = "engine"
    about = (
        "What was asked of an engine that already runs, against what its log, its own answers and its memory prove."
        " Inferred values are no proof."
    )
    BINDINGS = bindings("engine")

    def __init__(self, found: Found) -> None:
        super().__init__()
        self._found = found
        self._view: Attached | None = None
        self._said = "looking ..."

    def on_mount(self) -> None:
        """It is looked at beside the screen."""
        super().on_mount()
        self.action_refresh()

    def unavailable(self) -> frozenset[str]:
        """See KvtuiScreen."""
        return frozenset()

    def name_of(self) -> str:
        """See DetailScreen."""
        return f"{self._found.process.kind} {self._found.process.pid}"

    def action_refresh(self) -> None:
        """Look again."""
        files.aside(self, lambda: look_at(self._found))

    def on_looked(self, message: Looked) -> None:
        """It was looked at."""
        self._view, self._said = message.view, message.error
        self.show_live()

    def show_live(self) -> None:
        """See KvtuiScreen: the header is this machine's, not a session's."""
        cells = self.size.width
        self.query_one("#header", Lines).show([line(Span("kvtui", "title"))])
        self.query_one("#head", Lines).show([rule(line(Span(self.name_of(), "title")), cells)])
        self.query_one("#content", ScrollLines).show(self.build(cells - 2))

    def build(self, cells: int) -> Sequence[Line]:
        """See DetailScreen."""
        if self._view is None:
            return [line(Span(row, "dim")) for row in wrap(self._said, cells)]
        from kvtui.tui.view_attach import attached

        return attached(self._view, cells)
