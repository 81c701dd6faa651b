"""Small files of the machine, read with bounds."""

from __future__ import annotations

import json
import os
import stat
from typing import Any

from kvtui.core.errors import ModelFileError
from kvtui.core.text import clean

MAX_JSON = 32 << 20


def read_bytes(path: str, limit: int) -> bytes:
    """A regular file's content. Raises ModelFileError: missing, unreadable, no file, more than `limit` bytes."""
    shown = clean(path)
    try:
        # O_NONBLOCK: opening a pipe that nobody writes to would otherwise hang.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        raise ModelFileError(shown, clean(getattr(error, "strerror", None) or str(error), 200)) from error
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ModelFileError(shown, "is not a regular file")
        with open(descriptor, "rb", closefd=False) as file:
            data = file.read(limit + 1)
    except OSError as error:
        raise ModelFileError(shown, clean(error.strerror or "cannot be read", 200)) from error
    finally:
        os.close(descriptor)
    if len(data) > limit:
        raise ModelFileError(shown, f"is larger than {limit >> 20} MiB")
    return data


def read_json(path: str, limit: int = MAX_JSON) -> dict[str, Any]:
    """A JSON object in a file. Raises ModelFileError for anything else."""
    return json_object(read_bytes(path, limit), path)


def json_object(data: bytes, path: str) -> dict[str, Any]:
    """`data` as a JSON object. Raises ModelFileError naming `path`."""
    try:
        made = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ModelFileError(clean(path), "is not JSON") from error
    if not isinstance(made, dict):
        raise ModelFileError(clean(path), "holds no JSON object")
    return made


def listing(folder: str, limit: int = 10_000) -> list[str]:
    """Names in a folder, sorted, at most `limit`; none where it cannot be read."""
    names = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                names.append(entry.name)
                if len(names) >= limit:
                    break
    except (OSError, ValueError):
        return []
    return sorted(names)
