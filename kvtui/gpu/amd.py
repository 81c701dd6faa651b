"""AMD GPUs through the files of the amdgpu driver (docs.kernel.org/gpu/amdgpu and drm-usage-stats), no library needed.

`mem_info_gtt_used` is host memory that the GPU uses as its own: what does not fit into VRAM goes there without a
word. Everything is read at its place; a file that is not there or cannot be read is None.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from kvtui.core.errors import InputError
from kvtui.core.text import clean
from kvtui.core.units import GIB
from kvtui.gpu import host
from kvtui.gpu.fdinfo import DrmClients
from kvtui.gpu.nvml import GpuLost
from kvtui.gpu.reading import Reading, summed, summed_vitals, together
from kvtui.gpu.samples import DeviceInfo, Vitals
from kvtui.gpu.visible import chosen

_AMD, _INTEL = "0x1002", "0x8086"
_SHARED_BELOW = 2 * GIB
"""A GPU with less memory of its own is part of a processor, and works in host memory."""
_LONGEST = 1 << 16


@dataclass(frozen=True, slots=True)
class Roots:
    """Where the system keeps its files; others in tests."""

    sys: Path = Path("/sys")
    proc: Path = Path("/proc")
    rocm: Path = Path("/opt/rocm")
    ids: Path = Path("/usr/share/libdrm/amdgpu.ids")


ROOTS = Roots()


@dataclass(frozen=True, slots=True)
class Card:
    """One GPU and its folder. `shared`: it works in host memory, which counts as its own then."""

    info: DeviceInfo
    folder: Path
    pci: str
    shared: bool

    def memory(self) -> tuple[int | None, int | None]:
        """Bytes in use: of the GPU's own memory, and of host memory used as such. Raises GpuLost."""
        if not (self.folder / "mem_info_vram_used").exists():
            raise GpuLost(f"{self.info.name} is gone from the system")
        return _number(self.folder / "mem_info_vram_used"), _number(self.folder / "mem_info_gtt_used")


def devices(roots: Roots | None = None) -> tuple[DeviceInfo, ...]:
    """All AMD GPUs, those included that are part of a processor."""
    return tuple(card.info for card in _cards(roots or ROOTS))


def engines_choice(roots: Roots | None = None) -> tuple[DeviceInfo, ...]:
    """The GPUs that an engine uses by itself: those with memory of their own which the environment leaves."""
    own = [card.info for card in _cards(roots or ROOTS) if not card.shared]
    return chosen(own, None, os.environ) if own else ()


def not_measured(roots: Roots | None = None) -> tuple[str, ...]:
    """GPUs of this box that nothing here measures, or only when asked to, by name."""
    roots = roots or ROOTS
    taken = {info.index for info in engines_choice(roots)}
    amd = [
        f"{card.info.name} (it shares host memory; --gpu {card.info.index} takes it)"
        if card.shared
        else f"{card.info.name} (the environment hides it)"
        for card in _cards(roots)
        if card.info.index not in taken
    ]
    intel = [
        f"the Intel GPU {clean(_text(folder / 'device') or '', 20)}".rstrip()
        for folder in _folders(roots)
        if _text(folder / "vendor") == _INTEL
    ]
    return (*amd, *intel)


def open_amd(gpus: Sequence[int] | None = None, roots: Roots | None = None) -> AmdSource:
    """The GPUs with these numbers, or those an engine uses by itself. Raises InputError for one that is not there."""
    roots = roots or ROOTS
    cards = _cards(roots)
    if not cards:
        raise InputError("there is no AMD GPU on this box")
    wanted = chosen([c.info for c in cards], gpus, os.environ) if gpus is not None else engines_choice(roots)
    if not wanted:
        raise InputError(
            "the environment hides every AMD GPU", hint="unset HIP_VISIBLE_DEVICES, or name one: --gpu 0"
        )
    by_index = {card.info.index: card for card in cards}
    return AmdSource([by_index[info.index] for info in wanted], roots)


class AmdSource:
    """Memory of one or several AMD GPUs."""

    def __init__(self, cards: Sequence[Card], roots: Roots) -> None:
        self._cards = tuple(cards)
        self._device = together([card.info for card in cards])
        self.family = host.Family()
        self._clients = DrmClients(roots.proc, self.family)

    @property
    def device(self) -> DeviceInfo:
        """The GPU, or all of them as one."""
        return self._device

    def read(self, pid: int | None) -> Reading:
        """Now. Raises GpuLost."""
        held = {} if pid is None else self._clients.read(pid)
        resident = self.family.resident_bytes(pid)
        return summed([_reading(card, held.get(card.pci), resident) for card in self._cards])

    def vitals(self) -> Vitals:
        """Power and clock; what holds the clock down, and traffic, the driver does not tell in words."""
        return summed_vitals([_vitals(card) for card in self._cards])

    def recover(self) -> None:
        """Raises GpuLost while a GPU is still gone."""
        for card in self._cards:
            card.memory()

    def close(self) -> None:
        """Nothing is held."""


def _reading(card: Card, held: tuple[int, int] | None, resident: int | None) -> Reading:
    """A driver that attributes no byte to a process that has the GPU open does not count compute memory: unknown."""
    vram, gtt = card.memory()
    held = held if held and held[0] else None
    util = _number(card.folder / "gpu_busy_percent")
    if card.shared:
        used = None if vram is None or gtt is None else vram + gtt
        return Reading(used, None if held is None else sum(held), resident, util)
    return Reading(
        used_bytes=vram,
        device_process_bytes=None if held is None else held[0],
        host_bytes=resident,
        gpu_util=util,
        gtt_process_bytes=None if held is None else held[1],
        gtt_used_bytes=gtt,
    )


def _vitals(card: Card) -> Vitals:
    for folder in sorted((card.folder / "hwmon").glob("hwmon*"))[:1]:
        watts = _number(folder / "power1_average") or _number(folder / "power1_input")
        hertz = _number(folder / "freq1_input")
        return Vitals(
            power_w=None if watts is None else watts / 1e6,
            clock_mhz=None if hertz is None else hertz // 1_000_000,
        )
    return Vitals()


def _cards(roots: Roots) -> list[Card]:
    found = [
        (pci, folder)
        for folder in _folders(roots)
        if _text(folder / "vendor") == _AMD
        and (pci := _slot(folder))
        and _number(folder / "mem_info_vram_total")
    ]
    return [_card(roots, index, pci, folder) for index, (pci, folder) in enumerate(sorted(found))]


def _card(roots: Roots, index: int, pci: str, folder: Path) -> Card:
    vram, gtt = _number(folder / "mem_info_vram_total") or 0, _number(folder / "mem_info_gtt_total") or 0
    shared = vram < _SHARED_BELOW and gtt > vram
    unique = clean(_text(folder / "unique_id") or "", 40)
    rocm = (_text(roots.rocm / ".info" / "version") or "").splitlines()
    info = DeviceInfo(
        kind="amd",
        index=index,
        name=_name(roots, folder),
        total_bytes=vram + gtt if shared else vram,
        driver=clean(
            _text(roots.sys / "module/amdgpu/version") or f"amdgpu of kernel {platform.release()}", 60
        ),
        display_attached=_display(folder),
        note="it shares host memory, which counts as its own" if shared else "",
        rocm=clean(rocm[0], 40) if rocm else None,
        uuid=f"GPU-{unique}" if unique else "",
    )
    return Card(info, folder, pci, shared)


def _folders(roots: Roots) -> Iterator[Path]:
    """The device folder of every graphics card."""
    drm = roots.sys / "class/drm"
    for card in sorted(drm.glob("card*")):
        if card.name.removeprefix("card").isdecimal():
            yield card / "device"


def _slot(folder: Path) -> str:
    """The PCI address, as a process's list of open files names the GPU too."""
    for line in (_text(folder / "uevent") or "").splitlines():
        name, _, value = line.partition("=")
        if name == "PCI_SLOT_NAME":
            return value.strip().lower()
    return ""


def _name(roots: Roots, folder: Path) -> str:
    name = _text(folder / "product_name")
    if not name:
        model = (_text(folder / "device") or "").removeprefix("0x").upper()
        revision = (_text(folder / "revision") or "").removeprefix("0x").upper()
        name = _listed(roots.ids, model, revision) or f"AMD GPU {model}".rstrip()
    return clean(name, 120).strip()


def _listed(ids: Path, model: str, revision: str) -> str | None:
    """The marketing name in libdrm's list: `744C,  C8,  AMD Radeon RX 7900 XTX`."""
    for line in (_text(ids, 1 << 20) or "").splitlines():
        parts = [part.strip() for part in line.split(",", 2)]
        if len(parts) == 3 and (parts[0].upper(), parts[1].upper()) == (model, revision):
            return parts[2]
    return None


def _display(folder: Path) -> bool | None:
    card = folder.parent
    states = [_text(port / "status") for port in card.parent.glob(f"{card.name}-*")]
    known = [state for state in states if state]
    return "connected" in known if known else None


def _number(path: Path) -> int | None:
    text = _text(path)
    return int(text) if text and text.isascii() and text.isdecimal() and len(text) < 20 else None


def _text(path: Path, most: int = _LONGEST) -> str | None:
    try:
        with open(path, "rb") as file:
            return file.read(most).decode("utf-8", "replace").strip()
    except OSError:
        return None
