"""Sums over vitals: under what conditions a phase or one measurement went."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from kvtui.gpu.samples import Conditions, Phase, Sample, Vitals


class _Mean:
    def __init__(self) -> None:
        self.n = 0
        self.total = 0.0

    def add(self, value: float | None) -> None:
        if value is not None:
            self.n += 1
            self.total += value

    @property
    def value(self) -> float | None:
        return self.total / self.n if self.n else None


class ConditionSums:
    """Takes samples one by one; vitals that several samples carry count once."""

    def __init__(self) -> None:
        self._last: Vitals | None = None
        self._n = 0
        self._told = 0
        self._reasons: Counter[str] = Counter()
        self._clock: int | None = None
        self._power, self._rx, self._tx, self._util, self._others = (_Mean() for _ in range(5))

    def add(self, sample: Sample) -> None:
        """Count `sample`."""
        self._util.add(sample.gpu_util)
        vitals = sample.vitals
        if vitals is None or vitals is self._last:
            return
        self._last = vitals
        self._n += 1
        if vitals.throttle is not None:
            self._told += 1
            self._reasons.update(vitals.throttle)
        if vitals.clock_mhz is not None:
            self._clock = vitals.clock_mhz if self._clock is None else min(self._clock, vitals.clock_mhz)
        self._power.add(vitals.power_w)
        self._rx.add(vitals.pcie_rx)
        self._tx.add(vitals.pcie_tx)
        self._others.add(vitals.others_cpu)

    def result(self, phase: Phase | None = None) -> Conditions | None:
        """What they come to, None without anything to tell."""
        if not self._n and self._util.value is None:
            return None
        reasons = (
            tuple((word, n / self._told) for word, n in self._reasons.most_common()) if self._told else None
        )
        return Conditions(
            n_readings=self._n,
            throttled=reasons,
            clock_mhz_lowest=self._clock,
            power_w=_rounded(self._power.value),
            pcie_rx=_whole(self._rx.value),
            pcie_tx=_whole(self._tx.value),
            gpu_util=_whole(self._util.value),
            others_cpu=_rounded(self._others.value),
            phase=phase,
        )


class Window:
    """The conditions between its making and `close`. Made by `Sampler.window`."""

    def __init__(
        self, forget: Callable[[Window], None], phases: tuple[Phase, ...] = ("prefill", "decode")
    ) -> None:
        self._forget = forget
        self._phases = phases
        self._sums = ConditionSums()

    def add(self, sample: Sample) -> None:
        """Count `sample` if it is of a phase in which the engine works."""
        if sample.phase in self._phases:
            self._sums.add(sample)

    def close(self) -> Conditions | None:
        """The conditions up to now; nothing is added after."""
        self._forget(self)
        return self._sums.result()


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 2)
