"""NVIDIA GPUs through NVML. The only module that knows pynvml, which is loaded when it is first needed.

What a device or driver does not support is None. Calls can block for ever when the driver hangs: they belong into
`bounded` or the sampler's thread. NVML is shut down only to open it anew after the driver
was reloaded, in that thread too, because that blocks as well.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from threading import Thread
from types import ModuleType
from typing import Any, Literal, TypeVar

from kvtui.core.text import clean
from kvtui.gpu.samples import DeviceInfo, Vitals

_OPEN_LIMIT_S = 15.0
_MOST_OPENED = 16
_MOST_INSTANCES = 16
_LOST = (
    "GPU_IS_LOST",
    "RESET_REQUIRED",
    "DRIVER_NOT_LOADED",
    "UNINITIALIZED",
    "LIB_RM_VERSION_MISMATCH",
    "GPU_NOT_FOUND",
)
# nvmlClocksEventReasons: bits for idleness, application clocks and the display's clock are no loss of speed.
_THROTTLE = (
    (0x004, "power cap"),
    (0x008, "hardware slowdown"),
    (0x010, "sync boost"),
    (0x020, "thermal"),
    (0x040, "thermal (hardware)"),
    (0x080, "power brake"),
    (0x200, "board limit"),
    (0x400, "reliability"),
)


_T = TypeVar("_T")
ProcessKind = Literal["Compute", "Graphics"]
PROCESS_KINDS: tuple[ProcessKind, ...] = ("Compute", "Graphics")


class NvmlMissing(Exception):
    """There is no usable NVML; the text says why."""


class GpuLost(Exception):
    """The GPU or its driver is gone: fell off the bus, needs a reset, was unloaded."""


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """Bytes of one device. `used` is everything that is not free, the driver's `reserved` part included (None where
    the driver does not tell it apart)."""

    total: int
    used: int
    reserved: int | None = None


@dataclass(frozen=True, slots=True)
class _Handle:
    """NVML's handle of a device, and of the GPU that it is an instance of (else the same)."""

    own: Any
    gpu: Any


def bounded(work: Callable[[], _T], limit_s: float) -> _T:
    """What `work`, which calls NVML, returns; whatever it raises. Raises NvmlMissing when it takes longer.

    A call that hangs is left behind in a thread that does not keep the program from ending.
    """
    box: list[_T | NvmlMissing | GpuLost] = []

    def run() -> None:
        try:
            box.append(work())
        except (NvmlMissing, GpuLost) as error:
            box.append(error)

    thread = Thread(target=run, name="nvml-call", daemon=True)
    thread.start()
    thread.join(limit_s)
    if not box:
        raise NvmlMissing(f"the NVIDIA driver did not answer in {limit_s:.0f} s")
    result = box[0]
    if isinstance(result, NvmlMissing | GpuLost):
        raise result
    return result


def open_nvml(limit_s: float = _OPEN_LIMIT_S) -> Nvml:
    """NVML with at least one device. Raises NvmlMissing; a driver that does not answer counts as missing."""
    return bounded(Nvml, limit_s)


class Nvml:
    """An initialised NVML. `devices` are read once, MIG instances in the place of the GPU that is cut into them;
    indices are NVML's (PCI order), and `mig` is the instance's."""

    def __init__(self) -> None:
        self._nvml = _load()
        self._lost = frozenset(getattr(self._nvml, f"NVML_ERROR_{name}") for name in _LOST)
        self._absent: set[str] = set()
        try:
            self._handles = self._find()
        except GpuLost as lost:
            raise NvmlMissing(str(lost)) from lost
        self.devices = tuple(device for key in self._handles if (device := self._describe(*key)) is not None)
        if not self.devices:
            raise NvmlMissing("the NVIDIA driver lists no usable GPU")

    def memory(self, index: int, mig: int | None = None) -> DeviceMemory | None:
        """Memory of device `index`. Raises GpuLost."""
        handle = self._handle(index, mig).own
        found = self._ask("nvmlDeviceGetMemoryInfo", handle, self._nvml.nvmlMemory_v2)
        reserved = None if found is None else int(found.reserved)
        if found is None:
            found = self._ask("nvmlDeviceGetMemoryInfo", handle)
        if found is None:
            return None
        return DeviceMemory(int(found.total), int(found.total) - int(found.free), reserved)

    def processes(self, kind: ProcessKind, index: int, mig: int | None = None) -> dict[int, int | None]:
        """Bytes of each process that the driver lists on the device, None where it does not tell how much.

        A process that does both kinds of work is listed under both with the same figure. Raises GpuLost.
        """
        listed = self._processes(kind, self._handle(index, mig).own)
        return {p.pid: None if p.usedGpuMemory is None else int(p.usedGpuMemory) for p in listed}

    def utilisation(self, index: int, mig: int | None = None) -> int | None:
        """Per cent of the last sample period in which a kernel ran; never known of a MIG instance. Raises GpuLost."""
        rates = self._ask("nvmlDeviceGetUtilizationRates", self._handle(index, mig).own)
        return None if rates is None else int(rates.gpu)

    def vitals(self, index: int, mig: int | None = None, *, traffic: bool = True) -> Vitals:
        """Power, clocks, what holds them down, PCIe traffic. Raises GpuLost.

        Takes 40 ms of waiting with `traffic`: NVML counts over 20 ms in each direction. Of a MIG
        instance, power and clocks are those of the whole GPU; traffic is None, it may be anybody's.
        """
        gpu = self._handle(index, mig).gpu
        traffic = traffic and mig is None
        milliwatts = self._ask("nvmlDeviceGetPowerUsage", gpu)
        reasons = self._ask("nvmlDeviceGetCurrentClocksEventReasons", gpu)
        if reasons is None:
            reasons = self._ask("nvmlDeviceGetCurrentClocksThrottleReasons", gpu)
        return Vitals(
            power_w=None if milliwatts is None else milliwatts / 1000,
            clock_mhz=self._ask("nvmlDeviceGetClockInfo", gpu, self._nvml.NVML_CLOCK_SM),
            pcie_rx=self._traffic(gpu, self._nvml.NVML_PCIE_UTIL_RX_BYTES) if traffic else None,
            pcie_tx=self._traffic(gpu, self._nvml.NVML_PCIE_UTIL_TX_BYTES) if traffic else None,
            throttle=None if reasons is None else tuple(word for bit, word in _THROTTLE if reasons & bit),
        )

    def reopen(self) -> None:
        """Shut NVML down and open it anew, which a driver that was reloaded asks for. Raises GpuLost if that fails.

        A device that comes back as another index is found by its UUID.
        """
        try:
            for _ in range(_MOST_OPENED):  # NVML counts how often it was opened
                self._nvml.nvmlShutdown()
        except self._nvml.NVMLError:
            pass
        try:
            self._nvml.nvmlInit()
        except self._nvml.NVMLError as error:
            raise GpuLost(_reason(error)) from error
        self._absent.clear()
        found = self._find()
        by_uuid = {uuid: handle for handle in found.values() if (uuid := self._uuid(handle))}
        self._handles = found | {
            (device.index, device.mig): by_uuid[device.uuid]
            for device in self.devices
            if device.uuid in by_uuid
        }

    def _handle(self, index: int, mig: int | None) -> _Handle:
        try:
            return self._handles[index, mig]
        except KeyError:
            raise GpuLost(f"GPU {index} is not there any more") from None

    def _find(self) -> dict[tuple[int, int | None], _Handle]:
        """Handles by index and instance. A GPU that is lost is left out; raises GpuLost where it is the only one."""
        out: dict[tuple[int, int | None], _Handle] = {}
        lost: GpuLost | None = None
        for index in range(self._ask("nvmlDeviceGetCount") or 0):
            try:
                gpu = self._ask("nvmlDeviceGetHandleByIndex", index)
                instances = [] if gpu is None else self._instances(gpu)
            except GpuLost as error:
                lost = error
                continue
            if gpu is None:
                continue
            if not instances:
                out[index, None] = _Handle(gpu, gpu)
            for number, handle in instances:
                out[index, number] = _Handle(handle, gpu)
        if lost is not None and not out:
            raise lost
        return out

    def _instances(self, gpu: Any) -> list[tuple[int, Any]]:
        mode = self._ask("nvmlDeviceGetMigMode", gpu)
        if mode is None or not mode[0]:
            return []
        most = min(self._ask("nvmlDeviceGetMaxMigDeviceCount", gpu) or 0, _MOST_INSTANCES)
        handles = ((n, self._ask("nvmlDeviceGetMigDeviceHandleByIndex", gpu, n)) for n in range(most))
        return [(n, handle) for n, handle in handles if handle is not None]

    def _processes(self, kind: ProcessKind, handle: Any) -> list[Any]:
        """By version 3 of the call, or by version 2 with drivers before 510."""
        for version in ("v3", "v2"):
            listed = self._ask(f"nvmlDeviceGet{kind}RunningProcesses_{version}", handle)
            if listed is not None:
                return list(listed)
        return []

    def _traffic(self, gpu: Any, direction: int) -> int | None:
        kilobytes = self._ask("nvmlDeviceGetPcieThroughput", gpu, direction)
        return None if kilobytes is None else int(kilobytes) * 1000

    def _describe(self, index: int, mig: int | None) -> DeviceInfo | None:
        handle = self._handles[index, mig]
        try:
            memory = self.memory(index, mig)
            if memory is None:
                return None
            cuda = self._ask("nvmlSystemGetCudaDriverVersion_v2")
            capability = self._ask("nvmlDeviceGetCudaComputeCapability", handle.gpu)
            active = self._ask("nvmlDeviceGetDisplayActive", handle.gpu)
            ecc = self._ask("nvmlDeviceGetEccMode", handle.gpu)
            return DeviceInfo(
                kind="nvml",
                index=index,
                name=clean(self._ask("nvmlDeviceGetName", handle.own) or f"GPU {index}", 120),
                total_bytes=memory.total,
                driver=_version(self._ask("nvmlSystemGetDriverVersion")),
                cuda=None if cuda is None else f"{cuda // 1000}.{cuda % 1000 // 10}",
                compute_capability=None if capability is None else "{}.{}".format(*capability),
                display_attached=None if active is None else bool(active),
                ecc=None if ecc is None else bool(ecc[0]),
                reserved_bytes=memory.reserved,
                uuid=self._uuid(handle),
                mig=mig,
            )
        except GpuLost:
            return None

    def _uuid(self, handle: _Handle) -> str:
        return clean(self._ask("nvmlDeviceGetUUID", handle.own) or "", 80)

    def _ask(self, call: str, *arguments: Any) -> Any:
        """The call's answer, None for whatever the device or driver cannot tell."""
        if call in self._absent:
            return None
        try:
            return getattr(self._nvml, call)(*arguments)
        except self._nvml.NVMLError as error:
            if error.value in self._lost:
                raise GpuLost(_reason(error)) from error
            if error.value == self._nvml.NVML_ERROR_FUNCTION_NOT_FOUND and len(arguments) < 2:
                self._absent.add(call)  # asking again would look the symbol up again
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
