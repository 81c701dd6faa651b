"""What llama.cpp was asked for, where the log holds its command line, its environment or fit's own words."""

from __future__ import annotations

import re

from kvtui.logs.commandline import PROGRAM, environment, requested, tokens
from kvtui.logs.draft import Draft
from kvtui.logs.rules import rule
from kvtui.logs.slog import is_record

_HINTS = ("llama-", "_server", "llama.cpp:", "./")
_CRASH = re.compile(r"Segmentation fault|core dumped|\bAborted\b|\bKilled\b|terminated by")


def command_line(d: Draft, text: str) -> bool:
    """Read `text` as a command line, or as the next line of one; True when it was."""
    if is_record(text):
        return False
    start = PROGRAM.search(text) if any(hint in text for hint in _HINTS) else None
    if start is None:
        if not d.memory.get("command_open") or not text.lstrip().startswith("-"):
            d.memory["command_open"] = False
            return False
        words = tokens(text)
    else:
        if d.outcome != "unknown" and not _CRASH.search(text):
            d.new_launch()
        words = tokens(text[start.start() :])
    d.memory["command_open"] = True
    for name, value in {**environment(text), **requested(words)}.items():
        d.requested[name] = value
        d.lines[f"requested.{name}"] = d.here()
    return True


def _environment(d: Draft, m: re.Match[str]) -> None:
    for name, value in environment(m.string).items():
        d.requested.setdefault(name, value)
        d.lines.setdefault(f"requested.{name}", d.here())


def _ctx_by_user(d: Draft, m: re.Match[str]) -> None:
    d.requested.setdefault("ctx", int(m[1]))
    d.lines.setdefault("requested.ctx", d.here())


def _layers_by_user(d: Draft, m: re.Match[str]) -> None:
    d.requested.setdefault("n_gpu_layers", int(m[1]))
    d.lines.setdefault("requested.n_gpu_layers", d.here())


RULES = (
    rule("LLAMA_ARG_", "", _environment),
    rule("context size set by user", r"context size set by user to (\d+)", _ctx_by_user),
    rule("already set by user", r"n_gpu_layers already set by user to (\d+)", _layers_by_user),
)
