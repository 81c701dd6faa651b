"""Writing a report so that a reader finds the old one or the new one, never half of one."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from pathlib import Path

from kvtui.core.text import clean


def save(path: Path, data: bytes) -> None:
    """Put `data` at `path`: written beside it, synced, and moved into place. A pipe or device is written to as it
    stands. Raises OSError and leaves what was there."""
    if path.exists() and not path.is_file():
        path.write_bytes(data)
        return
    target = path.resolve()
    descriptor, name = tempfile.mkstemp(prefix=f".{clean(target.name, 40)}.", dir=target.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, target)
    except BaseException:
        with suppress(OSError):
            os.unlink(name)
        raise
