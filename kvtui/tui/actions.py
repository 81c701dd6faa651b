"""The one registry of what can be done: bindings, footer, help and palette are generated from it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from kvtui.tui.lines import EMPTY, Line, Span, fit, line, width_of, wrap

EVERYWHERE = "everywhere"
DETAIL = "detail"
ENGINE = "engine"
MODEL = "model"
LOG = "log"
RECORDS = (DETAIL, "report", LOG)
LINES = (*RECORDS, ENGINE, MODEL)
INNER = (
    DETAIL,
    "report",
    "form",
    "list",
    "dialog",
    "confirm",
    "opening",
    "engines",
    ENGINE,
    "models",
    MODEL,
    LOG,
)


@dataclass(frozen=True, slots=True)
class Action:
    """One thing the operator can do.

    `keys` are Textual's names, the first is the one shown. `scopes` are the screens it works on. `title` is the
    footer's word, `help` a sentence. `rank` orders the footer; below 0: not shown there.
    """

    id: str
    keys: tuple[str, ...]
    title: str
    help: str
    scopes: tuple[str, ...]
    rank: int = 50


ACTIONS: tuple[Action, ...] = (
    Action("accept", ("a",), "accept", "Do what is recommended.", ("procedure",), 1),
    Action("change", ("c",), "change", "Pick another variable or value instead.", ("procedure",), 2),
    Action("skip", ("s",), "skip", "Skip it, with a reason if you like.", ("procedure",), 3),
    Action("insist", ("i",), "run anyway", "Run what is advised against.", ("procedure",), 3),
    Action("again", ("g",), "run again", "Run the last run again, as it was.", ("procedure",), 7),
    Action("stop_here", ("x",), "stop here", "End the procedure with what is proven so far.", ("procedure",), 5),
    Action("pause", ("space", "p"), "pause", "Pause: the decisions are yours; again: kvtui's.", ("procedure",), 4),
    Action("verdict", ("v",), "verdict", "The verdict, the final command and the report's files.", ("procedure",), 6),
    Action("evidence", ("e", "enter"), "evidence", "What proves the selected row.", ("procedure",), 10),
    Action("log", ("l",), "log", "The engine's log, following; proving lines are marked.", ("procedure",), 11),
    Action("budget", ("b",), "budget", "Memory in figures: forecast, log, peaks.", ("procedure",), 12),
    Action("runs", ("r",), "runs", "Every run, one row each.", ("procedure",), 13),
    Action("next", ("n",), "next", "The recommendation in full, with its command.", ("procedure",), 14),
    Action("steps", ("t",), "steps", "The five steps with goal, gate and result.", ("procedure",), 15),
    Action("copy", ("y",), "copy", "Copy the command; it is kept in a file too.", ("procedure", *RECORDS), 20),
    Action("select_up", ("up", "k"), "up", "Select the row above.", ("procedure",), -1),
    Action("select_down", ("down", "j"), "down", "Select the row below.", ("procedure",), -1),
    Action("scroll_up", ("up", "k"), "up", "Scroll up.", (*RECORDS, ENGINE), -1),
    Action("scroll_down", ("down", "j"), "down", "Scroll down.", (*RECORDS, ENGINE), -1),
    Action("page_up", ("pageup",), "page up", "Scroll a page up.", LINES, -1),
    Action("page_down", ("pagedown", "space"), "page down", "Scroll a page down.", LINES, -1),
    Action("scroll_home", ("home", "g"), "top", "Go to the first line.", LINES, 30),
    Action("scroll_end", ("end", "G"), "end", "Go to the last line; a log follows on.", LINES, 31),
    Action("line_starts", ("left",), "back", "Show the earlier part of long lines.", (LOG,), 9),
    Action("line_ends", ("right",), "rest of lines", "Show the later part of long lines.", (LOG,), 8),
    Action("refresh", ("r",), "refresh", "Look again.", ("engines", ENGINE, "models"), 5),
    Action("shorter", ("left",), "less", "The next smaller context.", (MODEL,), 1),
    Action("longer", ("right",), "more", "The next larger context.", (MODEL,), 2),
    Action("kv_types", ("k",), "KV types", "The next pair of KV types.", (MODEL,), 3),
    Action("more_slots", ("plus", "equals_sign"), "slot", "One slot more.", (MODEL,), 6),
    Action("fewer_slots", ("minus",), "slot", "One slot fewer.", (MODEL,), 7),
    Action("unify", ("u",), "unified", "One pool of cells for all slots, or a part for each.", (MODEL,), 8),
    Action("micro_batch", ("m",), "-ub", "The next micro-batch.", (MODEL,), 9),
    Action("tune_this", ("t",), "tune", "Tune it with this context, slots and micro-batch.", (MODEL,), 5),
    Action("copy_budget", ("y",), "copy", "Copy the kvtui budget command that prints the same.", (MODEL,), 5),
    Action("vram", ("v",), "memory", "Say how many GiB the card has; empty: what is seen here.", ("models", MODEL), 4),
    Action("line_up", ("up",), "up", "Scroll up.", (MODEL,), -1),
    Action("line_down", ("down", "j"), "down", "Scroll down.", (MODEL,), -1),
    Action("where", ("o",), "other", "Name a folder, file, tag or address; Enter looks there.", ("models",), 3),
    Action("budget_of", ("f2",), "budget", "What it costs and what fits, before anything is launched.", ("form",), 30),
    Action("open", ("enter",), "open", "Open what is highlighted.", ("start", "list", "engines", "models"), 1),
    Action("choose", ("enter",), "choose", "Take what is highlighted, or what was typed.", ("dialog", "confirm"), 1),
    Action("yes", ("y",), "yes", "Do it.", ("confirm",), 1),
    Action("no", ("n",), "no", "Go back, nothing is done.", ("confirm",), 2),
    Action("to_list", ("down",), "list", "From the field to the list below it.", ("form", "models"), 39),
    Action("back", ("escape",), "back", "Back to where you were.", INNER, 40),
    Action("help", ("question_mark", "f1"), "help", "The keys, and what this screen is for.", (EVERYWHERE,), 90),
    Action("command_palette", ("ctrl+p",), "palette", "Every action by name.", (EVERYWHERE,), -1),
    Action("quit", ("q", "ctrl+q", "ctrl+c"), "quit", "End kvtui; a running engine is ended too.", (EVERYWHERE,), 91),
)  # fmt: skip

KEY_NAMES = {
    "question_mark": "?",
    "escape": "Esc",
    "space": "Space",
    "enter": "Enter",
    "up": "↑",
    "down": "↓",
    "pageup": "PgUp",
    "pagedown": "PgDn",
    "home": "Home",
    "end": "End",
    "f1": "F1",
    "f2": "F2",
    "left": "←",
    "right": "→",
    "plus": "+",
    "equals_sign": "=",
    "minus": "-",
    "ctrl+p": "Ctrl+P",
    "ctrl+q": "Ctrl+Q",
    "ctrl+c": "Ctrl+C",
}
TYPED = ("question_mark", "space", "plus", "equals_sign", "minus")
"""Keys that write a character where text is typed; so do all keys of one letter."""


def of_scope(scope: str) -> tuple[Action, ...]:
    """The actions of one screen, those that work everywhere left out."""
    return tuple(a for a in ACTIONS if scope in a.scopes)


def everywhere() -> tuple[Action, ...]:
    """The actions that work on every screen."""
    return of_scope(EVERYWHERE)


def key_name(key: str) -> str:
    """A key as it is written for a person."""
    return KEY_NAMES.get(key, key)


def footer(actions: Collection[Action], cells: int, *, typing: bool = False) -> Line:
    """The keys that work now: the most used first, help and quit always last and never cut.

    While text is typed (`typing`) only keys that write nothing are named.
    """
    keys = {a.id: next((k for k in a.keys if not (typing and _writes(k))), "") for a in actions}
    shown = sorted((a for a in actions if a.rank >= 0 and keys[a.id]), key=lambda a: a.rank)
    tail = [_hint(a, keys[a.id]) for a in shown if a.rank >= 90]
    room = cells - sum(width_of(t) for t in tail)
    head: list[Line] = []
    for action in shown:
        hint = _hint(action, keys[action.id])
        if action.rank >= 90 or width_of(hint) > room:
            continue
        head.append(hint)
        room -= width_of(hint)
    return fit(line(*head, *tail), cells)


def _writes(key: str) -> bool:
    return len(key) == 1 or key in TYPED


def _hint(action: Action, key: str) -> Line:
    return line(" ", Span(key_name(key), "key"), Span(f" {action.title} ", "dim"))


def help_lines(scope: str, about: str, actions: Collection[Action], cells: int = 80) -> list[Line]:
    """The help of one screen: what it is for, then its keys; those that do not work at this moment are dim.

    Below 60 cells what a key does stands under it.
    """
    out = [line(row) for row in wrap(about, cells)]
    out.append(EMPTY)
    beside = cells >= 60
    now = {a.id for a in actions}
    for title, group in (("Keys here", of_scope(scope)), ("Keys everywhere", everywhere())):
        if not group:
            continue
        out.append(line(Span(title, "title")))
        for action in group:
            tone = "" if action.id in now else "dim"
            keys = fit(line(Span(" ".join(key_name(k) for k in action.keys), "dim" if tone else "key")), 18)
            name = fit(line(Span(action.title, tone)), 12)
            rows = wrap(action.help, cells - (32 if beside else 4))
            first = Span(rows[0] if rows and beside else "", tone)
            out.append(line("  ", keys, name, first))
            out += [line(" " * (32 if beside else 4), Span(row, tone)) for row in rows[1 if beside else 0 :]]
        out.append(EMPTY)
    return out[:-1]
