"""What running engines hold, per process: on GPUs where the driver tells, and of host memory."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
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
    """Bytes on GPUs by process, summed over devices; `why` says why there is none."""

    by_pid: Mapping[int, int] = field(default_factory=dict)
    devices: int = 0
    why: str = ""


def host_memory(pid: int) -> HostMemory:
    """What process `pid` holds of host memory now."""
    found = _fields(f"/proc/{pid}/smaps_rollup", _ROLLUP)
    if b"Anonymous" in found:
        return HostMemory(found.get(b"Rss"), found[b"Anonymous"] + found.get(b"Swap", 0))
    found = _fields(f"/proc/{pid}/status", _STATUS)
    anonymous = found.get(b"RssAnon")
    return HostMemory(found.get(b"VmRSS"), None if anonymous is None else anonymous + found.get(b"VmSwap", 0))


def gpu_memory(pids: Iterable[int], limit_s: float) -> GpuMemory:
    """What the driver attributes to `pids`. A driver that does not answer within `limit_s` counts as none."""
    box: list[GpuMemory] = []
    wanted = tuple(pids)
    thread = Thread(target=lambda: box.append(_ask(wanted, limit_s)), name="nvml-attach", daemon=True)
    thread.start()
    thread.join(limit_s)
    return box[0] if box else GpuMemory(why=f"the NVIDIA driver did not answer in {limit_s:.1f} s")


def _ask(pids: tuple[int, ...], limit_s: float) -> GpuMemory:
    from kvtui.gpu.nvml import GpuLost, NvmlMissing, open_nvml

    try:
        nvml = open_nvml(limit_s)
    except NvmlMissing as missing:
        return GpuMemory(why=str(missing))
    found: dict[int, int] = {}
    for device in nvml.devices:
        try:
            listed = nvml.processes(device.index, device.mig)
        except GpuLost as lost:
            return GpuMemory(found, len(nvml.devices), str(lost))
        for pid in pids:
            if (held := listed.get(pid)) is not None:
                found[pid] = found.get(pid, 0) + held
    why = "" if found else "the driver lists no process of these"
    return GpuMemory(found, len(nvml.devices), why)


def _fields(path: str, pattern: re.Pattern[bytes]) -> dict[bytes, int]:
    try:
        with open(path, "rb") as file:
            return {name: int(kib) * _KIB for name, kib in pattern.findall(file.read(65536))}
    except OSError:
        return {}
