"""What a process holds on each GPU, by what the kernel says of its open files (docs.kernel.org/gpu/drm-usage-stats)."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from kvtui.gpu import host

_UNITS = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
_LONGEST = 1 << 14
_MOST_FILES = 4096
_SEARCH_S = 2.0
_SEARCH_NONE_S = 0.5

Held = dict[str, tuple[int, int]]
"""By PCI address: bytes of the GPU's own memory, and of host memory that it uses as such (GTT)."""


class DrmClients:
    """Reads the open GPU files of an engine. Which files those are is looked up every two seconds."""

    def __init__(
        self, proc: Path, family: host.Family | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._proc = proc
        self._clock = clock
        self._family = family or host.Family(clock)
        self._pid: int | None = None
        self._files: tuple[str, ...] = ()
        self._searched = 0.0

    def read(self, pid: int) -> Held:
        """Of process `pid` and those it started; empty where nothing may be or can be read.

        A file that is open twice, or in a child too, is one client and counts once.
        """
        age = self._clock() - self._searched
        if pid != self._pid or age >= (_SEARCH_S if self._files else _SEARCH_NONE_S):
            self._pid, self._searched = pid, self._clock()
            self._files = tuple(
                path for one in self._family.of(pid) for path in _open_files(self._proc / str(one) / "fdinfo")
            )
        clients: dict[tuple[str, str], tuple[int, int]] = {}
        for path in self._files:
            fields = _fields(path)
            pci, client = fields.get("drm-pdev", "").lower(), fields.get("drm-client-id")
            if pci and client is not None and (held := _held(fields)) is not None:
                clients[pci, client] = held
        out: Held = {}
        for (pci, _), (vram, gtt) in clients.items():
            before = out.get(pci, (0, 0))
            out[pci] = before[0] + vram, before[1] + gtt
        return out


def _open_files(folder: Path) -> list[str]:
    try:
        names = os.listdir(folder)[:_MOST_FILES]
    except OSError:
        return []
    return [path for name in names if "drm-driver" in _fields(path := str(folder / name))]


def _fields(path: str) -> dict[str, str]:
    try:
        with open(path, "rb") as file:
            text = file.read(_LONGEST).decode("ascii", "replace")
    except OSError:
        return {}
    pairs = (line.partition(":") for line in text.splitlines())
    return {name.strip(): value.strip() for name, _, value in pairs}


def _held(fields: dict[str, str]) -> tuple[int, int] | None:
    """Resident memory; older kernels call it `drm-memory-*`. None where the file tells no memory."""
    vram, gtt = (
        _bytes(fields.get(f"drm-resident-{region}") or fields.get(f"drm-memory-{region}", ""))
        for region in ("vram", "gtt")
    )
    return None if vram is None else (vram, gtt or 0)


def _bytes(text: str) -> int | None:
    number, _, unit = text.partition(" ")
    known = number.isascii() and number.isdecimal() and len(number) < 16 and unit.strip() in _UNITS
    return int(number) * _UNITS[unit.strip()] if known else None
