"""A dialect is a table of rules: a literal that must be in the line, a pattern, and what the match proves."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from kvtui.logs.draft import Draft

Action = Callable[[Draft, re.Match[str]], None]


class Rule:
    """`needle` is what makes skipping a line cheap; `action` runs on the first match of `pattern`.

    `proves_engine` is False where other programs print the same. A pattern is compiled when its needle is
    first met: one log meets few of them.
    """

    __slots__ = ("_compiled", "_pattern", "action", "needle", "proves_engine")

    def __init__(self, needle: str, pattern: str, action: Action, *, proves_engine: bool = True) -> None:
        self.needle = needle
        self.action = action
        self.proves_engine = proves_engine
        self._pattern = pattern or re.escape(needle)
        self._compiled: re.Pattern[str] | None = None

    def search(self, text: str) -> re.Match[str] | None:
        """The first match in `text`."""
        if self._compiled is None:
            self._compiled = re.compile(self._pattern)
        return self._compiled.search(text)


def rule(needle: str, pattern: str, action: Action) -> Rule:
    """A rule whose line only an engine prints; an empty pattern means the needle alone decides."""
    return Rule(needle, pattern, action)


def weak(needle: str, pattern: str, action: Action) -> Rule:
    """A rule whose line any program may print: it means something only among an engine's lines."""
    return Rule(needle, pattern, action, proves_engine=False)


_GATES = ("ed", "t ", "ing", "bu", "si", "n_", "re", "")
"""Substrings that many needles share and few lines hold: one check in place of a dozen. The last takes the rest."""

Table = tuple[tuple[str, tuple[tuple[str, int, Rule], ...]], ...]


def table(*groups: Sequence[Rule]) -> Table:
    """Rules of several dialects by the gate that their needle lies behind, each with its place in the order."""
    behind: dict[str, list[tuple[str, int, Rule]]] = {gate: [] for gate in _GATES}
    for place, r in enumerate(r for group in groups for r in group):
        behind[next(gate for gate in _GATES if gate in r.needle)].append((r.needle, place, r))
    return tuple((gate, tuple(rules)) for gate, rules in behind.items())


def apply(rules: Table, draft: Draft, text: str) -> bool:
    """Run every rule that matches `text`, in order; True when one did that proves whose line it is."""
    near = [
        (place, r)
        for gate, members in rules
        if gate in text
        for needle, place, r in members
        if needle in text
    ]
    near.sort(key=_place)
    hit = False
    for _, r in near:
        if match := r.search(text):
            r.action(draft, match)
            hit = hit or r.proves_engine
    return hit


def _place(candidate: tuple[int, Rule]) -> int:
    return candidate[0]


def number(text: str) -> float:
    """A decimal as engines print it, with a point or (by locale) a comma."""
    return float(text.replace(",", "."))
