"""What a source of memory readings gives, and how readings of several devices become one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from kvtui.gpu.host import Family
from kvtui.gpu.samples import DeviceInfo, Vitals


@dataclass(frozen=True, slots=True)
class Reading:
    """Raw values of one moment, in bytes. `device_process_bytes` is what the driver attributes to the engine.

    `gtt_process_bytes` and `gtt_used_bytes` are host memory used as if it were the GPU's, by the engine and by
    everybody. `devices` are the readings of the single devices where there are several.
    """

    used_bytes: int | None
    device_process_bytes: int | None
    host_bytes: int | None
    gpu_util: int | None = None
    gtt_process_bytes: int | None = None
    gtt_used_bytes: int | None = None
    devices: tuple[Reading, ...] = ()


class MemorySource(Protocol):
    """One memory that can be read over and over. `family` tells which processes are the engine's."""

    family: Family

    @property
    def device(self) -> DeviceInfo:
        """What it is the memory of."""
        ...

    def read(self, pid: int | None) -> Reading:
        """Now, for the engine's process `pid` and those it started. May block where a driver hangs. Raises GpuLost."""
        ...

    def vitals(self) -> Vitals:
        """What decides how fast the device works, now. May block like `read`. Raises GpuLost."""
        ...

    def recover(self) -> None:
        """Try to get back a device that was lost. May block like `read`. Raises GpuLost where it is still gone."""
        ...

    def close(self) -> None:
        """Never blocks."""
        ...


def together(devices: Sequence[DeviceInfo]) -> DeviceInfo:
    """Several devices (at least one) as the one memory that an engine spreads over."""
    first = devices[0]
    if len(devices) == 1:
        return first
    names = [d.name for d in devices]
    same = len(set(names)) == 1
    displays = {d.display_attached for d in devices}
    parts = " + ".join(f"GPU {d.index}" for d in devices)
    notes = dict.fromkeys(d.note for d in devices if d.note)
    return replace(
        first,
        name=f"{len(names)} x {first.name}" if same else " + ".join(names),
        total_bytes=sum(d.total_bytes for d in devices),
        display_attached=True if True in displays else first.display_attached,
        note="; ".join(
            (f"{parts} together: each must hold its share, the sum does not show which is full", *notes)
        ),
        reserved_bytes=_sum(d.reserved_bytes for d in devices),
        uuid="",
        members=tuple(d.as_member() for d in devices),
    )


def summed(readings: Sequence[Reading]) -> Reading:
    """Readings of several devices as one. A sum of which a part is missing is missing.

    Where the driver attributes memory to the engine on one device, not being listed on another means it holds none.
    """
    if len(readings) == 1:
        return readings[0]
    listed = [r.device_process_bytes for r in readings if r.device_process_bytes is not None]
    utils = [r.gpu_util for r in readings if r.gpu_util is not None]
    return Reading(
        used_bytes=_sum(r.used_bytes for r in readings),
        device_process_bytes=sum(listed) if listed else None,
        host_bytes=readings[0].host_bytes,
        gpu_util=max(utils, default=None),
        gtt_process_bytes=_sum(r.gtt_process_bytes for r in readings),
        gtt_used_bytes=_sum(r.gtt_used_bytes for r in readings),
        devices=tuple(readings),
    )


def summed_vitals(vitals: Sequence[Vitals]) -> Vitals:
    """Vitals of several devices as one: power and traffic add up, the slowest clock counts, and every reason."""
    clocks = [v.clock_mhz for v in vitals if v.clock_mhz is not None]
    told = [v.throttle for v in vitals if v.throttle is not None]
    watts = [v.power_w for v in vitals if v.power_w is not None]
    return Vitals(
        power_w=sum(watts) if watts else None,
        clock_mhz=min(clocks, default=None),
        pcie_rx=_sum(v.pcie_rx for v in vitals),
        pcie_tx=_sum(v.pcie_tx for v in vitals),
        throttle=tuple(dict.fromkeys(word for words in told for word in words)) if told else None,
    )


def _sum(values: Iterable[int | None]) -> int | None:
    total = 0
    for value in values:
        if value is None:
            return None
        total += value
    return total
