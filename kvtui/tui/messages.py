"""What other threads tell the screen. They carry nothing: the mailbox holds what happened."""

from __future__ import annotations

from textual.message import Message


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
