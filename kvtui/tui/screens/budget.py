"""What one model will cost, before anything is launched: its figures, and keys for what may be changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from textual import on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.message import Message
from textual.widgets import Input, Static

from kvtui.core.errors import InputError, KvtuiError
from kvtui.core.text import clean
from kvtui.tui import files, view_budget
from kvtui.tui.lines import Line, Span, line, rule, wrap
from kvtui.tui.render import content
from kvtui.tui.screens.base import Dialog, bindings
from kvtui.tui.screens.details import DetailScreen
from kvtui.tui.widgets import Lines, ScrollLines

if TYPE_CHECKING:
    from kvtui.procedure.budget.card import Card
    from kvtui.procedure.budget.explore import Choices, Opened
    from kvtui.procedure.budget.question import Answer
    from kvtui.sources.source import GgufModel


def card_of(vram: tuple[float, ...] | None) -> Card | None:
    """The memory that was given, else that of the GPUs here. Slow where a driver is."""
    from kvtui.procedure.budget.card import found_card, given_card

    return found_card() if vram is None else given_card(vram)


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
        from kvtui.procedure.budget import words

        return words.title(self._made.source.header) if self._made else clean(self._reference)

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
