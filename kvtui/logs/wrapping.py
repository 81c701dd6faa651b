"""What stands between an engine's line and the log as it was read: prefixes, timestamps, JSON, terminal codes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from kvtui.core.text import clean

_ROUTER_CHILD = re.compile(r"^\[\d{2,5}\] ")
_ELAPSED = re.compile(r"^(?:\d+\.)?\d+\.\d\d\.\d{3}\.\d{3} (?:[A-Z] )?|^\d+\.\d\d\.\d{3}\.\d{3} (?:[A-Z] )?")
_LEVEL = re.compile(r"^[IWED] (?=\S)")


def unwrap(raw: str) -> Iterator[str]:
    """The engine's own lines inside one line of the log: usually one, several where CR or JSON joined them."""
    for piece in raw.split("\r"):
        text = clean(piece, limit=8192)
        if text.startswith("{"):
            yield from _jsonl(text)
        elif text.strip():
            yield _prefixes(text)


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
    message = record.get("msg") if isinstance(record, dict) else None
    if isinstance(message, str):
        for line in message.splitlines():
            yield clean(line)
