"""Numbers of a `config.json`, checked before they are used: nothing in the file is believed to be a number."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvtui.core.text import clean

MAX_VALUE = 1 << 24
_LONGEST_WORD = 80


class Undetermined(Exception):
    """What is kept cannot be told from this file; the text says why."""


class Values:
    """The keys of one configuration."""

    def __init__(self, raw: Mapping[str, Any]) -> None:
        self._raw = raw

    def has(self, key: str) -> bool:
        """Whether the key is there with a value."""
        return self._raw.get(key) is not None

    def count(self, *keys: str, most: int = MAX_VALUE) -> int | None:
        """The whole number under the first of `keys` that is there, None where none is.

        Raises Undetermined where what stands there is not a number from 0 to `most`.
        """
        for key in keys:
            value = self._raw.get(key)
            if value is None:
                continue
            if isinstance(value, float) and value.is_integer():
                value = int(value)
            if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
                raise Undetermined(f"{key} is not a plain number")
            return value
        return None

    def needed(self, *keys: str) -> int:
        """Like `count`, but the number must be there and not zero."""
        value = self.count(*keys)
        if not value:
            raise Undetermined(f"{keys[0]} is missing")
        return value

    def flag(self, key: str, default: bool) -> bool:
        """A yes or no."""
        value = self._raw.get(key)
        return value if isinstance(value, bool) else default

    def words(self, key: str) -> list[str] | None:
        """A list of words, cleaned, None where there is none."""
        value = self._raw.get(key)
        if not isinstance(value, list) or not value:
            return None
        if not all(isinstance(word, str) for word in value):
            raise Undetermined(f"{key} is not a list of words")
        return [clean(word, _LONGEST_WORD) for word in value]

    def numbers(self, key: str) -> list[int] | None:
        """A list of whole numbers, None where there is none."""
        value = self._raw.get(key)
        if not isinstance(value, list):
            return None
        if not all(type(n) is int for n in value):
            raise Undetermined(f"{key} is not a list of numbers")
        return value

    def text(self, key: str) -> str | None:
        """A text, cleaned, None where there is none."""
        value = self._raw.get(key)
        return clean(value) if isinstance(value, str) else None
