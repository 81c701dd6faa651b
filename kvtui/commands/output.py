"""The only place that prints: data to stdout, prose and errors to stderr."""

from __future__ import annotations

import json
import os
import sys
from typing import Any


def out(text: str) -> None:
    """A line of result. A reader that went away (`| head`) ends the output quietly."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        # The interpreter would complain again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def err(text: str) -> None:
    """A line for the person: progress, warnings, errors."""
    print(text, file=sys.stderr, flush=True)


def json_out(document: Any) -> None:
    """One JSON document, and nothing else, on stdout."""
    out(json.dumps(document, ensure_ascii=False, indent=2, allow_nan=False))
