"""What stands between an engine's line and the log as it was read: prefixes, JSON, terminal codes, wraps, merges."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from kvtui.core.text import clean
from kvtui.logs.lines import LIMIT, Line
from kvtui.logs.slog import is_record

_ROUTER_CHILD = re.compile(r"^\[\d{2,5}\] ")
_ELAPSED = re.compile(r"^(?:\d+\.)?\d+\.\d\d\.\d{3}\.\d{3} (?:[A-Z] )?")
_ELAPSED_DEBUG = re.compile(r"^(?:\d+\.)?\d+\.\d\d\.\d{3}\.\d{3} D ")
_LEVEL = re.compile(r"^[IWED] (?=\S)")
_MERGED = re.compile(
    r"(?<=\S)\s+(?=(?:llama_(?!server)\w+|llm_load_\w+|load_tensors|sched_reserve|resolve_fused_ops|common_\w+"
    r"|ggml_\w+): )"
)
_MERGED_HINTS = ("llama_", "llm_load_", "load_tensors", "sched_reserve", "resolve_fused", "common_", "ggml_")
_METADATA = "llama_model_loader: - kv"
_PROMPTS = ('"role"', '"content"', '"prompt"')
"""Lines that quote a file's metadata or somebody's prompt: what they say is not the engine speaking."""
_SIZE_LINE = re.compile(r"(?:KV self size|\bsize)\s*=\s*\d+[.,]\d+\s*MiB(?:,|\s*\()")
_SIZE_ENDS = re.compile(r"(?:\b[VS]|kv\^T)\s*\(\w+\):\s*\d+[.,]\d+\s*MiB|not used")
_CUT_BY_PAGER = re.compile(r"(?:[>…]|\.\.\.)$")
_SIZE_BEGINS = re.compile(r" MiB\s*\(\s*\d*\s*c?e?l?l?s?$")
_STARTS_ANEW = re.compile(
    r"^[a-z_~][\w~]{3,}(?:\s+[a-z_]\w*)?: |^\[|^[IWED] |time=|^\d{4}-\d\d|\blevel=[A-Z]+ "
)
_SCREEN_ANEW = re.compile(
    r"^(?:[a-z_~][\w~]{3,}(?:\s+[a-z_]\w*)?: |(?:\d+\.)?\d+\.\d\d\.\d{3}\.\d{3} |time=|\d{4}-\d\d-\d\d"
    r"|[A-Z][a-z]{2} +\d+ \d\d:|\(\w+ pid=|(?:INFO|WARNING|ERROR)\b|\{\")"
)
MAX_PREFIX = 80
"""Characters that a log driver writes before a record of JSON."""
MAX_HELD = 3
MAX_RECORD = 40
"""Lines of a log that one wrapped line, and one wrapped record, may span."""
NARROW = 80
"""Columns: a record that is longer stands on one line as it was written."""


def unwrap(raw: str) -> Iterator[str]:
    """The engine's own lines inside one line of the log: usually one, several where CR, JSON or a paste joined them."""
    for piece in raw.split("\r"):
        text = clean(piece, limit=LIMIT).rstrip()
        if _quotes(text):
            continue
        if (json_at := text.find('{"')) >= 0 and text.endswith("}") and json_at < MAX_PREFIX:
            yield from _jsonl(text[json_at:])
        elif text:
            if _is_debug(text):
                continue
            text = _prefixes(text)
            yield from _MERGED.split(text) if _may_be_merged(text) else (text,)


def _is_debug(text: str) -> bool:
    """Lines of level D are many and prove nothing: every fact is printed at a level below."""
    return " D " in text[:20] and _ELAPSED_DEBUG.match(text) is not None


def _quotes(text: str) -> bool:
    return (
        _METADATA in text
        or ('"' in text and any(mark in text for mark in _PROMPTS))
        or "example_format" in text
    )


def _may_be_merged(text: str) -> bool:
    return text.count(": ") > 1 and any(text.find(name, 1) > 0 for name in _MERGED_HINTS)


def _prefixes(text: str) -> str:
    if text.startswith("["):
        text = _ROUTER_CHILD.sub("", text)
    if text[:1].isdigit():
        return _ELAPSED.sub("", text)
    return _LEVEL.sub("", text) if text[1:2] == " " else text


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


class ScreenJoiner:
    """Undoes a terminal of 80 columns: a line of exactly that width goes on in the next one.

    The first line that is wider shows that no such terminal stands between, and ends it.
    """

    def __init__(self) -> None:
        self._held: Line | None = None
        self._wide = False

    def feed(self, number: int, raw: str) -> tuple[Line, ...]:
        """The lines that are complete now; the first line's number stands for the whole."""
        if self._wide and self._held is None:
            return ((number, raw),)
        before: tuple[Line, ...] = ()
        width = len(raw.rstrip("\r\0"))
        self._wide = self._wide or width > NARROW
        if self._held is not None:
            first, begun = self._held
            if self._wide or _SCREEN_ANEW.search(raw) or len(begun) > LIMIT:
                before = self.flush()
            else:
                number, raw = first, begun + raw
        self._held = None
        if width == NARROW and not self._wide:
            self._held = (number, raw.rstrip("\r\0"))
            return before
        return (*before, (number, raw))

    def flush(self) -> tuple[Line, ...]:
        """What was still waiting for its end."""
        held, self._held = self._held, None
        return () if held is None else (held,)


class Joiner:
    """Puts together again what a terminal of 80 columns or a mail broke: a cache's size line, a record of slog."""

    def __init__(self) -> None:
        self._held: Line | None = None
        self._spans = 0
        self._width = 0

    def feed(self, number: int, text: str) -> tuple[Line, ...]:
        """The lines that are complete now; the first line's number stands for the whole."""
        before: tuple[Line, ...] = ()
        if self._held is not None:
            first, begun = self._held
            self._held = None
            if _STARTS_ANEW.search(text):
                before = (self._end(first, begun),)
            else:
                number, text = first, begun + _gap(begun, text, self._width) + text
        if self._spans == 0:
            self._width = len(text)
        if (self._spans < MAX_HELD and _is_cut(text)) or (
            self._spans < MAX_RECORD and _is_open_record(text, self._width)
        ):
            self._spans += 1
            self._held = (number, text)
            return before
        return (*before, self._end(number, text))

    def flush(self) -> tuple[Line, ...]:
        """What was still waiting for its end."""
        held, self._held = self._held, None
        return () if held is None else (self._end(*held),)

    def _end(self, number: int, text: str) -> Line:
        self._spans = 0
        return number, text


def _is_open_record(text: str, width: int) -> bool:
    """A record in narrow lines goes on until the next one begins."""
    return width <= NARROW and "level=" in text and is_record(text)


def _gap(begun: str, text: str, width: int) -> str:
    """Mails break at blanks and drop them, terminals break anywhere at 80."""
    return " " if is_record(begun) and width < NARROW and not text.startswith(" ") else ""


def _is_cut(text: str) -> bool:
    return (
        "MiB" in text
        and _SIZE_LINE.search(text) is not None
        and _SIZE_ENDS.search(text) is None
        and ("self size" in text or "cells" in text or _SIZE_BEGINS.search(text) is not None)
        and _CUT_BY_PAGER.search(text) is None
    )
