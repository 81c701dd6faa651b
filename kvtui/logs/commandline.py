"""What an engine's own command line or environment asked for, under the names of the contract."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from kvtui.logs.llama_options import BY_WORD, TABLE

PROGRAM = re.compile(
    r"(?:^|[\s/\\\"'])(?:llama-(?:server|cli|bench|sweep-bench|perplexity|batched-bench|completion|run|parallel)"
    r"|llama_server|ollama_llama_server|llama\.cpp:(?:server|full|light)[\w.-]*|\./(?:build/bin/)?(?:server|main)|\./(?:server|main))"
    r"(?:\.exe)?[\"']?\s+(?:[\"']?-|\\$|`$)"
)
_TOKEN = re.compile(r"\"((?:[^\"\\]|\\.)*)\"|'([^']*)'|(\S+)")
_VARIABLE = re.compile(r"\b(LLAMA_ARG_[A-Z_]+)[=:]\s*\"?([\w.-]+)")
_VARIABLES = {option.env: option for option in TABLE if option.env is not None and option.counts}


def tokens(text: str) -> list[str]:
    """The words of a command line; quotes group, a Windows path keeps its backslashes."""
    return [next(g for g in m.groups() if g is not None) for m in _TOKEN.finditer(text)]


def requested(words: Sequence[str]) -> dict[str, Any]:
    """What the options among `words` ask for; options that mean nothing to the KV cache are passed over.

    A value that is no number where one is due (`$CTX`, `all`) is left out.
    """
    found: dict[str, Any] = {}
    for at, word in enumerate(words):
        name, equals, value = word.partition("=")
        option, positive = BY_WORD.get(name, (None, True))
        if option is None or not option.counts:
            continue
        following = words[at + 1] if at + 1 < len(words) else None
        parsed = option.value(value if equals else following) if positive else False
        if parsed is not None:
            found[option.name] = parsed
    return found


def environment(text: str) -> dict[str, Any]:
    """The same from `LLAMA_ARG_*=value` assignments in `text`."""
    found: dict[str, Any] = {}
    for name, value in _VARIABLE.findall(text):
        option = _VARIABLES.get(name)
        parsed = None if option is None else option.from_word(value)
        if option is not None and parsed is not None:
            found[option.name] = parsed
    return found
