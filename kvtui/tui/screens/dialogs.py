"""The questions: another variable, a reason, a confirmation."""

from __future__ import annotations

from textual import on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from kvtui.core.errors import InputError
from kvtui.procedure.variables import BY_NAME, VARIABLES
from kvtui.session.state import SessionState
from kvtui.tui.lines import Span, fit, line
from kvtui.tui.render import content
from kvtui.tui.screens.base import Dialog, bindings

OTHER = "another value"


class ConfirmDialog(Dialog[bool]):
    """Yes or no; no is where the cursor stands."""

    scope = "confirm"
    about = "A confirmation. y does it, n or Esc does not."
    BINDINGS = bindings("confirm")

    def __init__(self, title: str, text: str, yes: str) -> None:
        super().__init__()
        self._title, self._text, self._yes = title, text, yes

    def compose(self) -> ComposeResult:
        """See Screen."""
        with Vertical(id="box"):
            yield Static(content(line(Span(self._title, "title"))))
            yield Static(content(self._text))
            yield OptionList(
                Option(content(line(Span("n", "key"), "  go back")), id="no"),
                Option(content(line(Span("y", "key"), f"  {self._yes}")), id="yes"),
            )

    @on(OptionList.OptionSelected)
    def _chosen(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(event.option_id == "yes")

    def action_yes(self) -> None:
        """Yes."""
        self.dismiss(True)

    def action_no(self) -> None:
        """No."""
        self.dismiss(False)


class ReasonDialog(Dialog[str]):
    """Why the operator decides so; may be left empty. `enter` says what the Enter key then does."""

    about = "A reason is kept in the session and the report. Enter goes on, with or without one."

    def __init__(self, title: str = "Skip this recommendation", enter: str = "skips") -> None:
        super().__init__()
        self._title, self._enter = title, enter

    def compose(self) -> ComposeResult:
        """See Screen."""
        with Vertical(id="box"):
            yield Static(content(line(Span(self._title, "title"))))
            yield Static(content(f"Reason, if you like. Enter {self._enter}, Esc goes back."))
            yield Input(max_length=300)

    @on(Input.Submitted)
    def _given(self, event: Input.Submitted) -> None:
        self.dismiss(event.value.strip())


class ChangeDialog(Dialog[tuple[str, str]]):
    """Which variable, then which value: from a list, or typed and checked."""

    about = (
        "Pick the one variable to change, then its value; `another value` lets you type one. Esc goes back."
    )

    def __init__(self, state: SessionState) -> None:
        super().__init__()
        recommended = state.recommendation
        last = state.runs[-1].config if state.runs else state.started.base
        self._config = last
        self._advised = recommended.variable if recommended else ""
        self._variable = ""
        named = recommended.variables if recommended else ()
        self._pairs = recommended.kv_pairs if recommended else ()
        self._offered = tuple(v for v in VARIABLES if not named or v.name in named)

    def compose(self) -> ComposeResult:
        """See Screen."""
        with Vertical(id="box"):
            yield Static(content(line(Span("Change one variable", "title"))), id="question")
            yield OptionList(*self._variables(), id="variables")
            yield Static(id="about")
            yield OptionList(id="values")
            yield Input(id="typed", max_length=300)
            yield Static(id="problem")

    def on_mount(self) -> None:
        """Variables first."""
        self._show("variables")
        labels = [v.label for v in self._offered]
        if self._advised in labels:
            self.query_one("#variables", OptionList).highlighted = labels.index(self._advised)

    def _show(self, name: str) -> None:
        for widget in ("variables", "values", "typed"):
            self.query_one(f"#{widget}").display = widget == name
        self.query_one("#about").display = name == "variables"
        self.query_one(f"#{name}").focus()

    def _variables(self) -> list[Option]:
        return [
            Option(
                content(
                    line(
                        fit(line(Span(v.label, "strong")), 20),
                        fit(line(v.value(self._config)), 13),
                        Span(v.option, "dim"),
                    )
                ),
                id=v.name,
            )
            for v in self._offered
        ]

    @on(OptionList.OptionHighlighted, "#variables")
    def _described(self, event: OptionList.OptionHighlighted) -> None:
        text = BY_NAME[event.option_id or ""].help
        self.query_one("#about", Static).update(content(line(Span(text, "dim"))))

    @on(OptionList.OptionSelected, "#variables")
    def _variable_chosen(self, event: OptionList.OptionSelected) -> None:
        self._variable = event.option_id or ""
        variable = BY_NAME[self._variable]
        title = line(
            Span(variable.label, "title"),
            f"  now {variable.value(self._config)}  ",
            Span(variable.help, "dim"),
        )
        self.query_one("#question", Static).update(content(title))
        values = self.query_one("#values", OptionList)
        values.clear_options()
        now = variable.value(self._config)
        pairs = tuple(p for p in self._pairs if p != now) if self._variable == "kv-types" else ()
        choices = pairs or variable.choices(self._config)
        values.add_options([Option(content(c), id=f"value:{c}") for c in choices])
        values.add_option(Option(content(line(Span(OTHER, "dim"))), id="other"))
        values.highlighted = 0
        self._show("values" if choices else "typed")

    @on(OptionList.OptionSelected, "#values")
    def _value_chosen(self, event: OptionList.OptionSelected) -> None:
        if event.option_id == "other":
            self._show("typed")
        else:
            self._finish((event.option_id or "").removeprefix("value:"))

    @on(Input.Submitted)
    def _typed(self, event: Input.Submitted) -> None:
        self._finish(event.value)

    def _finish(self, value: str) -> None:
        try:
            BY_NAME[self._variable].change(self._config, value)
        except InputError as error:
            self.query_one("#problem", Static).update(content(line(Span(error.line(), "bad"))))
            return
        self.dismiss((self._variable, value))

    def action_back(self) -> None:
        """One stage back; from the first, out."""
        self.query_one("#problem", Static).update("")
        several = self.query_one("#values", OptionList).option_count > 1
        if self.query_one("#typed").display and several:
            self._show("values")
        elif not self.query_one("#variables").display:
            self.query_one("#question", Static).update(content(line(Span("Change one variable", "title"))))
            self._show("variables")
        else:
            self.dismiss(None)
