"""What running engines hold, per process: on GPUs where the driver tells, and of host memory."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread

_ROLLUP = re.compile(rb"^(Anonymous|Rss|Swap|Private_Dirty):\s+(\d+) kB", re.MULTILINE)
_STATUS = re.compile(rb"^(RssAnon|VmRSS|VmSwap):\s+(\d+) kB", re.MULTILINE)
_KIB = 1024


@dataclass(frozen=True, slots=True)
class HostMemory:
    """Bytes of one process. `anonymous` is what it allocated itself, in memory or swapped out: a mapped model file
    is not in it. None where it may not be read."""

    resident: int | None
    anonymous: int | None


@dataclass(frozen=True, slots=True)
class GpuMemory:
    """Bytes on GPUs by process (with all that it started), summed over devices; `why` says why there is none."""

    by_pid: Mapping[int, int] = field(default_factory=dict)
    why: str = ""


def host_memory(pid: int) -> HostMemory:
    """What process `pid` holds of host memory now."""
    found = _fields(f"/proc/{pid}/smaps_rollup", _ROLLUP)
    if b"Anonymous" in found:
        return HostMemory(found.get(b"Rss"), found[b"Anonymous"] + found.get(b"Swap", 0))
    found = _fields(f"/proc/{pid}/status", _STATUS)
    anonymous = found.get(b"RssAnon")
    return HostMemory(found.get(b"VmRSS"), None if anonymous is None else anonymous + found.get(b"VmSwap", 0))


def gpu_memory(families: Mapping[int, tuple[int, ...]], limit_s: float) -> GpuMemory:
    """What the driver attributes to each process and all that it started (`families`: pid to all of their pids).

    A driver that does not answer within `limit_s` counts as none.
    """
    box: list[GpuMemory] = []
    wanted = dict(families)
    thread = Thread(target=lambda: box.append(_ask(wanted, limit_s)), name="attach-gpu", daemon=True)
    thread.start()
    thread.join(limit_s)
    return box[0] if box else GpuMemory(why=f"the GPU's driver did not answer in {limit_s:.1f} s")


def _ask(families: Mapping[int, tuple[int, ...]], limit_s: float) -> GpuMemory:
    from kvtui.gpu.nvml import PROCESS_KINDS, GpuLost, NvmlMissing, open_nvml

    try:
        nvml = open_nvml(limit_s)
    except NvmlMissing as missing:
        return _of_open_files(families, str(missing))
    held: dict[int, int] = {}
    for device in nvml.devices:
        try:
            listed = [nvml.processes(kind, device.index, device.mig) for kind in PROCESS_KINDS]
        except GpuLost as lost:
            return GpuMemory(why=str(lost))
        for pid in {pid for one in listed for pid in one}:
            amounts = [n for one in listed if (n := one.get(pid)) is not None]
            if amounts:  # listed twice where it draws and computes: it is the same memory
                held[pid] = held.get(pid, 0) + max(amounts)
    found = {
        root: sum(held.get(pid, 0) for pid in family)
        for root, family in families.items()
        if any(pid in held for pid in family)
    }
    return GpuMemory(found, "" if found else "the driver attributes no memory to these processes")


def _of_open_files(families: Mapping[int, tuple[int, ...]], why: str) -> GpuMemory:
    """What the kernel's own drivers (amdgpu, ..) count for open files."""
    from kvtui.gpu.fdinfo import DrmClients
    from kvtui.gpu.host import Family

    clients = DrmClients(Path("/proc"), Family())
    found = {}
    for pid in families:
        by_card = clients.read(pid)
        if by_card:
            found[pid] = sum(vram for vram, _ in by_card.values())
    return GpuMemory(found, "" if found else why)


def _fields(path: str, pattern: re.Pattern[bytes]) -> dict[bytes, int]:
    try:
        with open(path, "rb") as file:
            return {name: int(kib) * _KIB for name, kib in pattern.findall(file.read(65536))}
    except OSError:
        return {}
