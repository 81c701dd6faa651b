"""Where memory readings come from: NVML, amdgpu's files, else host memory of the engine's process."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from dataclasses import replace

from kvtui.core.errors import InputError
from kvtui.gpu import amd, host
from kvtui.gpu.nvml import PROCESS_KINDS, GpuLost, Nvml, NvmlMissing, bounded, open_nvml
from kvtui.gpu.nvml_source import NvmlSource
from kvtui.gpu.reading import MemorySource, Reading
from kvtui.gpu.samples import DeviceInfo, Member, Vitals
from kvtui.gpu.visible import chosen

_ASK_LIMIT_S = 5.0

__all__ = ["GpuLost", "MemorySource", "Reading", "open_source", "reopen_source"]


def open_source(pid: int | None = None, gpus: Sequence[int] | None = None) -> MemorySource:
    """The memory that the engine works in: of one GPU, or of several as one.

    `gpus` are the driver's indices; None takes all that `CUDA_VISIBLE_DEVICES` (on AMD `HIP_VISIBLE_DEVICES`)
    leaves. `pid` is an engine that runs already: the GPUs it is listed on are taken then. Raises InputError for a
    GPU that is not there.
    """
    devices: tuple[DeviceInfo, ...] = ()
    try:
        nvml = open_nvml()
        if gpus is None and pid is not None:
            devices = bounded(lambda: _holding(nvml, pid), _ASK_LIMIT_S)
    except NvmlMissing as missing:
        return _without_nvml(str(missing), gpus)
    devices = devices or chosen(nvml.devices, gpus, os.environ)
    if not devices:
        return HostSource("CUDA_VISIBLE_DEVICES hides every GPU from the engine")
    rest = len(nvml.devices) - len(devices)
    return NvmlSource(nvml, tuple(_beside(d, rest) for d in devices))


def reopen_source(device: DeviceInfo) -> MemorySource:
    """The memory that `device` was recorded of; on a box where it is not any more, raises InputError."""
    if device.kind == "host":
        return HostSource("", device)
    if device.kind == "amd":
        return amd.open_amd([d.index for d in device.each])
    try:
        nvml = open_nvml()
    except NvmlMissing as missing:
        raise InputError(
            f"GPU {device.index} cannot be used: {missing}",
            hint="the session can go on when it is back: kvtui tune --resume last",
        ) from missing
    there = [_again(nvml, d) for d in device.each]
    return NvmlSource(nvml, tuple(there))


class HostSource:
    """Host memory in the place of VRAM; `why` says what is missing. `device` is one that was recorded so."""

    def __init__(self, why: str, device: DeviceInfo | None = None) -> None:
        self.family = host.Family()
        self._device = device or DeviceInfo(
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
        return Reading(host.memory_used(), None, self.family.resident_bytes(pid))

    def vitals(self) -> Vitals:
        """Nothing is told here."""
        return Vitals()

    def recover(self) -> None:
        """The host is never lost."""

    def close(self) -> None:
        """Nothing is held."""


def _without_nvml(why: str, gpus: Sequence[int] | None) -> MemorySource:
    """AMD's GPUs, else the host, with the GPUs named that nobody here can measure."""
    if amd.devices() and (gpus is not None or amd.engines_choice()):
        return amd.open_amd(gpus)
    if gpus is not None:
        named = ", ".join(map(str, gpus))
        raise InputError(f"GPU {named} cannot be used: {why}")
    return HostSource(_hidden(why))


def _hidden(why: str) -> str:
    """`why`, and the GPUs of this box that are not measured."""
    others = ["the GPU of this Mac"] if platform.system() == "Darwin" else list(amd.not_measured())
    if not others:
        return why
    verb = "is" if len(others) == 1 else "are"
    return f"{why}, and {' and '.join(others)} {verb} not measured"


def _beside(device: DeviceInfo, rest: int) -> DeviceInfo:
    if not rest:
        return device
    what = "GPU" if device.mig is None else "GPU or instance"
    note = f"the memory of {rest} other {what}{'s' if rest > 1 else ''} is not measured"
    return replace(device, note=f"{device.note}; {note}" if device.note else note)


def _again(nvml: Nvml, device: Member) -> DeviceInfo:
    """The recorded device as the driver lists it now, by its UUID, else by its index."""
    for now in nvml.devices:
        if (device.uuid and now.uuid == device.uuid) or (
            not device.uuid and (now.index, now.mig) == (device.index, device.mig)
        ):
            return now
    raise InputError(
        f"GPU {device.index} ({device.name}) that this session began with is not there",
        hint="start a new session for another GPU",
    )


def _holding(nvml: Nvml, pid: int) -> tuple[DeviceInfo, ...]:
    return tuple(device for device in nvml.devices if _holds(nvml, device, pid))


def _holds(nvml: Nvml, device: DeviceInfo, pid: int) -> bool:
    try:
        listed = (one for kind in PROCESS_KINDS for one in nvml.processes(kind, device.index, device.mig))
        return any(host.descends(one, pid) for one in listed)
    except GpuLost:
        return False
