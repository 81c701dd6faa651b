"""Regular expressions of the operator's on a model's text, within a time limit.

Some expressions take exponential time on some texts, and nothing in a process can stop one: it runs in another.
"""

from __future__ import annotations

import json
import subprocess
import sys

_LIMIT_S = 2.0
_PROGRAM = "import json,re,sys;p,t=json.load(sys.stdin);sys.exit(0 if re.search(p,t,re.MULTILINE) else 7)"
_NO_MATCH = 7


class TooSlow(Exception):
    """The expression did not come to an end on this text."""


def matches(pattern: str, text: str) -> bool:
    """Whether `pattern` (valid, lines have ends of their own) is found in `text`. Raises TooSlow."""
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-c", _PROGRAM],
            input=json.dumps((pattern, text)).encode(),
            capture_output=True,
            timeout=_LIMIT_S,
            start_new_session=True,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise TooSlow from None
    if done.returncode not in (0, _NO_MATCH):
        raise TooSlow
    return done.returncode == 0
