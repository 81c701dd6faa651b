"""The models at hand, or of a folder or store, each with the largest context that fits."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING

from textual import on
from textual.app import ComposeResult
from textual.message import Message
from textual.widgets import Input, OptionList
from textual.widgets.option_list import Option

from kvtui.core.errors import InputError, KvtuiError
from kvtui.tui import files, view_budget
from kvtui.tui.lines import Span, fit, line, rule
from kvtui.tui.render import content
from kvtui.tui.screens.base import KvtuiScreen, bindings
from kvtui.tui.screens.budget import ModelScreen, VramDialog, card_of
from kvtui.tui.widgets import Lines

if TYPE_CHECKING:
    from kvtui.procedure.budget.card import Card
    from kvtui.procedure.budget.listing import Listed, ModelRow
    from kvtui.sources.source import GgufModel

MOST_MODELS = 200
MOST_FOLDERS = 5_000
BATCH_S = 0.2


class Rows(Message):
    """Some more models of a list. `rest` gives the others, None when these were the last; `note` says what is left out.

    `only` is the model itself where what was typed means one.
    """

    bubble = False

    def __init__(
        self,
        serial: int,
        rows: list[ModelRow],
        rest: Iterator[ModelRow] | None,
        note: str = "",
        only: GgufModel | None = None,
    ) -> None:
        super().__init__()
        self.serial = serial
        self.rows = rows
        self.rest = rest
        self.note = note
        self.only = only


def first_rows(serial: int, typed: str, vram: tuple[float, ...] | None) -> Rows:
    """The first models of what was typed; of those at hand where nothing was."""
    from kvtui.procedure.budget.explore import gguf_or_folder
    from kvtui.procedure.budget.listing import models_at_hand, models_in
    from kvtui.sources.source import GgufModel

    try:
        source = gguf_or_folder(typed) if typed else None
        if isinstance(source, GgufModel):
            return Rows(serial, [], None, only=source)
        models = models_in(source, MOST_FOLDERS) if source else models_at_hand(MOST_FOLDERS)
        return more_rows(serial, _read(models, card_of(vram)))
    except KvtuiError as error:
        return Rows(serial, [], None, error.line())


def more_rows(serial: int, rest: Iterator[ModelRow]) -> Rows:
    """What can be read in a moment, at least one model."""
    rows: list[ModelRow] = []
    end = time.monotonic() + BATCH_S
    try:
        for row in rest:
            rows.append(row)
            if time.monotonic() > end:
                return Rows(serial, rows, rest)
    except KvtuiError as error:
        return Rows(serial, rows, None, error.line())
    return Rows(serial, rows, None)


def _read(models: Iterator[Listed], card: Card | None) -> Iterator[ModelRow]:
    from kvtui.model.request import ContextRequest
    from kvtui.procedure.budget.listing import Frame, row
    from kvtui.procedure.budget.measured import read_measurements
    from kvtui.procedure.budget.money import Terms

    frame = Frame(ContextRequest(0), card, Terms(), read_measurements(card.name if card else None))
    for one in islice(models, MOST_MODELS):
        yield row(one, frame)
    if next(models, None) is not None:
        raise InputError(
            f"more than {MOST_MODELS} models, the others are left out", hint="o: a folder further down"
        )


class ModelsScreen(KvtuiScreen):
    """The models of a folder or store, or those at hand, each with the largest context that fits."""

    scope = "models"
    about = (
        "Models with the largest context that fits this card, for each pair of KV types. At first those of earlier"
        " sessions, of Ollama, of the Hugging Face cache and of this folder. Enter shows one in full."
    )
    BINDINGS = bindings("models")

    def __init__(self, typed: str = "") -> None:
        super().__init__()
        self._typed = typed
        self._rows: list[ModelRow] = []
        self._serial = 0
        self._note = ""
        self._drawn = 0

    def compose(self) -> ComposeResult:
        """See Screen."""
        yield Lines(id="header")
        yield Lines(id="head")
        yield Input(
            self._typed,
            id="where",
            placeholder="models at hand; or a folder, file, tag, address",
            max_length=4096,
        )
        yield Lines(id="columns")
        yield OptionList(id="menu")
        yield Lines(id="note")
        yield Lines(id="footer")

    def on_mount(self) -> None:
        """The list follows."""
        self.query_one("#menu").focus()
        self.action_refresh()

    def show_live(self) -> None:
        """See KvtuiScreen: every row is laid out again for another width."""
        cells = self.size.width
        self.query_one("#header", Lines).show([line(Span("kvtui", "title"))])
        self.query_one("#head", Lines).show([rule(line(Span("Budget", "title")), cells)])
        budgeted = any(pair.largest for row in self._rows for pair in row.pairs)
        self.query_one("#columns", Lines).show(view_budget.list_head(cells - 2, budgeted=budgeted))
        self.query_one("#note", Lines).show([fit(line(Span(f" {self._note}", "warn")), cells)])
        if cells != self._drawn:
            self._drawn = cells
            menu = self.query_one("#menu", OptionList)
            at = menu.highlighted
            menu.clear_options()
            menu.add_options([self._option(row) for row in self._rows])
            menu.highlighted = at

    def _option(self, row: ModelRow) -> Option:
        return Option(content(view_budget.list_row(row, self.size.width - 2)))

    def action_refresh(self) -> None:
        """Look again."""
        self._serial += 1
        self._rows, self._note = [], "looking ..."
        self.query_one("#menu", OptionList).clear_options()
        serial, typed, vram = self._serial, self._typed, self.kvtui.vram
        files.aside(self, lambda: first_rows(serial, typed, vram))
        self.show_live()

    def on_rows(self, message: Rows) -> None:
        """Some are known now; the rest follows as long as this is what is looked for."""
        if message.serial != self._serial:
            return
        if message.only is not None:
            self._note = ""
            self.app.push_screen(ModelScreen(self._typed, message.only))
            self._typed = ""
            self.query_one("#where", Input).value = ""
            self.action_refresh()
            return
        menu = self.query_one("#menu", OptionList)
        self._rows += message.rows
        menu.add_options([self._option(row) for row in message.rows])
        if menu.highlighted is None and self._rows:
            menu.highlighted = 0
        rest = message.rest
        if rest is not None and self.is_attached:
            files.aside(self, lambda: more_rows(message.serial, rest))
        self._note = message.note or ("looking ..." if rest is not None else self._hint())
        self.show_live()

    def _hint(self) -> str:
        if not self._rows:
            return "no model is found: o names a folder, a file, a tag of Ollama or an address"
        budgeted = any(pair.largest for row in self._rows for pair in row.pairs)
        return "" if budgeted else "no GPU is seen here: v takes the memory of a card in GiB, 16 is suggested"

    @on(OptionList.OptionSelected)
    def _chosen(self, event: OptionList.OptionSelected) -> None:
        row = self._rows[event.option_index]
        if row.header is not None:
            self.app.push_screen(ModelScreen(row.reference))

    @on(Input.Submitted, "#where")
    def _where_given(self, event: Input.Submitted) -> None:
        self._typed = event.value.strip()
        self.query_one("#menu").focus()
        self.action_refresh()

    def action_where(self) -> None:
        """To the field."""
        self.query_one("#where").focus()

    def action_to_list(self) -> None:
        """From the field to the list."""
        self.query_one("#menu").focus()

    def action_vram(self) -> None:
        """Another card."""
        self.app.push_screen(VramDialog(self.kvtui.vram), self._vram_given)

    def _vram_given(self, vram: tuple[float, ...] | None) -> None:
        if vram is not None:
            self.kvtui.vram = vram or None
            self.action_refresh()

    def action_back(self) -> None:
        """Back."""
        self.app.pop_screen()
