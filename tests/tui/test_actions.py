from __future__ import annotations

import pytest

from kvtui.tui import actions
from kvtui.tui.app import KvtuiApp
from kvtui.tui.lines import text_of, width_of
from kvtui.tui.screens.attach import EngineScreen, EnginesScreen
from kvtui.tui.screens.base import bindings
from kvtui.tui.screens.budget import ModelScreen
from kvtui.tui.screens.details import DetailScreen, LogScreen, TextScreen
from kvtui.tui.screens.dialogs import ConfirmDialog, ReasonDialog
from kvtui.tui.screens.form import TuneScreen
from kvtui.tui.screens.models import ModelsScreen
from kvtui.tui.screens.opening import OpeningScreen
from kvtui.tui.screens.procedure import ProcedureScreen
from kvtui.tui.screens.start import SessionsScreen, StartScreen

SCREENS = {
    "procedure": ProcedureScreen,
    "detail": DetailScreen,
    "log": LogScreen,
    "opening": OpeningScreen,
    "report": TextScreen,
    "form": TuneScreen,
    "list": SessionsScreen,
    "start": StartScreen,
    "engines": EnginesScreen,
    "engine": EngineScreen,
    "models": ModelsScreen,
    "model": ModelScreen,
    "dialog": ReasonDialog,
    "confirm": ConfirmDialog,
}


@pytest.mark.parametrize("scope", SCREENS)
def test_every_action_has_a_method_and_every_key_one_meaning(scope: str) -> None:
    seen: set[str] = set()
    for action in (*actions.of_scope(scope), *actions.everywhere()):
        owner = KvtuiApp if action in actions.everywhere() else SCREENS[scope]
        assert callable(getattr(owner, f"action_{action.id}", None)), action.id
        assert not seen & set(action.keys), action.id
        seen |= set(action.keys)
    assert SCREENS[scope].scope == scope


def test_bindings_are_made_of_the_registry() -> None:
    made = {b.action: b.key for b in bindings("procedure")}  # type: ignore[union-attr]
    assert made["accept"] == "a"
    assert len(made) == len(actions.of_scope("procedure"))
    assert {a for s in actions.ACTIONS for a in s.scopes} <= {*SCREENS, actions.EVERYWHERE}


@pytest.mark.parametrize("cells", [36, 60, 80, 200])
def test_the_footer_never_drops_help_and_quit(cells: int) -> None:
    every = [*actions.of_scope("procedure"), *actions.everywhere()]
    out = actions.footer(every, cells)
    assert width_of(out) == cells
    assert text_of(out).rstrip().endswith("? help  q quit")
    assert text_of(out).startswith(" a accept")


def test_help_lists_every_key_and_dims_what_does_nothing_now() -> None:
    now = [a for a in actions.of_scope("procedure") if a.id != "accept"]
    out = actions.help_lines("procedure", "What it is for.", now, 120)
    text = "\n".join(text_of(x) for x in out)
    for action in (*actions.of_scope("procedure"), *actions.everywhere()):
        assert action.help in text
    accept = next(x for x in out if "Do what is recommended." in text_of(x))
    assert {s.tone for s in accept if s.text.strip()} == {"dim"}


@pytest.mark.parametrize("cells", [36, 58, 78, 120])
def test_help_is_wrapped_and_never_cut(cells: int) -> None:
    about = (
        "A long paragraph that says what this screen is for, in more words than one line of a terminal holds."
    )
    out = actions.help_lines("procedure", about, actions.of_scope("procedure"), cells)
    assert all(width_of(row) <= max(cells, 36) for row in out)
    words = " ".join(text_of(row) for row in out).split()
    for action in actions.of_scope("procedure"):
        assert all(word in words for word in action.help.split())
    assert all(word in words for word in about.split())


def test_the_footer_names_only_keys_that_work_while_text_is_typed() -> None:
    every = [*actions.of_scope("dialog"), *actions.everywhere()]
    assert text_of(actions.footer(every, 60)).split() == [
        "Enter",
        "choose",
        "Esc",
        "back",
        "?",
        "help",
        "q",
        "quit",
    ]
    typing = text_of(actions.footer(every, 60, typing=True)).split()
    assert typing == ["Enter", "choose", "Esc", "back", "F1", "help", "Ctrl+Q", "quit"]
