"""Secrets on command lines: found by the option or variable they belong to, and replaced before anything is kept."""

from __future__ import annotations

import re
from collections.abc import Iterable

HIDDEN = "***"
_OPTION = re.compile(r"--?(?:[\w-]*[-_])?(?:key|token|secret|password)\Z", re.IGNORECASE)
_INSIDE = re.compile(
    r"(--?(?:[\w-]*[-_])?(?:key|token|secret|password)(?:\s+|=)|\b\w*(?:KEY|TOKEN|SECRET|PASSW)\w*=)([^\s'\"]+)"
)
_NAME = re.compile(r"KEY|TOKEN|SECRET|PASSW", re.IGNORECASE)


def is_secret_name(variable: str) -> bool:
    """Whether an environment variable of this name holds a secret, as far as its name tells."""
    return _NAME.search(variable) is not None


def without_secrets(words: Iterable[str]) -> tuple[str, ...]:
    """`words` of a command line with the values of keys, tokens and passwords hidden, quoted lines in a word too."""
    kept: list[str] = []
    hide = False
    for word in words:
        kept.append(HIDDEN if hide else _INSIDE.sub(rf"\g<1>{HIDDEN}", word))
        hide = not hide and _OPTION.match(word) is not None
    return tuple(kept)
