"""The values a memory reading is made of. Bytes throughout; missing is None, never zero."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Phase = Literal["before", "load", "warm-up", "prefill", "decode", "idle"]
PHASES: tuple[Phase, ...] = ("before", "load", "warm-up", "prefill", "decode", "idle")

DEFAULT_HZ = 10.0
MAX_HZ = 50.0
"""How often memory is read, per second."""

Basis = Literal["process", "growth", "rss"]


@dataclass(frozen=True, slots=True)
class Member:
    """One GPU of several that make up one memory; fields as in `DeviceInfo`."""

    index: int
    name: str
    total_bytes: int
    uuid: str = ""
    mig: int | None = None
    compute_capability: str | None = None


@dataclass(frozen=True, slots=True)
class DeviceInfo:
    """One memory that a budget can be made of.

    `kind` `host` means: no GPU here, host memory of the engine's process stands in for VRAM. `index` is the
    driver's, `reserved_bytes` what it keeps for itself. `uuid` names the same GPU (or MIG instance, then `mig` is its
    number on the GPU) after a reload. `members` are the single GPUs where the engine spreads over several;
    `total_bytes` is their sum then.
    """

    kind: Literal["nvml", "amd", "host"]
    index: int
    name: str
    total_bytes: int
    driver: str | None = None
    cuda: str | None = None
    compute_capability: str | None = None
    display_attached: bool | None = None
    note: str = ""
    rocm: str | None = None
    ecc: bool | None = None
    reserved_bytes: int | None = None
    uuid: str = ""
    mig: int | None = None
    members: tuple[Member, ...] = ()

    @property
    def each(self) -> tuple[Member, ...]:
        """The single devices, at least one."""
        return self.members or (self.as_member(),)

    def as_member(self) -> Member:
        """This device as one of several."""
        return Member(self.index, self.name, self.total_bytes, self.uuid, self.mig, self.compute_capability)


@dataclass(frozen=True, slots=True)
class Vitals:
    """What decides how fast the device works at a moment; read less often than memory.

    `pcie_rx` and `pcie_tx` are bytes per second to and from the device. `throttle` names what holds the clocks down
    (idleness and the operator's own settings left out), None where the driver does not tell. `others_cpu` is how
    many CPU cores processes other than the engine and kvtui keep busy.
    """

    power_w: float | None = None
    clock_mhz: int | None = None
    pcie_rx: int | None = None
    pcie_tx: int | None = None
    throttle: tuple[str, ...] | None = None
    others_cpu: float | None = None


@dataclass(frozen=True, slots=True)
class Sample:
    """Memory at one moment.

    `t` is seconds since the sampler started (monotonic). `engine_bytes` is what the engine holds on the
    device: per process where the driver tells (`basis` `process`), else the device's growth since before the
    launch (`growth`), else the process's resident host memory (`rss`). `used_bytes` is everything in use on
    the device, by whomever; `others_bytes` what is not the engine's, known only by process. `host_bytes` is the
    engine's resident host memory, a spill shows there, or in `gtt_bytes`: host memory that the engine (or else
    everybody since the launch) uses as if it were the GPU's. `per_device` is `engine_bytes` by GPU where there
    are several. `vitals` are the latest ones, and not stored with a series. `lost` says why nothing could be read;
    such a sample is shown and never recorded.
    """

    t: float
    phase: Phase
    engine_bytes: int | None
    used_bytes: int | None
    host_bytes: int | None
    basis: Basis | None
    gpu_util: int | None = None
    gtt_bytes: int | None = None
    others_bytes: int | None = None
    per_device: tuple[int | None, ...] = ()
    vitals: Vitals | None = None
    lost: str = ""


@dataclass(frozen=True, slots=True)
class PhasePeak:
    """The exact maximum of one phase's samples, with the time (seconds, as in `Sample.t`) it was seen.

    Each figure is the maximum of its own; `at` is when the engine's memory peaked, `others_at` when that of
    others did.
    """

    phase: Phase
    engine_bytes: int | None
    used_bytes: int | None
    host_bytes: int | None
    at: float
    n_samples: int
    seconds: float
    gtt_bytes: int | None = None
    others_bytes: int | None = None
    others_at: float | None = None
    per_device: tuple[int | None, ...] = ()


@dataclass(frozen=True, slots=True)
class Conditions:
    """Under what conditions something was measured: sums over the readings of a phase or of a measurement.

    `throttled` is what held the clocks down, each with the share (0 to 1) of `n_readings` in which it did; None
    where the driver does not tell. Rates are means, bytes per second; `others_cpu` is a mean in cores.
    """

    n_readings: int
    throttled: tuple[tuple[str, float], ...] | None = None
    clock_mhz_lowest: int | None = None
    power_w: float | None = None
    pcie_rx: int | None = None
    pcie_tx: int | None = None
    gpu_util: int | None = None
    others_cpu: float | None = None
    phase: Phase | None = None


@dataclass(frozen=True, slots=True)
class Level:
    """What the engine held right after a request of `prompt_tokens`."""

    t: float
    prompt_tokens: int
    engine_bytes: int
    basis: Basis


@dataclass(frozen=True, slots=True)
class Gap:
    """A time without readings: from `t`, for `seconds` (None: it was not over when the run was), and why."""

    t: float
    seconds: float | None
    why: str


@dataclass(frozen=True, slots=True)
class MemoryRecord:
    """What one run used: the baseline before launch, peaks per phase, and a thinned series for charts.

    `baseline_used_bytes` is what others (desktop, driver) held before the launch. `lost` counts readings
    that failed, `gaps` are the times in which the device was lost or its driver did not answer.
    `conditions` has one entry per phase, `levels` one per request.
    """

    device: DeviceInfo
    baseline_used_bytes: int | None
    peaks: tuple[PhasePeak, ...]
    series: tuple[Sample, ...]
    interval_s: float
    lost: int = 0
    conditions: tuple[Conditions, ...] = ()
    levels: tuple[Level, ...] = ()
    gaps: tuple[Gap, ...] = ()

    def peak(self, phase: Phase) -> PhasePeak | None:
        """The peak of `phase`, None when no sample fell in it."""
        return next((p for p in self.peaks if p.phase == phase), None)

    def during(self, phase: Phase) -> Conditions | None:
        """The conditions of `phase`, None when they were never read in it."""
        return next((c for c in self.conditions if c.phase == phase), None)

    @property
    def highest(self) -> PhasePeak | None:
        """The phase with the highest engine memory."""
        known = [p for p in self.peaks if p.engine_bytes is not None and p.phase != "before"]
        return max(known, key=lambda p: p.engine_bytes or 0, default=None)

    @property
    def basis(self) -> Basis | None:
        """What the engine's memory was told by, the best one that was ever there."""
        seen = {s.basis for s in self.series}
        bases: tuple[Basis, ...] = ("process", "growth", "rss")
        return next((b for b in bases if b in seen), None)

    @property
    def others_growth(self) -> tuple[int, PhasePeak] | None:
        """By how much others on the device grew since before the launch, at most, and in which phase."""
        base = self.baseline_used_bytes
        known = [p for p in self.peaks if p.others_bytes is not None and p.phase != "before"]
        if base is None or not known:
            return None
        top = max(known, key=lambda p: p.others_bytes or 0)
        return max(0, (top.others_bytes or 0) - base), top

    @property
    def gtt_growth(self) -> tuple[int, PhasePeak] | None:
        """The most host memory that was used as if it were the GPU's, and in which phase."""
        known = [p for p in self.peaks if p.gtt_bytes is not None and p.phase != "before"]
        top = max(known, key=lambda p: p.gtt_bytes or 0, default=None)
        return None if top is None else (top.gtt_bytes or 0, top)
