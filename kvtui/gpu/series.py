"""What a run's samples come to: exact peaks per phase, and a series thin enough to store and to draw."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from kvtui.gpu.conditions import ConditionSums
from kvtui.gpu.samples import PHASES, Conditions, Phase, PhasePeak, Sample

MAX_POINTS = 400
_MEASURES = ("engine_bytes", "used_bytes", "host_bytes", "gtt_bytes", "others_bytes")
_ROOM = MAX_POINTS - len(PHASES) * len(_MEASURES)


@dataclass
class _PhaseSums:
    n_samples: int = 0
    seconds: float = 0.0
    highest: dict[str, Sample] = field(default_factory=dict)
    per_device: list[int | None] = field(default_factory=list)
    conditions: ConditionSums = field(default_factory=ConditionSums)

    def add(self, sample: Sample) -> None:
        self.n_samples += 1
        self.conditions.add(sample)
        self._add_devices(sample.per_device)
        for measure in _MEASURES:
            value = getattr(sample, measure)
            best = self.highest.get(measure)
            if value is not None and (best is None or value > getattr(best, measure)):
                self.highest[measure] = sample

    def _add_devices(self, held: tuple[int | None, ...]) -> None:
        if len(self.per_device) < len(held):
            self.per_device += [None] * (len(held) - len(self.per_device))
        for n, value in enumerate(held):
            before = self.per_device[n]
            if value is not None and (before is None or value > before):
                self.per_device[n] = value

    def value(self, measure: str) -> int | None:
        best = self.highest.get(measure)
        return None if best is None else getattr(best, measure)


class Series:
    """Collects samples in bounded memory.

    A point is the highest of `stride` neighbouring samples; the stride doubles whenever there are too many points,
    so that they stay evenly spread over the whole time.
    """

    def __init__(self) -> None:
        self._phases: dict[Phase, _PhaseSums] = {}
        self._points: list[Sample] = []
        self._bucket: list[Sample] = []
        self._stride = 1

    def add(self, sample: Sample) -> None:
        """Count `sample` for its phase."""
        self._phases.setdefault(sample.phase, _PhaseSums()).add(sample)
        self._bucket.append(sample)
        if len(self._bucket) < self._stride:
            return
        self._points.append(max(self._bucket, key=_height))
        self._bucket = []
        if len(self._points) >= 2 * _ROOM:
            self._points = _halved(self._points)
            self._stride *= 2

    def spent(self, phase: Phase, seconds: float) -> None:
        """Count time for `phase`."""
        self._phases.setdefault(phase, _PhaseSums()).seconds += seconds

    def peaks(self) -> tuple[PhasePeak, ...]:
        """One per phase that had a sample. `at` is when `engine_bytes` (else `used_bytes`) peaked."""
        return tuple(_peak(phase, self._phases[phase]) for phase in PHASES if self._samples_of(phase))

    def conditions(self) -> tuple[Conditions, ...]:
        """One per phase in which vitals or utilisation were read."""
        known = (self._phases[p].conditions.result(p) for p in PHASES if p in self._phases)
        return tuple(c for c in known if c is not None)

    def points(self) -> tuple[Sample, ...]:
        """At most MAX_POINTS samples in order of time, without vitals; every phase's peaks are among them."""
        points = [*self._points, *self._bucket[-1:]]
        points = points if len(points) <= _ROOM else _halved(points)
        peaks = (sample for sums in self._phases.values() for sample in sums.highest.values())
        bare = {
            sample if sample.vitals is None else replace(sample, vitals=None) for sample in (*points, *peaks)
        }
        return tuple(sorted(bare, key=lambda sample: sample.t))

    def _samples_of(self, phase: Phase) -> int:
        return self._phases[phase].n_samples if phase in self._phases else 0


def _peak(phase: Phase, sums: _PhaseSums) -> PhasePeak:
    highest = sums.highest.get("engine_bytes") or sums.highest.get("used_bytes")
    return PhasePeak(
        phase=phase,
        engine_bytes=sums.value("engine_bytes"),
        used_bytes=sums.value("used_bytes"),
        host_bytes=sums.value("host_bytes"),
        at=0.0 if highest is None else highest.t,
        n_samples=sums.n_samples,
        seconds=sums.seconds,
        gtt_bytes=sums.value("gtt_bytes"),
        others_bytes=sums.value("others_bytes"),
        others_at=None if (others := sums.highest.get("others_bytes")) is None else others.t,
        per_device=tuple(sums.per_device),
    )


def _halved(points: list[Sample]) -> list[Sample]:
    """The higher one of every two neighbours."""
    pairs = zip(points[::2], points[1::2], strict=False)
    kept = [max(pair, key=_height) for pair in pairs]
    return kept if len(points) % 2 == 0 else [*kept, points[-1]]


def _height(sample: Sample) -> tuple[int, int]:
    return sample.engine_bytes or 0, sample.used_bytes or 0
