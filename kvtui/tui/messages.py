"""What other threads tell the screen. What happened in a session is not in them: the mailbox holds that."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from textual.message import Message

if TYPE_CHECKING:
    from textual.screen import Screen


class Wake(Message):
    """Something is in the mailbox."""

    bubble = False


class Loaded(Message):
    """A file was read, or could not be, for the screen that asked."""

    bubble = False

    def __init__(self, lines: list[str], name: str, error: str = "") -> None:
        super().__init__()
        self.lines = lines
        self.name = name
        self.error = error


class Ready(Message):
    """All that a screen imports is loaded; `make` makes it."""

    bubble = False

    def __init__(self, make: Callable[[], Screen[None]]) -> None:
        super().__init__()
        self.make = make
