"""The terms of the budget that come from the card and the options: total, reserve, runtime, margin."""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass
from typing import Literal

from kvtui.core.units import GIB
from kvtui.model.budget import Assumptions, Budget, budget

ASSUMED_RUNTIME_GIB = 1.2  # CUDA context, compute and graph buffers of a mid-size model at -ub 512
DEFAULT_MARGIN_GIB = 1.0
NVML_LIMIT_S = 2.0  # a driver that hangs must not hang a command that reads a file

DRIVER_FILES = ("/dev/nvidiactl", "/dev/dxg")  # the driver on Linux, the bridge to it in WSL

AMD_FILES = ("/sys/module/amdgpu",)

TotalSource = Literal["given", "nvml", "amdgpu"]
ReserveSource = Literal["given", "measured", "not measured"]


@dataclass(frozen=True, slots=True)
class Money:
    """The budget and where its terms come from. `card` is the GPU's name, None where `--vram` stands for one."""

    budget: Budget
    card: str | None
    total_source: TotalSource
    reserve_source: ReserveSource


@dataclass(frozen=True, slots=True)
class Card:
    """A memory to fit into: a GPU, or what `--vram` says (`name` and `used_bytes` are None then, `source` given)."""

    name: str | None
    total_bytes: int
    used_bytes: int | None
    source: TotalSource = "given"


def card_for(args: argparse.Namespace) -> Card | None:
    """What `--vram` says, else the first GPU, else None."""
    return Card(None, int(args.vram * GIB), None) if args.vram is not None else _first_gpu()


def money_for(args: argparse.Namespace, card: Card, weights_gpu_bytes: int) -> Money:
    """The budget of a model with so many bytes of weights on that card."""
    given = args.reserve is not None
    reserve = int(args.reserve * GIB) if given else card.used_bytes or 0
    source: ReserveSource = "given" if given else "not measured" if card.used_bytes is None else "measured"
    measured = args.runtime is not None
    terms = Assumptions(
        total_bytes=card.total_bytes,
        reserve_bytes=reserve,
        runtime_bytes=int((args.runtime if measured else ASSUMED_RUNTIME_GIB) * GIB),
        runtime_measured=measured,
        margin_bytes=int(args.margin * GIB),
    )
    made = budget(weights_gpu_bytes, terms)
    return Money(made, card.name, card.source, source)


def _first_gpu() -> Card | None:
    return _first_nvidia() or _first_amd()


def _first_amd() -> Card | None:
    if not any(os.path.exists(path) for path in AMD_FILES):
        return None
    from kvtui.gpu.amd import engines_choice, open_amd
    from kvtui.gpu.nvml import GpuLost

    own = engines_choice()
    if not own:
        return None
    try:
        used = open_amd([own[0].index]).read(None).used_bytes
    except GpuLost:
        return None
    return Card(own[0].name, own[0].total_bytes, used, "amdgpu")


def _first_nvidia() -> Card | None:
    # NVML's bindings take longer to import than everything else here together.
    if not any(os.path.exists(path) for path in DRIVER_FILES):
        return None
    from kvtui.gpu.nvml import GpuLost, NvmlMissing, open_nvml

    try:
        nvml = open_nvml(NVML_LIMIT_S)
        device = nvml.devices[0]
        memory = nvml.memory(device.index, device.mig)
    except (NvmlMissing, GpuLost):
        return None
    return None if memory is None else Card(device.name, memory.total, memory.used, "nvml")
