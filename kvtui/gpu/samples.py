"""The values a memory reading is made of. Bytes throughout; missing is None, never zero."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Phase = Literal["before", "load", "warm-up", "prefill", "decode", "idle"]
PHASES: tuple[Phase, ...] = ("before", "load", "warm-up", "prefill", "decode", "idle")


@dataclass(frozen=True, slots=True)
class DeviceInfo:
    """One memory that a budget can be made of.

    `kind` `host` means: no GPU here, host memory of the engine's process stands in for VRAM.
    """

    kind: Literal["nvml", "host"]
    index: int
    name: str
    total_bytes: int
    driver: str | None = None
    cuda: str | None = None
    compute_capability: str | None = None
    display_attached: bool | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class Sample:
    """Memory at one moment.

    `t` is seconds since the sampler started (monotonic). `engine_bytes` is what the engine holds on the
    device: per process where the driver tells (`basis` `process`), else the device's growth since before the
    launch (`growth`), else the process's resident host memory (`rss`). `used_bytes` is everything in use on
    the device, by whomever. `host_bytes` is the engine's resident host memory, a spill shows there.
    """

    t: float
    phase: Phase
    engine_bytes: int | None
    used_bytes: int | None
    host_bytes: int | None
    basis: Literal["process", "growth", "rss"] | None
    gpu_util: int | None = None


@dataclass(frozen=True, slots=True)
class PhasePeak:
    """The exact maximum of one phase's samples, with the time (seconds, as in `Sample.t`) it was seen."""

    phase: Phase
    engine_bytes: int | None
    used_bytes: int | None
    host_bytes: int | None
    at: float
    n_samples: int
    seconds: float


@dataclass(frozen=True, slots=True)
class MemoryRecord:
    """What one run used: the baseline before launch, peaks per phase, and a thinned series for charts.

    `baseline_used_bytes` is what others (desktop, driver) held before the launch. `lost` counts readings
    that failed.
    """

    device: DeviceInfo
    baseline_used_bytes: int | None
    peaks: tuple[PhasePeak, ...]
    series: tuple[Sample, ...]
    interval_s: float
    lost: int = 0

    def peak(self, phase: Phase) -> PhasePeak | None:
        """The peak of `phase`, None when no sample fell in it."""
        return next((p for p in self.peaks if p.phase == phase), None)

    @property
    def highest(self) -> PhasePeak | None:
        """The phase with the highest engine memory."""
        known = [p for p in self.peaks if p.engine_bytes is not None and p.phase != "before"]
        return max(known, key=lambda p: p.engine_bytes or 0, default=None)
