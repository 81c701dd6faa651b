"""The only place that prints: data to stdout, prose and errors to stderr."""

from __future__ import annotations

import os
import sys
from typing import Any, TextIO

from kvtui.core.errors import KvtuiError
from kvtui.core.json_text import json_text


def out(text: str) -> None:
    """A line of result. A reader that went away (`| head`) ends the output quietly; raises KvtuiError when the
    disk is full."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        _give_up(sys.stdout)
    except OSError as error:
        _give_up(sys.stdout)
        raise KvtuiError(f"cannot write to standard output: {error.strerror}") from error


def err(text: str) -> None:
    """A line for the person: progress, warnings, errors. Where nobody can read it, the work goes on without."""
    write_err(f"{text}\n")


def write_err(text: str) -> None:
    """`text` as it stands on stderr, like `err`."""
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except OSError:
        _give_up(sys.stderr)


def json_out(document: Any) -> None:
    """One JSON document, and nothing else, on stdout."""
    out(json_text(document, indent=2))


def stand_in_for_closed_streams() -> None:
    """Open the null device where a standard stream was closed before the start (`>&-`).

    Otherwise the next file that is opened takes its number, and what is printed ends in that file.
    """
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError:
            descriptor = os.open(os.devnull, os.O_RDWR)
            if descriptor != number:
                os.dup2(descriptor, number)
                os.close(descriptor)
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115 - for good


def _give_up(stream: TextIO) -> None:
    """Send the rest to the null device: the interpreter would complain again when it flushes at exit."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, stream.fileno())
    os.close(null)
