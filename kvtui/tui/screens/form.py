"""Tuning a model from the app: which file, for what purpose, with which engine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from textual import on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.message import Message
from textual.screen import Screen
from textual.timer import Timer
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from kvtui.core.errors import PresetError
from kvtui.core.text import clean
from kvtui.core.units import tokens
from kvtui.procedure.preset import Preset, list_presets
from kvtui.tui import files
from kvtui.tui.browse import Checked, Entry, check
from kvtui.tui.lines import Line, Span, fit, line, rule, wrap
from kvtui.tui.render import content, paragraph
from kvtui.tui.screens.base import KvtuiScreen, bindings
from kvtui.tui.widgets import Lines

if TYPE_CHECKING:
    from kvtui.procedure.budget.explore import Choices
    from kvtui.procedure.tune import Tuning

PAUSE_S = 0.2


class Looked(Message):
    """The disk has been looked at for what was typed."""

    bubble = False

    def __init__(self, checked: Checked) -> None:
        super().__init__()
        self.checked = checked


class TuneScreen(KvtuiScreen):
    """First the model file, then the purpose; Enter goes on, Esc goes back."""

    scope = "form"
    about = "Type the path of a GGUF file, or choose from the list with the arrow keys; then choose what it is for."
    BINDINGS = bindings("form")

    def __init__(self, typed: str = "", choices: Choices | None = None) -> None:
        super().__init__()
        self._typed_first = typed
        self._choices = choices
        self._entries: tuple[Entry, ...] = ()
        self._presets: tuple[Preset, ...] = ()
        self._model = ""
        self._timer: Timer | None = None

    def compose(self) -> ComposeResult:
        """See Screen."""
        yield Lines(id="head")
        with Vertical(id="file-stage"):
            yield Static(content(line(" Model file ", Span("a GGUF file; a folder is listed below", "dim"))))
            yield Input(self._typed_first, id="model", placeholder="/path/to/model.gguf", max_length=4096)
            yield Static(id="found")
            yield OptionList(id="entries")
        with Vertical(id="preset-stage"):
            if self._choices is not None:
                yield Static(content(line(" From the budget: ", Span(self._choices.for_tuning, "strong"))))
            yield Static(content(line(" What is it for? ", Span("Enter starts; Tab: the engine", "dim"))))
            yield OptionList(id="presets")
            yield Static(id="description")
            yield Static(
                content(
                    line(" Engine ", Span("empty: llama-server of this box, else the embedded one", "dim"))
                )
            )
            yield Input(id="engine", placeholder="/path/to/llama-server", max_length=4096)
        yield Lines(id="footer")

    def on_mount(self) -> None:
        """The file first."""
        self._stage("file-stage", "model")
        self._look()

    def show_live(self) -> None:
        """See KvtuiScreen."""
        chosen = self._model if self.query_one("#preset-stage").display else ""
        title = line(Span(f"Tune {clean(Path(chosen).name)}" if chosen else "Tune a model", "title"))
        self.query_one("#head", Lines).show([rule(title, self.size.width)])

    def _stage(self, name: str, focus: str) -> None:
        for stage in ("file-stage", "preset-stage"):
            self.query_one(f"#{stage}").display = stage == name
        self.query_one(f"#{focus}").focus()
        self.show_live()

    @on(Input.Changed, "#model")
    def _typed(self) -> None:
        if self._timer is not None:
            self._timer.stop()
        self._timer = self.set_timer(PAUSE_S, self._look)

    def _look(self) -> None:
        typed = self.query_one("#model", Input).value
        files.aside(self, lambda: Looked(check(typed)))

    def on_looked(self, message: Looked) -> None:
        """Show what the path leads to, unless something else was typed meanwhile."""
        checked = message.checked
        if checked.typed != self.query_one("#model", Input).value:
            return
        found = line()
        if checked.model:
            found = line(Span(" ✓ ", "good"), checked.model, Span("   Enter goes on", "dim"))
        elif checked.problem:
            found = line(Span(" ✗ ", "bad"), checked.problem)
        elif checked.note:
            found = line(Span(f" {checked.note}", "dim"))
        self._model = checked.typed.strip() if checked.model else ""
        self.query_one("#found", Static).update(content(found))
        self._entries = checked.entries
        entries = self.query_one("#entries", OptionList)
        entries.clear_options()
        entries.add_options([Option(content(self._entry(e))) for e in checked.entries])

    def _entry(self, entry: Entry) -> Line:
        return line(" ", fit(line(Span(entry.name, "dim" if entry.is_folder else "")), 60), f" {entry.note}")

    @on(OptionList.OptionSelected, "#entries")
    def _picked(self, event: OptionList.OptionSelected) -> None:
        self._take(self._entries[event.option_index])

    def _take(self, entry: Entry) -> None:
        field = self.query_one("#model", Input)
        field.value = entry.path
        field.cursor_position = len(field.value)
        field.focus()

    @on(Input.Submitted, "#model")
    def _file_given(self) -> None:
        if self._model:
            self._choose_preset()
        elif len(self._entries) == 1:
            self._take(self._entries[0])
        else:
            self.action_to_list()

    def action_to_list(self) -> None:
        """From the field to the list below it."""
        name = "entries" if self.query_one("#file-stage").display else "presets"
        below = self.query_one(f"#{name}", OptionList)
        if below.option_count:
            below.highlighted = below.highlighted or 0
            below.focus()

    def _choose_preset(self) -> None:
        try:
            self._presets = list_presets()
        except PresetError as error:
            self.query_one("#found", Static).update(content(line(Span(f" ✗ {error.line()}", "bad"))))
            return
        presets = self.query_one("#presets", OptionList)
        presets.clear_options()
        presets.add_options(
            [
                Option(
                    content(
                        line(
                            " ", fit(line(Span(p.title, "strong")), 32), f" up to {tokens(p.target_context)}"
                        )
                    )
                )
                for p in self._presets
            ]
        )
        names = [p.name for p in self._presets]
        presets.highlighted = names.index("coding-agent") if "coding-agent" in names else 0
        self._stage("preset-stage", "presets")

    @on(OptionList.OptionHighlighted, "#presets")
    def _described(self, event: OptionList.OptionHighlighted) -> None:
        text = self._presets[event.option_index].description
        self.query_one("#description", Static).update(paragraph(wrap(text, self.size.width - 4)))

    @on(OptionList.OptionSelected, "#presets")
    def _start(self, event: OptionList.OptionSelected) -> None:
        engine = self.query_one("#engine", Input).value.strip()
        preset = self._presets[event.option_index].name
        self.kvtui.start_session(tune_job(self._model, preset, engine or None, self._choices))

    @on(Input.Submitted, "#engine")
    def _engine_given(self) -> None:
        self.query_one("#presets").focus()

    def action_budget_of(self) -> None:
        """The budget of the model that is typed; without one, that of the models there or at hand."""
        typed, model = self.query_one("#model", Input).value.strip(), self._model

        def load() -> Callable[[], Screen[None]]:
            from kvtui.tui.screens.budget import ModelScreen
            from kvtui.tui.screens.models import ModelsScreen

            return partial(ModelScreen, model) if model else partial(ModelsScreen, typed)

        self.push_beside(load)

    def action_back(self) -> None:
        """To the file, or out."""
        if self.query_one("#preset-stage").display:
            self._stage("file-stage", "model")
        else:
            self.app.pop_screen()


def tune_job(
    model: str, preset: str, engine_bin: str | None, choices: Choices | None = None
) -> Callable[[Callable[[str], None]], Tuning]:
    """The procedure on `model`, with what was chosen in its budget."""

    def job(note: Callable[[str], None]) -> Tuning:
        from kvtui.procedure.setup import TuneRequest, prepare

        request = TuneRequest(model=model, preset=preset, engine_bin=engine_bin)
        if choices is not None:
            request = replace(
                request,
                target_context=choices.ctx,
                n_parallel=choices.slots,
                n_ubatch=choices.n_ubatch,
            )
        return prepare(request, note)

    return job
