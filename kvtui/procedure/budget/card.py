"""The memory to fit into: what the operator says, else the GPUs that an engine would use."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from kvtui.core.errors import InputError
from kvtui.core.text import clean
from kvtui.core.units import GIB

if TYPE_CHECKING:
    from kvtui.gpu.samples import DeviceInfo

NVML_LIMIT_S = 2.0  # a driver that hangs must not hang a command that reads a file

DRIVER_FILES = ("/dev/nvidiactl", "/dev/dxg")  # the driver on Linux, the bridge to it in WSL

AMD_FILES = ("/sys/module/amdgpu",)

TotalSource = Literal["given", "nvml", "amdgpu"]


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU of several. `index` is the driver's; it and `name` are None where its memory was given."""

    index: int | None
    name: str | None
    total_bytes: int
    used_bytes: int | None


@dataclass(frozen=True, slots=True)
class Card:
    """A memory to fit into. `name` and `used_bytes` are None where it was given (`source` `given`).

    `gpus` are the single ones where there are several; the bytes are their sums then.
    """

    name: str | None
    total_bytes: int
    used_bytes: int | None
    source: TotalSource = "given"
    gpus: tuple[Gpu, ...] = ()

    def smallest(self, n: int) -> Card:
        """The one with the least memory of the first `n`."""
        if not self.gpus:
            return self
        one = min(self.gpus[:n], key=lambda gpu: gpu.total_bytes)
        return Card(one.name, one.total_bytes, one.used_bytes, self.source)


def parse_gib(text: str) -> tuple[float, ...]:
    """`16`, or `16,16` for several cards, each above 0 and below 2^20. Raises InputError."""
    sizes = []
    for part in text.split(","):
        try:
            value = float(part)
        except ValueError:
            value = math.nan
        if not 0 < value < 1 << 20:
            raise InputError(
                f"{clean(part.strip(), 40)!r} is not a size in GiB", hint="16, or 16,16 for two cards"
            )
        sizes.append(value)
    return tuple(sizes)


def given_card(gib: Sequence[float]) -> Card:
    """The memory of one card of so many GiB, or of several together."""
    sizes = [int(one * GIB) for one in gib]
    gpus = tuple(Gpu(None, None, size, None) for size in sizes) if len(sizes) > 1 else ()
    return Card(None, sum(sizes), None, gpus=gpus)


def found_card(indices: Sequence[int] | None = None) -> Card | None:
    """The GPUs with these numbers as the driver counts them, or (None) those that the environment leaves an engine.

    None where there is no GPU, or its driver does not answer. Raises InputError for numbers that are not there.
    """
    found = _nvidia(indices) or _amd(indices)
    if found is None and indices is not None:
        named = ", ".join(map(str, indices))
        raise InputError(f"GPU {named} cannot be used: no driver tells of a GPU here", hint="give --vram")
    return found


def _nvidia(indices: Sequence[int] | None) -> Card | None:
    # NVML's bindings take longer to import than everything else here together.
    if not any(os.path.exists(path) for path in DRIVER_FILES):
        return None
    from kvtui.gpu.nvml import GpuLost, NvmlMissing, open_nvml
    from kvtui.gpu.visible import chosen

    try:
        nvml = open_nvml(NVML_LIMIT_S)
        devices = chosen(nvml.devices, indices, os.environ)
        memories = [nvml.memory(device.index, device.mig) for device in devices]
    except (NvmlMissing, GpuLost):
        return None
    known = [(memory.total, memory.used) for memory in memories if memory is not None]
    return _card(devices, known, "nvml") if len(known) == len(devices) else None


def _amd(indices: Sequence[int] | None) -> Card | None:
    if not any(os.path.exists(path) for path in AMD_FILES):
        return None
    from kvtui.gpu.amd import devices, engines_choice, open_amd
    from kvtui.gpu.nvml import GpuLost
    from kvtui.gpu.visible import chosen

    there = devices()
    if not there:
        return None
    wanted = engines_choice() if indices is None else chosen(there, indices, os.environ)
    try:
        memories = [(one.total_bytes, open_amd([one.index]).read(None).used_bytes) for one in wanted]
    except GpuLost:
        return None
    return _card(wanted, memories, "amdgpu")


def _card(
    devices: Sequence[DeviceInfo], memories: Sequence[tuple[int, int | None]], source: TotalSource
) -> Card | None:
    from kvtui.gpu.reading import together

    if not devices:
        return None
    gpus = tuple(
        Gpu(d.index, d.name, total, used) for d, (total, used) in zip(devices, memories, strict=True)
    )
    used = [gpu.used_bytes for gpu in gpus if gpu.used_bytes is not None]
    return Card(
        together(devices).name,
        sum(gpu.total_bytes for gpu in gpus),
        sum(used) if len(used) == len(gpus) else None,
        source,
        gpus if len(gpus) > 1 else (),
    )
