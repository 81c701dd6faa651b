"""Secrets on command lines and in text: found by the option, the variable or the address they belong to, and hidden.

The one place that says what looks like a secret.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from kvtui.core.text import clean

HIDDEN = "***"
"""What stands for a secret in what is shown or recorded."""
REDACTED = "REDACTED"
"""What stands for it in a report; a report that holds it cannot be replayed as it is."""

_WORDS = "key|token|secret|passw(?:or)?d|auth"
_OPTION = re.compile(rf"--?(?:[\w-]*[-_])?(?:{_WORDS})\Z|-hft\Z", re.IGNORECASE)
_SEVERAL = re.compile(r"--api[-_]key\Z", re.IGNORECASE)
"""vLLM takes all words behind it as keys, up to the next option."""
_NAME = re.compile(r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL|AUTH", re.IGNORECASE)
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=")
_IN_ADDRESS = (
    re.compile(r"(\b\w+://)([^\s/@]+)(?=@)"),
    re.compile(r"([?&][\w-]*(?:key|token|secret|password|sig|signature)=)([^\s&#'\"]+)", re.IGNORECASE),
)
_NOT_SHOWN = re.compile(r"(?<=://)[^/?#]*@|[?#].*", re.DOTALL)
_IN_TEXT = (
    re.compile(
        r"(--?(?:[\w-]*[-_])?(?:key|token|secret|password)(?:\s+|=)['\"]?)(?!-)([^\s'\"]+)", re.IGNORECASE
    ),
    re.compile(r"(\b(?:bearer|api[_ -]?keys?\s*[:=])\s+)(\S+)", re.IGNORECASE),
    re.compile(r"(\b[A-Z0-9_]*(?:KEY|TOKEN|SECRET|PASSW)[A-Z0-9_]*=['\"]?)([^\s'\"]+)"),
    *_IN_ADDRESS,
    re.compile(r"()(\b(?:hf_|sk-|gh[pousr]_|xox[abp]-)[A-Za-z0-9_-]{12,})"),
)


def is_secret_name(variable: str) -> bool:
    """Whether an environment variable of this name holds a secret, as far as its name tells."""
    return _NAME.search(variable) is not None


def without_secrets(words: Iterable[str], mark: str = HIDDEN) -> tuple[str, ...]:
    """`words` of a command line with `mark` for keys, tokens and passwords, those of a quoted line in a word too."""
    return tuple(
        f"{lead}{mark}" if secret else without_secret(lead, mark) if " " in lead or "://" in lead else lead
        for lead, secret in _parted(words)
    )


def without_secret(text: str, mark: str = HIDDEN) -> str:
    """A line of text with `mark` for what an option, a variable, an address or its own form tells to be a secret."""
    for pattern in _IN_TEXT:
        text = pattern.sub(lambda found: found[1] + mark, text)
    return text


def secrets_among(words: Iterable[str]) -> Iterator[str]:
    """The values in a command line that look like a key, token or password."""
    for lead, secret in _parted(words):
        if secret:
            yield secret
        for pattern in _IN_ADDRESS:
            for found in pattern.finditer(lead + secret):
                yield found[2].rpartition(":")[2]


def shown_address(url: str) -> str:
    """An address, or what was meant as one, as it may be shown and kept: without name, password and query, which can
    be secrets."""
    return clean(_NOT_SHOWN.sub("", url), 512)


def _parted(words: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Each word as what may be shown of it and the secret behind that, empty where there is none."""
    before = several = ""
    for word in words:
        several = "" if word.startswith("-") else several
        option, equals, value = word.partition("=")
        assigned = _ASSIGNMENT.match(word)
        if _OPTION.match(several or before):
            yield "", word
        elif equals and (_OPTION.match(option) or (assigned and is_secret_name(assigned[1]))):
            yield f"{option}=", value
        else:
            yield word, ""
        before, several = word, word if _SEVERAL.match(word) else several
