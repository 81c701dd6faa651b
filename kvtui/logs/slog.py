"""Records of Go's structured log, `time=.. level=INFO source=.. msg=.. key=value`, as Ollama writes them."""

from __future__ import annotations

import re

_RECORD = re.compile(r"\blevel=(?:TRACE|DEBUG|INFO|WARN|ERROR)\b")
_FIELD = re.compile(r'("(?:[^"\\]|\\.)*"|[\w.\-]+)=("(?:[^"\\]|\\.)*"|[^\s"]*)')
_SIZE = re.compile(r"^(-?\d+(?:\.\d+)?) (B|KiB|MiB|GiB|TiB)$")
_MIB = {"B": 1 / (1 << 20), "KiB": 1 / 1024, "MiB": 1.0, "GiB": 1024.0, "TiB": 1048576.0}


def is_record(text: str) -> bool:
    """True for a line that is, or holds, a record."""
    return "level=" in text and _RECORD.search(text) is not None


def fields(text: str) -> dict[str, str]:
    """The keys and values of the record in `text`; a value whose quote never closes is left out."""
    start = _RECORD.search(text)
    if start is None:
        return {}
    return {_plain(k): _plain(v) for k, v in _FIELD.findall(text[start.start() :])}


def _plain(value: str) -> str:
    if len(value) > 1 and value.startswith('"'):
        return re.sub(r"\\(.)", r"\1", value[1:-1])
    return value


def size(text: str) -> tuple[float, str] | None:
    """`6.5 GiB` as (6.5, "GiB"), None for anything else."""
    match = _SIZE.match(text)
    return (float(match[1]), match[2]) if match else None


def mib(text: str) -> float | None:
    """A size in MiB."""
    found = size(text)
    return found[0] * _MIB[found[1]] if found else None
