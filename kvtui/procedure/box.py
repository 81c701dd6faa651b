"""The box that a session works on: its GPUs, what of their memory may be taken, its processor and system."""

from __future__ import annotations

import math
import os
import platform

from kvtui.core.errors import InputError
from kvtui.core.units import GIB, size
from kvtui.gpu.samples import DeviceInfo
from kvtui.procedure.preset import Preset
from kvtui.session.records import HostInfo


def visible_gpus(device: DeviceInfo) -> tuple[tuple[str, str], ...]:
    """Variables by which the engine uses the GPUs of `device` and no others."""
    uuids = [d.uuid for d in device.each]
    if device.kind == "nvml":
        names = ",".join(uuids if all(uuids) else [str(d.index) for d in device.each])
        return ("CUDA_DEVICE_ORDER", "PCI_BUS_ID"), ("CUDA_VISIBLE_DEVICES", names)
    if device.kind == "amd" and all(uuids):
        return (("ROCR_VISIBLE_DEVICES", ",".join(uuids)),)
    return ()


def share_of_card(gpus: tuple[int, ...] | None, plan: Preset) -> float:
    """What an engine that takes a share of the card may take: all but what others hold now, or the reserve that the
    operator names, and the margin. A ten-thousandth less: the engine rounds up. Raises InputError: nothing is left."""
    from kvtui.gpu.source import open_source

    source = open_source(None, gpus)
    try:
        total, held = source.device.total_bytes, source.read(None).used_bytes or 0
    finally:
        source.close()
    reserve = max(held, round((plan.reserve_gib or 0) * GIB))
    share = math.floor((total - reserve - plan.margin_gib * GIB) / total * 10_000 - 1) / 10_000
    if share <= 0:
        raise InputError(
            f"{size(reserve)} of {size(total)} are taken: nothing is left beside the margin",
            hint="end what holds it, or make --margin smaller",
        )
    return share


def device_info(gpus: tuple[int, ...] | None) -> DeviceInfo:
    """The memory that budgets are made of: of the GPUs the engine will use where there are any, else host memory."""
    from kvtui.gpu.source import open_source

    source = open_source(None, gpus)
    try:
        return source.device
    finally:
        source.close()


def host_info() -> HostInfo:
    """The box."""
    from kvtui.gpu.host import cpu_name, memory_total

    return HostInfo(
        system=f"{platform.system()} {platform.release()} {platform.machine()}",
        cpu=cpu_name(),
        cores=os.cpu_count() or 1,
        memory_bytes=memory_total(),
        python=platform.python_version(),
    )
