"""What all screens share: bindings from the registry, the footer, and the way to the live state."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, ClassVar, TypeVar, cast

from textual.binding import Binding, BindingType
from textual.css.query import NoMatches
from textual.screen import ModalScreen, Screen
from textual.widgets import Input, OptionList

from kvtui.tui import files
from kvtui.tui.actions import Action, everywhere, footer, of_scope
from kvtui.tui.live import Live
from kvtui.tui.messages import Ready
from kvtui.tui.widgets import Lines

if TYPE_CHECKING:
    from kvtui.tui.app import KvtuiApp

Result = TypeVar("Result")


def bindings(scope: str) -> list[BindingType]:
    """The registry's keys of one scope as Textual takes them."""
    return [
        Binding(",".join(a.keys), a.id, a.title, show=False, id=f"{scope}.{a.id}", tooltip=a.help)
        for a in of_scope(scope)
    ]


class KvtuiScreen(Screen[None]):
    """A full screen. `scope` names its actions in the registry, `about` says what it is for."""

    scope: ClassVar[str] = ""
    about: ClassVar[str] = ""
    ALLOW_SELECT = False

    @property
    def kvtui(self) -> KvtuiApp:
        """The app, typed."""
        return cast("KvtuiApp", self.app)

    @property
    def live(self) -> Live:
        """What there is to show."""
        return self.kvtui.live

    def unavailable(self) -> frozenset[str]:
        """Ids of this screen's actions that would do nothing now."""
        return frozenset()

    def actions(self) -> list[Action]:
        """What works now, here and everywhere."""
        off = self.unavailable() | (frozenset() if isinstance(self.focused, OptionList) else {"open"})
        return [a for a in (*of_scope(self.scope), *everywhere()) if a.id not in off]

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """See DOMNode: a key whose action is unavailable does nothing."""
        return action not in self.unavailable()

    def show_live(self) -> None:
        """Draw the live state again; called when it changed and once a second."""

    def show_log(self) -> None:
        """New lines of the engine's log came in; called at most ten times a second."""

    def show_footer(self) -> None:
        """Draw the keys that work now."""
        for widget in self.query("#footer").results(Lines):
            widget.show([footer(self.actions(), self.size.width, typing=isinstance(self.focused, Input))])

    def draw(self, *, live: bool = True, log: bool = True) -> None:
        """Bring the screen up to date; nothing before it has its widgets."""
        if not self.is_mounted:
            return
        # A screen that is being taken down loses its widgets one by one before it is told.
        with suppress(NoMatches):
            if live:
                self.show_live()
                self.show_footer()
            if log:
                self.show_log()

    def push_beside(self, load: Callable[[], Callable[[], Screen[None]]]) -> None:
        """Open the screen that `load` returns a maker of. Importing what it needs may take longer than a key should, so
        `load` runs in a thread; nothing opens where this screen was left meanwhile."""
        files.aside(self, lambda: Ready(load()))

    def on_ready(self, message: Ready) -> None:
        """It can be made now."""
        if self.is_current:
            self.app.push_screen(message.make())

    def on_descendant_focus(self) -> None:
        """Other keys work in a field than in a list."""
        self.show_footer()

    def action_open(self) -> None:
        """What is highlighted, as Enter does in the list itself."""
        if isinstance(self.focused, OptionList):
            self.focused.action_select()

    def on_screen_resume(self) -> None:
        """The screen is on top again: it may have missed a lot."""
        self.draw()

    def on_resize(self) -> None:
        """Another size: everything is laid out again."""
        self.draw()


class Dialog(ModalScreen[Result]):
    """A question on top of a screen; Esc leaves it without an answer."""

    scope: ClassVar[str] = "dialog"
    about: ClassVar[str] = "A question. Esc goes back and changes nothing."
    BINDINGS = bindings("dialog")
    DEFAULT_CLASSES = "dialog"

    @property
    def kvtui(self) -> KvtuiApp:
        """The app, typed."""
        return cast("KvtuiApp", self.app)

    def actions(self) -> list[Action]:
        """What works now, here and everywhere."""
        return [*of_scope(self.scope), *everywhere()]

    def on_mount(self) -> None:
        """The keys of the question, over those of the screen below."""
        self.mount(Lines(id="footer"))
        self.call_after_refresh(self.show_footer)

    def show_footer(self) -> None:
        """Draw the keys that work now."""
        for widget in self.query("#footer").results(Lines):
            widget.show([footer(self.actions(), self.size.width, typing=isinstance(self.focused, Input))])

    def on_descendant_focus(self) -> None:
        """Other keys work in a field than in a list."""
        self.show_footer()

    def on_resize(self) -> None:
        """Another width."""
        self.show_footer()

    def action_choose(self) -> None:
        """What is highlighted, as Enter does in the list itself."""
        if isinstance(self.focused, OptionList):
            self.focused.action_select()

    def action_back(self) -> None:
        """No answer."""
        self.dismiss(None)
