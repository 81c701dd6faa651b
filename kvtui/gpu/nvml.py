"""NVIDIA GPUs through NVML. The only module that knows pynvml, which is loaded when it is first needed.

What a device or driver does not support is None. Calls can block for ever when the driver hangs: `open_nvml`
bounds its own, the rest belong into the sampler's thread. NVML is never shut down, because that blocks too.
"""

from __future__ import annotations

from dataclasses import dataclass
from threading import Thread
from types import ModuleType
from typing import Any

from kvtui.core.text import clean
from kvtui.gpu.samples import DeviceInfo

_OPEN_LIMIT_S = 15.0


class NvmlMissing(Exception):
    """There is no usable NVML; the text says why."""


class GpuLost(Exception):
    """The GPU or its driver is gone: fell off the bus, needs a reset, was unloaded."""


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """Bytes of one device. `used` is everything that is not free, the driver's reserve included."""

    total: int
    used: int


def open_nvml(limit_s: float = _OPEN_LIMIT_S) -> Nvml:
    """NVML with at least one device. Raises NvmlMissing; a driver that does not answer counts as missing."""
    box: list[Nvml | NvmlMissing] = []

    def work() -> None:
        try:
            box.append(Nvml())
        except NvmlMissing as missing:
            box.append(missing)

    thread = Thread(target=work, name="nvml-open", daemon=True)
    thread.start()
    thread.join(limit_s)
    if not box:
        raise NvmlMissing(f"the NVIDIA driver did not answer in {limit_s:.0f} s")
    if isinstance(box[0], NvmlMissing):
        raise box[0]
    return box[0]


class Nvml:
    """An initialised NVML. `devices` are read once; indices are NVML's (PCI order)."""

    def __init__(self) -> None:
        self._nvml = _load()
        self._lost = frozenset(
            getattr(self._nvml, f"NVML_ERROR_{name}")
            for name in ("GPU_IS_LOST", "RESET_REQUIRED", "DRIVER_NOT_LOADED", "UNINITIALIZED")
        )
        try:
            count = self._ask("nvmlDeviceGetCount") or 0
            handles = [(index, self._ask("nvmlDeviceGetHandleByIndex", index)) for index in range(count)]
        except GpuLost as lost:
            raise NvmlMissing(str(lost)) from lost
        self._handles = {index: handle for index, handle in handles if handle is not None}
        self.devices = tuple(
            device for index in self._handles if (device := self._describe(index)) is not None
        )
        if not self.devices:
            raise NvmlMissing("the NVIDIA driver lists no usable GPU")

    def memory(self, index: int) -> DeviceMemory | None:
        """Memory of device `index`. Raises GpuLost."""
        handle = self._handles[index]
        found = self._ask("nvmlDeviceGetMemoryInfo", handle, self._nvml.nvmlMemory_v2)
        if found is None:
            found = self._ask("nvmlDeviceGetMemoryInfo", handle)
        return None if found is None else DeviceMemory(int(found.total), int(found.total) - int(found.free))

    def process_bytes(self, index: int, pid: int) -> int | None:
        """What process `pid` holds on device `index`; None where the driver does not list it. Raises GpuLost."""
        listed = [
            int(process.usedGpuMemory)
            for kind in ("Compute", "Graphics")
            for process in self._processes(kind, self._handles[index])
            if process.pid == pid and process.usedGpuMemory is not None
        ]
        return max(listed, default=None)

    def utilisation(self, index: int) -> int | None:
        """Per cent of the last sample period in which a kernel ran. Raises GpuLost."""
        rates = self._ask("nvmlDeviceGetUtilizationRates", self._handles[index])
        return None if rates is None else int(rates.gpu)

    def _processes(self, kind: str, handle: Any) -> list[Any]:
        """By version 3 of the call, or by version 2 with drivers before 510."""
        for version in ("v3", "v2"):
            listed = self._ask(f"nvmlDeviceGet{kind}RunningProcesses_{version}", handle)
            if listed is not None:
                return list(listed)
        return []

    def _describe(self, index: int) -> DeviceInfo | None:
        handle = self._handles[index]
        try:
            memory = self.memory(index)
            if memory is None:
                return None
            cuda = self._ask("nvmlSystemGetCudaDriverVersion_v2")
            capability = self._ask("nvmlDeviceGetCudaComputeCapability", handle)
            active = self._ask("nvmlDeviceGetDisplayActive", handle)
            return DeviceInfo(
                kind="nvml",
                index=index,
                name=clean(self._ask("nvmlDeviceGetName", handle) or f"GPU {index}", 120),
                total_bytes=memory.total,
                driver=_version(self._ask("nvmlSystemGetDriverVersion")),
                cuda=None if cuda is None else f"{cuda // 1000}.{cuda % 1000 // 10}",
                compute_capability=None if capability is None else "{}.{}".format(*capability),
                display_attached=None if active is None else bool(active),
            )
        except GpuLost:
            return None

    def _ask(self, call: str, *arguments: Any) -> Any:
        """The call's answer, None for whatever the device or driver cannot tell."""
        try:
            return getattr(self._nvml, call)(*arguments)
        except self._nvml.NVMLError as error:
            if error.value in self._lost:
                raise GpuLost(_reason(error)) from error
            return None


def _load() -> ModuleType:
    try:
        import pynvml
    except ImportError as error:
        raise NvmlMissing("the package nvidia-ml-py is not installed") from error
    module: ModuleType = pynvml
    try:
        module.nvmlInit()
    except module.NVMLError as error:
        if error.value == module.NVML_ERROR_LIBRARY_NOT_FOUND:
            raise NvmlMissing("no NVIDIA driver is installed") from error
        raise NvmlMissing(f"the NVIDIA driver cannot be used: {_reason(error)}") from error
    return module


def _reason(error: Exception) -> str:
    return clean(str(error), 200)


def _version(text: str | None) -> str | None:
    return None if text is None else clean(text, 40)
