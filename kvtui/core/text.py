"""Untrusted text is made harmless once, at the edge where it enters.

Logs, model metadata, file names and HTTP bodies can hold terminal control sequences, bidirectional
overrides and megabytes. Nothing downstream strips again.
"""

from __future__ import annotations

import functools
import re
import unicodedata

_SEQUENCES = re.compile(
    r"\x1b\][^\x07\x1b]*(?:\x07|\x1b\\|$)"  # OSC: titles, clipboard writes
    r"|\x1b[PX^_][^\x1b]*(?:\x1b\\|$)"  # DCS, SOS, PM, APC
    r"|[\x1b\x9b]\[?[0-?]*[ -/]*[@-~]"  # CSI and two-byte escapes
)
_CONTROLS = re.compile(
    "[\x00-\x08\x0a-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]"
)


def clean(text: str, limit: int = 4096) -> str:
    """`text` as one printable line of at most `limit` characters; line breaks become blanks."""
    if len(text) > 4 * limit:
        text = text[: 4 * limit]
    if not text.isprintable():
        text = _SEQUENCES.sub("", text)
        text = text.replace("\r\n", " ").replace("\n", " ").replace("\r", " ").replace("\t", " ")
        text = _CONTROLS.sub("", text)
    return text if len(text) <= limit else text[: limit - 1] + "…"


def width(text: str) -> int:
    """Terminal cells that `text` takes: wide characters count two, combining ones none."""
    return len(text) if text.isascii() else sum(map(_cells, text))


@functools.lru_cache(maxsize=4096)
def _cells(char: str) -> int:
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def clip(text: str, cells: int) -> str:
    """`text` cut to at most `cells` terminal cells, with an ellipsis where something was cut."""
    if width(text) <= cells:
        return text
    out, used = [], 0
    for char in text:
        step = width(char)
        if used + step > cells - 1:
            break
        out.append(char)
        used += step
    return "".join(out) + "…" if cells > 0 else ""
