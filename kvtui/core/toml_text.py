"""TOML that anybody may have written."""

from __future__ import annotations

import re
import tomllib
from typing import Any

_MOST_DOTS = 200
_QUOTED = re.compile(
    r'"""(?:\\.|[^\\])*?"""' r"|'''.*?'''" r'|"(?:\\.|[^"\\\n])*"' r"|'[^'\n]*'" r"|#[^\n]*", re.DOTALL
)


def read_toml(text: str) -> dict[str, Any]:
    """The document in `text`. Raises ValueError (tomllib.TOMLDecodeError with the place) for what is none.

    A key of so many parts that reading it would take minutes is none: the parser copies all parts for each.
    """
    if text.count(".") > _MOST_DOTS:
        bare = _QUOTED.sub("_", text)
        if any(line.count(".") > _MOST_DOTS for line in bare.splitlines()):
            raise ValueError("a key of far too many parts")
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
