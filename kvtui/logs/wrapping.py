"""What stands between an engine's line and the log as it was read: prefixes, JSON, terminal codes, wraps, merges."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from kvtui.core.text import clean
from kvtui.logs.slog import is_record

Line = tuple[int, str]

_ROUTER_CHILD = re.compile(r"^\[\d{2,5}\] ")
_ELAPSED = re.compile(r"^(?:\d+\.)?\d+\.\d\d\.\d{3}\.\d{3} (?:[A-Z] )?")
_LEVEL = re.compile(r"^[IWED] (?=\S)")
_MERGED = re.compile(
    r"(?<=\S)\s+(?=(?:llama_(?!server)\w+|llm_load_\w+|load_tensors|sched_reserve|resolve_fused_ops|common_\w+"
    r"|ggml_\w+): )"
)
_QUOTES = ("llama_model_loader: - kv", '"role"', '"content"', '"prompt"', "example_format")
"""Lines that quote a file's metadata or somebody's prompt: what they say is not the engine speaking."""
_SIZE_LINE = re.compile(r"(?:KV self size|\bsize)\s*=\s*\d+[.,]\d+\s*MiB(?:,|\s*\()")
_SIZE_ENDS = re.compile(r"(?:\b[VS]|kv\^T)\s*\(\w+\):\s*\d+[.,]\d+\s*MiB|not used")
_CUT_BY_PAGER = re.compile(r"(?:[>…]|\.\.\.)$")
_SIZE_BEGINS = re.compile(r" MiB\s*\(\s*\d*\s*c?e?l?l?s?$")
_STARTS_ANEW = re.compile(
    r"^[a-z_~][\w~]{3,}(?:\s+[a-z_]\w*)?: |^\[|^[IWED] |time=|^\d{4}-\d\d|\blevel=[A-Z]+ "
)
MAX_HELD = 3
MAX_RECORD = 40
"""Lines of a log that one wrapped line, and one wrapped record, may span."""
NARROW = 80
"""Columns: a record that is longer stands on one line as it was written."""


def unwrap(raw: str) -> Iterator[str]:
    """The engine's own lines inside one line of the log: usually one, several where CR, JSON or a paste joined them."""
    for piece in raw.split("\r"):
        text = clean(piece, limit=8192).rstrip()
        if any(mark in text for mark in _QUOTES):
            continue
        if text.startswith("{"):
            yield from _jsonl(text)
        elif text:
            yield from (
                _MERGED.split(_prefixes(text)) if "  " in text or text.count(": ") > 1 else (_prefixes(text),)
            )


def _prefixes(text: str) -> str:
    text = _ROUTER_CHILD.sub("", text)
    stripped = _ELAPSED.sub("", text)
    return stripped if stripped != text else _LEVEL.sub("", text)


def _jsonl(text: str) -> Iterator[str]:
    try:
        record = json.loads(text)
    except ValueError:
        yield text
        return
    message = _message(record) if isinstance(record, dict) else None
    if message is not None:
        for line in message.splitlines():
            yield _prefixes(clean(line).rstrip())
    else:
        yield text


def _message(record: dict[str, Any]) -> str | None:
    """The engine's text in a record of its own, of the journal or of a container's log driver."""
    text = next((record[k] for k in ("msg", "MESSAGE", "log", "message") if k in record), None)
    if isinstance(text, list) and all(isinstance(c, int) and 0 <= c < 256 for c in text):
        text = bytes(text).decode("utf-8", "replace")  # how the journal writes what is not printable
    if not isinstance(text, str):
        return None
    if "function" not in record:
        return text
    values = " ".join(f"{k}={v}" for k, v in record.items() if k not in ("msg", "message", "function"))
    return f"[{record['function']}] {text} | {values}"


class Joiner:
    """Puts together again what a terminal of 80 columns or a mail broke: a cache's size line, a record of slog."""

    def __init__(self) -> None:
        self._held: Line | None = None
        self._spans = 0
        self._width = 0

    def feed(self, number: int, text: str) -> Iterator[Line]:
        """The lines that are complete now; the first line's number stands for the whole."""
        if self._held is not None:
            first, begun = self._held
            self._held = None
            if _STARTS_ANEW.search(text):
                yield first, begun
                self._spans = 0
            else:
                number, text = first, begun + _gap(begun, text, self._width) + text
        if self._spans == 0:
            self._width = len(text)
        if (self._spans < MAX_HELD and _is_cut(text)) or (
            self._spans < MAX_RECORD and _is_open_record(text, self._width)
        ):
            self._spans += 1
            self._held = (number, text)
            return
        self._spans = 0
        yield number, text

    def flush(self) -> Iterator[Line]:
        """What was still waiting for its end."""
        if self._held is not None:
            yield self._held
            self._held = None
        self._spans = 0


def _is_open_record(text: str, width: int) -> bool:
    """A record in narrow lines goes on until the next one begins."""
    return width <= NARROW and is_record(text)


def _gap(begun: str, text: str, width: int) -> str:
    """Mails break at blanks and drop them, terminals break anywhere at 80."""
    return " " if is_record(begun) and width < NARROW and not text.startswith(" ") else ""


def _is_cut(text: str) -> bool:
    return (
        _SIZE_LINE.search(text) is not None
        and _SIZE_ENDS.search(text) is None
        and ("self size" in text or "cells" in text or _SIZE_BEGINS.search(text) is not None)
        and _CUT_BY_PAGER.search(text) is None
    )
