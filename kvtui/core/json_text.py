"""JSON as it is given out: strict, and safe to look at in a terminal."""

from __future__ import annotations

import json
import math
import re
from typing import Any

_UNPRINTABLE = re.compile(
    "[\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff\U000e0000-\U000e007f]"
)


def json_text(document: Any, indent: int | None = None) -> str:
    """`document` as JSON. What would steer a terminal or could not be encoded is escaped inside its strings, which
    changes no value; a number that JSON has no word for (infinite, or none at all) is null."""
    try:
        text = json.dumps(document, ensure_ascii=False, indent=indent, allow_nan=False)
    except ValueError:
        text = json.dumps(_finite(document), ensure_ascii=False, indent=indent, allow_nan=False)
    return text if text.isascii() and "\x7f" not in text else _UNPRINTABLE.sub(_escaped, text)


def _escaped(match: re.Match[str]) -> str:
    units = match[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, (list, tuple)) else value
