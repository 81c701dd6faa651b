"""What the tones of a line look like in a theme: a colour of the theme, and attributes that need no colour."""

from __future__ import annotations

from collections.abc import Mapping

from rich.style import Style
from textual.color import Color

# The theme's variable, and the attributes. A tone without colour still stands out where it must.
LOOKS: dict[str, tuple[str, str]] = {
    "dim": ("", "dim"),
    "strong": ("", "bold"),
    "title": ("", "bold"),
    "good": ("success", ""),
    "bad": ("error", ""),
    "warn": ("warning", ""),
    "accent": ("secondary", ""),
    "key": ("accent", "bold"),
    "rule": ("", "dim"),
    "cursor": ("", "reverse"),
    "others": ("", "dim"),
    "weights": ("primary", ""),
    "kv": ("success", ""),
    "compute": ("warning", ""),
    "other": ("secondary", ""),
    "free": ("", "dim"),
}


class Palette:
    """The styles of all tones; made anew when the theme changes."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        self._of_name = {name: _style(variables, *look) for name, look in LOOKS.items()}
        self._made: dict[str, Style] = {"": Style.null()}

    def style(self, tone: str) -> Style:
        """The style of a tone; several, joined by blanks, add up."""
        made = self._made.get(tone)
        if made is None:
            made = self._made[tone] = Style.combine(self._of_name[name] for name in tone.split())
        return made


def _style(variables: Mapping[str, str], variable: str, attributes: str) -> Style:
    style = Style.parse(attributes) if attributes else Style.null()
    colour = variables.get(variable)
    return style + Style(color=Color.parse(colour).rich_color) if colour else style
