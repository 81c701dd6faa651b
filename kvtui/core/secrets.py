"""Secrets on command lines: found by the option or variable they belong to, and replaced before anything is kept."""

from __future__ import annotations

import re
from collections.abc import Iterable

HIDDEN = "***"
_OPTION = re.compile(r"--?(?:[\w-]*[-_])?(?:key|token|secret|password)\Z|-hft\Z", re.IGNORECASE)
_SEVERAL = re.compile(r"--api[-_]key\Z", re.IGNORECASE)
"""vLLM takes all words behind it as keys, up to the next option."""
_IN_ADDRESS = (
    re.compile(r"(\b\w+://)[^\s/@]+(?=@)"),
    re.compile(r"([?&][\w-]*(?:key|token|secret|password|sig|signature)=)[^\s&#'\"]+", re.IGNORECASE),
)
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
    hide = several = False
    for word in words:
        several = several and not word.startswith("-")
        kept.append(HIDDEN if hide or several else without_secret(word))
        hide, several = (
            not hide and _OPTION.match(word) is not None,
            several or _SEVERAL.match(word) is not None,
        )
    return tuple(kept)


def without_secret(text: str) -> str:
    """One word or line with the secrets hidden that an option, a variable or an address in it names."""
    text = _INSIDE.sub(rf"\g<1>{HIDDEN}", text)
    for pattern in _IN_ADDRESS:
        text = pattern.sub(rf"\g<1>{HIDDEN}", text)
    return text
