"""Where memory readings come from: NVML where there is a GPU, else host memory of the engine's process."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import Protocol

from kvtui.core.errors import InputError
from kvtui.gpu import host
from kvtui.gpu.nvml import GpuLost, Nvml, NvmlMissing, open_nvml
from kvtui.gpu.samples import DeviceInfo

__all__ = ["GpuLost", "MemorySource", "Reading", "open_source"]


@dataclass(frozen=True, slots=True)
class Reading:
    """Raw values of one moment, in bytes. `device_process_bytes` is what the driver attributes to the engine."""

    used_bytes: int | None
    device_process_bytes: int | None
    host_bytes: int | None
    gpu_util: int | None = None


class MemorySource(Protocol):
    """One memory that can be read over and over."""

    @property
    def device(self) -> DeviceInfo:
        """What it is the memory of."""
        ...

    def read(self, pid: int | None) -> Reading:
        """Now, for the engine's process `pid`. May block where a driver hangs. Raises GpuLost."""
        ...

    def close(self) -> None:
        """Never blocks."""
        ...


def open_source(pid: int | None = None, gpu_index: int | None = None) -> MemorySource:
    """The memory that the engine works in.

    `gpu_index` is NVML's; None takes the first one that `CUDA_VISIBLE_DEVICES` leaves. `pid` is an engine
    that runs already: the GPU it is listed on is taken then. Raises InputError for a GPU that is not there.
    """
    try:
        nvml = open_nvml()
    except NvmlMissing as missing:
        if gpu_index is not None:
            raise InputError(f"GPU {gpu_index} cannot be used: {missing}") from missing
        return HostSource(str(missing))
    return NvmlSource(nvml, _choose(nvml, pid, gpu_index))


class NvmlSource:
    """Memory of one GPU."""

    def __init__(self, nvml: Nvml, device: DeviceInfo) -> None:
        self._nvml = nvml
        self._device = device

    @property
    def device(self) -> DeviceInfo:
        """The GPU."""
        return self._device

    def read(self, pid: int | None) -> Reading:
        """Now. Raises GpuLost."""
        index = self._device.index
        memory = self._nvml.memory(index)
        return Reading(
            used_bytes=None if memory is None else memory.used,
            device_process_bytes=None if pid is None else self._nvml.process_bytes(index, pid),
            host_bytes=None if pid is None else host.resident_bytes(pid),
            gpu_util=self._nvml.utilisation(index),
        )

    def close(self) -> None:
        """NVML stays open until the process ends."""


class HostSource:
    """Host memory in the place of VRAM; `why` says what is missing."""

    def __init__(self, why: str) -> None:
        self._device = DeviceInfo(
            kind="host",
            index=0,
            name=host.cpu_name(),
            total_bytes=host.memory_total(),
            note=f"{why}: host memory of the engine's process stands in for VRAM",
        )

    @property
    def device(self) -> DeviceInfo:
        """The host."""
        return self._device

    def read(self, pid: int | None) -> Reading:
        """Now."""
        resident = None if pid is None else host.resident_bytes(pid)
        return Reading(host.memory_used(), None, resident)

    def close(self) -> None:
        """Nothing is held."""


def _choose(nvml: Nvml, pid: int | None, gpu_index: int | None) -> DeviceInfo:
    by_index = {device.index: device for device in nvml.devices}
    if gpu_index is not None and gpu_index not in by_index:
        there = ", ".join(map(str, by_index))
        raise InputError(f"there is no GPU {gpu_index}", hint=f"there is {there}")
    index = gpu_index
    if index is None and pid is not None:
        index = next((i for i in by_index if _holds(nvml, i, pid)), None)
    if index is None:
        index = _first_visible(by_index)
    device = by_index[index]
    if len(by_index) == 1:
        return device
    return replace(device, note=f"one of {len(by_index)} GPUs; the memory of the others is not measured")


def _holds(nvml: Nvml, index: int, pid: int) -> bool:
    try:
        return nvml.process_bytes(index, pid) is not None
    except GpuLost:
        return False


def _first_visible(by_index: dict[int, DeviceInfo]) -> int:
    first = os.environ.get("CUDA_VISIBLE_DEVICES", "").partition(",")[0].strip()
    if first.isdecimal() and int(first) in by_index:
        return int(first)
    return next(iter(by_index))
