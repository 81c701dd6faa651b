"""Figures of one run with the spread that its own repeats show, and whether two of them really differ."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from kvtui.probes.results import SpeedResult

State = Literal["same", "within", "differs", "single", "only-a", "only-b"]
"""`same`: equal figures. `within`: no further apart than their spreads. `differs`: further apart. `single`: neither
was repeated, so nothing says how far apart chance puts them. `only-a`, `only-b`: measured on one side alone."""

_HALF_WIDTHS = {2: 6.353, 3: 1.304, 4: 0.717, 5: 0.507, 6: 0.399, 7: 0.333, 8: 0.288, 9: 0.255, 10: 0.230}
"""Half of the 95 % confidence interval of a mean, in ranges of n repeats (Lord 1947; Dean and Dixon 1951): two repeats
that happen to agree say little, five say much."""


@dataclass(frozen=True, slots=True)
class Reading:
    """A figure: `value` is the median, `low` and `high` the extremes of `n` measurements."""

    value: float
    low: float
    high: float
    n: int

    @property
    def spread(self) -> float | None:
        """How far from `value` the true figure may lie, at 95 % confidence; None when it was measured once."""
        return _HALF_WIDTHS[min(self.n, 10)] * (self.high - self.low) if self.n > 1 else None


@dataclass(frozen=True, slots=True)
class Measure:
    """One figure on both sides. `depth` is tokens, None where it does not apply; `unit` is `t/s`, `s` or `B`.

    `exact` figures are proven by a log: any difference is one.
    """

    name: str
    unit: str
    depth: int | None
    a: Reading | None
    b: Reading | None
    exact: bool = False

    @property
    def state(self) -> State:
        """Whether the two figures differ, by their own spreads: |a - b| against the sum of both."""
        if self.a is None or self.b is None:
            return "only-b" if self.a is None else "only-a"
        apart = abs(self.a.value - self.b.value)
        if apart == 0:
            return "same"
        if self.exact:
            return "differs"
        spreads = [r.spread for r in (self.a, self.b) if r.spread is not None]
        if not spreads:
            return "single"
        return "within" if apart <= sum(spreads) else "differs"

    @property
    def change(self) -> float | None:
        """How far b is from a, as a share of a; None where one is missing or a is zero."""
        if self.a is None or self.b is None or not self.a.value:
            return None
        return self.b.value / self.a.value - 1


def one(value: float | None) -> Reading | None:
    """A figure that was measured once."""
    return None if value is None or not math.isfinite(value) else Reading(value, value, value, 1)


def _reading(value: float | None, repeats: Iterable[float | None]) -> Reading | None:
    known = [r for r in repeats if r is not None and math.isfinite(r)]
    if value is None or not math.isfinite(value):
        return None
    return Reading(value, min(known), max(known), len(known)) if known else one(value)


def speed_readings(speed: SpeedResult) -> dict[tuple[str, str], Reading | None]:
    """The figures of one depth by name and unit. Repeats that took their prompt from the cache say nothing about
    the prompt."""
    whole = [t for t in speed.repeats if t.cached_tokens <= max(16, speed.depth // 100)]
    return {
        ("decode", "t/s"): _reading(speed.decode_tps, (t.decode_tps for t in speed.repeats)),
        ("prompt", "t/s"): _reading(speed.prompt_tps, (t.prompt_tps for t in whole)),
        ("first token", "s"): _reading(speed.first_token_s, (t.first_token_s for t in whole)),
    }
