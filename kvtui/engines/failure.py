"""Why an engine ended, in one line: its exit status in words and the line of its log that says most."""

from __future__ import annotations

import re
import signal

from kvtui.core.text import clean
from kvtui.logs.facts import EngineFacts

_PREFIX = re.compile(r"^(?:\d+\.\d\d\.\d\d\d\.\d\d\d )?(?P<level>[IWED] )?")
_PORT = re.compile(r"couldn't bind|address already in use|failed to bind", re.IGNORECASE)
_TROUBLE = re.compile(
    r"error|fail|abort|terminate|unsupported|invalid|not found|cannot|out of memory", re.IGNORECASE
)
_LIMIT = 300


def describe_exit(code: int) -> str:
    """`ended with status 1`, `was killed by SIGSEGV`."""
    if code >= 0:
        return f"ended with status {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"


def is_port_clash(log: str) -> bool:
    """Whether the engine says that it could not listen."""
    return any(_PORT.search(line) for line in log.splitlines()[-40:])


def last_words(log: str, facts: EngineFacts) -> str:
    """The line that says most about the end: a proven failure, else the first error, else the last line."""
    if facts.failures:
        return clean(facts.failures[0].text, _LIMIT)
    lines = [line for line in map(str.strip, log.splitlines()) if line]
    errors = [line for line in lines if (m := _PREFIX.match(line)) and m["level"] == "E "]
    troubled = errors or [line for line in lines[-20:] if _is_trouble(line)] or lines[-1:]
    return clean(_PREFIX.sub("", troubled[0]), _LIMIT) if troubled else ""


def _is_trouble(line: str) -> bool:
    """Ollama's records say themselves when they are none, whatever they quote."""
    return _TROUBLE.search(line) is not None and "level=INFO" not in line
