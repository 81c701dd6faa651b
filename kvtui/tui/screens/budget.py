"""What a model will cost, before anything is launched: the list of models, and one of them with its options."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING

from textual import on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.message import Message
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from kvtui.core.errors import InputError, KvtuiError
from kvtui.core.text import clean
from kvtui.tui import files, view_budget
from kvtui.tui.lines import Line, Span, fit, line, rule, wrap
from kvtui.tui.render import content
from kvtui.tui.screens.base import Dialog, KvtuiScreen, bindings
from kvtui.tui.screens.details import DetailScreen
from kvtui.tui.widgets import Lines, ScrollLines

if TYPE_CHECKING:
    from kvtui.procedure.budget.card import Card
    from kvtui.procedure.budget.explore import Choices, Opened
    from kvtui.procedure.budget.listing import Listed, ModelRow
    from kvtui.procedure.budget.question import Answer
    from kvtui.sources.source import GgufModel

MOST_MODELS = 200
MOST_FOLDERS = 5_000
BATCH_S = 0.2


def card_of(vram: tuple[float, ...] | None) -> Card | None:
    """The memory that was given, else that of the GPUs here. Slow where a driver is."""
    from kvtui.procedure.budget.card import found_card, given_card

    return found_card() if vram is None else given_card(vram)


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


@dataclass(frozen=True, slots=True)
class Question:
    """What an answer was asked for. `vram` None: the GPUs of this machine."""

    serial: int
    choices: Choices | None
    vram: tuple[float, ...] | None


class Answered(Message):
    """What the choices cost, or why the model cannot be read. `asked` is what was asked."""

    bubble = False

    def __init__(self, asked: Question, known: Known | None, made: Answer | None, error: str = "") -> None:
        super().__init__()
        self.asked = asked
        self.known = known
        self.made = made
        self.error = error


@dataclass(frozen=True, slots=True)
class Known:
    """What does not change with the choices: the model, and the card for a given `vram`."""

    opened: Opened
    card: Card | None
    vram: tuple[float, ...] | None


def respond(asked: Question, reference: str, source: GgufModel | None, known: Known | None) -> Answered:
    """The costs; the model and the card are read unless `known` has them."""
    from kvtui.procedure.budget.explore import answer, explore, first_choices
    from kvtui.procedure.budget.measured import read_measurements
    from kvtui.procedure.budget.money import Terms

    try:
        if known is None or known.vram != asked.vram:
            card = card_of(asked.vram)
            model = source or (known.opened.source if known else None)
            known = Known(
                explore(reference, model, read_measurements(card.name if card else None)), card, asked.vram
            )
        choices = asked.choices or first_choices(known.opened)
        made = answer(known.opened, choices, known.card, Terms())
    except KvtuiError as error:
        return Answered(asked, known, None, error.line())
    return Answered(replace(asked, choices=choices), known, made)


class ModelScreen(DetailScreen):
    """One model: the card as a bar, KV by type and context, caches, formula; keys change the options."""

    scope = "model"
    about = (
        "What a context of this model costs and whether it fits, from the file alone; nothing is launched. The arrow"
        " keys change the context, other keys the KV types, slots and micro-batch; the figures follow at once."
    )
    BINDINGS = bindings("model")

    def __init__(self, reference: str, source: GgufModel | None = None) -> None:
        super().__init__()
        self._reference = reference
        self._source = source
        self._known: Known | None = None
        self._choices: Choices | None = None
        self._made: Answer | None = None
        self._said = "reading ..."
        self._serial = 0

    def on_mount(self) -> None:
        """The figures follow."""
        super().on_mount()
        self._ask(self._choices)

    def unavailable(self) -> frozenset[str]:
        """See KvtuiScreen: what needs figures, or a file that an engine can be given."""
        if self._made is None:
            keys = {"shorter", "longer", "kv_types", "more_slots", "fewer_slots", "unify", "micro_batch"}
            return frozenset({*keys, "copy_budget", "tune_this"})
        return frozenset() if self._made.source.path else frozenset({"tune_this"})

    def name_of(self) -> str:
        """See DetailScreen."""
        return view_budget.title(self._made) if self._made else clean(self._reference)

    def show_live(self) -> None:
        """See KvtuiScreen: the header is this machine's, not a session's."""
        cells = self.size.width
        self.query_one("#header", Lines).show([line(Span("kvtui", "title"), Span("  budget", "dim"))])
        self.query_one("#head", Lines).show([rule(line(Span(self.name_of(), "title")), cells)])
        self.query_one("#content", ScrollLines).show(self.build(cells - 2))

    def build(self, cells: int) -> Sequence[Line]:
        """See DetailScreen."""
        if self._made is None:
            return [line(Span(row, "dim")) for row in wrap(self._said, cells)]
        return view_budget.model(self._made, cells)

    def _ask(self, choices: Choices | None) -> None:
        self._serial += 1
        self._choices = choices
        asked = Question(self._serial, choices, self.kvtui.vram)
        reference, source, known = self._reference, self._source, self._known
        files.aside(self, lambda: respond(asked, reference, source, known))

    def on_answered(self, message: Answered) -> None:
        """The figures are here, unless others were asked for since."""
        if message.asked.serial != self._serial:
            return
        self._known, self._made, self._said = message.known, message.made, message.error
        self._choices = message.asked.choices
        self.draw()

    def _step(self, by: int) -> None:
        from kvtui.procedure.budget.explore import contexts, step

        if self._made is not None and self._choices is not None:
            ctx = step(contexts(self._made), self._choices.ctx, by)
            if ctx != self._choices.ctx:
                self._ask(replace(self._choices, ctx=ctx))

    def action_shorter(self) -> None:
        """The next smaller context."""
        self._step(-1)

    def action_longer(self) -> None:
        """The next larger context."""
        self._step(1)

    def action_kv_types(self) -> None:
        """The next pair of KV types."""
        if self._choices is not None:
            self._ask(self._choices.next_pair())

    def action_more_slots(self) -> None:
        """One slot more."""
        if self._choices is not None:
            self._ask(self._choices.more_slots(1))

    def action_fewer_slots(self) -> None:
        """One slot fewer."""
        if self._choices is not None:
            self._ask(self._choices.more_slots(-1))

    def action_unify(self) -> None:
        """One pool for all slots, or a part for each."""
        if self._choices is not None:
            self._ask(replace(self._choices, unified=not self._choices.unified))

    def action_micro_batch(self) -> None:
        """The next micro-batch."""
        if self._choices is not None:
            self._ask(self._choices.next_micro_batch())

    def action_vram(self) -> None:
        """Another card."""
        self.app.push_screen(VramDialog(self.kvtui.vram), self._vram_given)

    def _vram_given(self, vram: tuple[float, ...] | None) -> None:
        if vram is not None:
            self.kvtui.vram = vram or None
            self._ask(self._choices)

    def action_copy_budget(self) -> None:
        """The command that prints the same."""
        from kvtui.procedure.budget.explore import budget_command

        if self._choices is not None:
            text = budget_command(self._reference, self._choices, self.kvtui.vram)
            self.app.copy_to_clipboard(text)
            self.kvtui.say(f"copied: {text}")

    def action_tune_this(self) -> None:
        """The form, with this model and these settings."""
        from kvtui.tui.screens.form import TuneScreen

        if self._choices is not None:
            self.app.push_screen(TuneScreen(self._reference, self._choices))

    def action_line_up(self) -> None:
        """One line up."""
        self.action_scroll_up()

    def action_line_down(self) -> None:
        """One line down."""
        self.action_scroll_down()


class VramDialog(Dialog[tuple[float, ...]]):
    """The memory of a card, or of several; nothing means what is seen here."""

    about = "The memory of the card in GiB, several with commas between; empty: the GPUs that are seen here."

    def __init__(self, vram: tuple[float, ...] | None) -> None:
        super().__init__()
        self._vram = vram

    def compose(self) -> ComposeResult:
        """See Screen."""
        from kvtui.procedure.budget.explore import SUGGESTED_GIB

        shown = ",".join(f"{one:g}" for one in self._vram or (SUGGESTED_GIB,))
        with Vertical(id="box"):
            yield Static(content(line(Span("Memory of the card, GiB", "title"))))
            yield Static(content("Several with commas between: 16,16. Empty: the GPUs that are seen here."))
            yield Input(shown, max_length=60)
            yield Static(id="problem")

    @on(Input.Submitted)
    def _given(self, event: Input.Submitted) -> None:
        from kvtui.procedure.budget.card import parse_gib

        try:
            self.dismiss(parse_gib(event.value) if event.value.strip() else ())
        except InputError as error:
            self.query_one("#problem", Static).update(content(line(Span(error.line(), "bad"))))
