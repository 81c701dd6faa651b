"""Memory of one or several NVIDIA GPUs, read over and over."""

from __future__ import annotations

import time
from dataclasses import replace

from kvtui.gpu import host
from kvtui.gpu.nvml import PROCESS_KINDS, Nvml
from kvtui.gpu.reading import Reading, summed, summed_vitals, together
from kvtui.gpu.samples import DeviceInfo, Vitals

_UTIL_S = 0.25
"""The driver itself measures utilisation over a sixth of a second to one second."""
_FORGET_S = 5.0
"""A process id may be given to another process; who descends from whom is asked anew this often."""


class NvmlSource:
    """Memory of the GPUs (or MIG instances) `devices`, at least one."""

    def __init__(self, nvml: Nvml, devices: tuple[DeviceInfo, ...]) -> None:
        self._nvml = nvml
        self._devices = devices
        self._device = together(devices)
        self.family = host.Family()
        self._turn = 0
        self._utils: dict[tuple[int, int | None], tuple[float, int | None]] = {}
        self._latest: dict[int, Vitals] = {}
        self._ours: dict[tuple[int, int], bool] = {}
        self._asked_at = 0.0

    @property
    def device(self) -> DeviceInfo:
        """The GPU, or all of them as one."""
        return self._device

    def read(self, pid: int | None) -> Reading:
        """Now. Raises GpuLost."""
        resident = self.family.resident_bytes(pid)
        return summed([self._read(device, pid, resident) for device in self._devices])

    def vitals(self) -> Vitals:
        """Now, of one GPU after the other, and of its traffic every second time: counting that takes 40 ms.

        Raises GpuLost.
        """
        turn, at = divmod(self._turn, len(self._devices))
        self._turn += 1
        device, before = self._devices[at], self._latest.get(at)
        vitals = self._nvml.vitals(device.index, device.mig, traffic=turn % 2 == 0)
        if turn % 2 and before is not None:
            vitals = replace(vitals, pcie_rx=before.pcie_rx, pcie_tx=before.pcie_tx)
        self._latest[at] = vitals
        return summed_vitals([self._latest[n] for n in sorted(self._latest)])

    def recover(self) -> None:
        """Open NVML anew. Raises GpuLost where that fails."""
        self._latest.clear()
        self._nvml.reopen()

    def close(self) -> None:
        """NVML stays open until the process ends."""

    def _read(self, device: DeviceInfo, pid: int | None, resident: int | None) -> Reading:
        memory = self._nvml.memory(device.index, device.mig)
        return Reading(
            used_bytes=None if memory is None else memory.used,
            device_process_bytes=None if pid is None else self._held(device, pid),
            host_bytes=resident,
            gpu_util=self._utilisation(device),
        )

    def _utilisation(self, device: DeviceInfo) -> int | None:
        now, key = time.monotonic(), (device.index, device.mig)
        if key not in self._utils or now - self._utils[key][0] >= _UTIL_S:
            self._utils[key] = now, self._nvml.utilisation(*key)
        return self._utils[key][1]

    def _held(self, device: DeviceInfo, pid: int) -> int | None:
        """What `pid` and all it started hold; None where one of them holds an amount that the driver does not tell."""
        for kind in PROCESS_KINDS:
            listed = self._nvml.processes(kind, device.index, device.mig)
            ours = [held for one, held in listed.items() if self._is_ours(one, pid)]
            if ours:
                return None if None in ours else sum(held for held in ours if held is not None)
        return None

    def _is_ours(self, one: int, pid: int) -> bool:
        if one == pid:
            return True
        now = time.monotonic()
        if now - self._asked_at > _FORGET_S:
            self._ours.clear()
            self._asked_at = now
        if (one, pid) not in self._ours:
            self._ours[one, pid] = host.descends(one, pid)
        return self._ours[one, pid]
