"""Does what an engine keeps after each request grow and grow?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kvtui.core.units import MIB
from kvtui.gpu.samples import Level

LEAST_REQUESTS = 5
LEAST_STEP = 4 * MIB
LEAST_GROWTH = 64 * MIB
LEAST_FIT = 0.8
"""How much of the levels' spread the line must explain: one jump between flat parts explains less."""


@dataclass(frozen=True, slots=True)
class Ratchet:
    """Memory that grows by `slope` bytes per request over `n` requests, `growth` in all. `fit` is 0 to 1."""

    slope: float
    growth: int
    n: int
    fit: float


def ratchet(levels: Sequence[Level]) -> Ratchet | None:
    """Growth over requests that had no reason to take more, None where there is none.

    A prompt that is longer than every one before may allocate; what it adds is left out. Over the rest goes a line
    by least squares. Levels by different bases cannot be compared: those of the last one count.
    """
    if not levels:
        return None
    same = [level for level in levels if level.basis == levels[-1].basis]
    values = _repeated(same)
    if len(values) < LEAST_REQUESTS:
        return None
    slope, fit = line(values)
    growth = values[-1] - values[0]
    if slope < LEAST_STEP or growth < LEAST_GROWTH or fit < LEAST_FIT:
        return None
    return Ratchet(slope, growth, len(values), fit)


def line(values: Sequence[float]) -> tuple[float, float]:
    """Slope per step of the least-squares line through `values` (two or more), and the share of the spread that it
    explains (1.0 where there is none to explain)."""
    n = len(values)
    middle, mean = (n - 1) / 2, sum(values) / n
    across = sum((i - middle) ** 2 for i in range(n))
    both = sum((i - middle) * (value - mean) for i, value in enumerate(values))
    spread = sum((value - mean) ** 2 for value in values)
    slope = both / across
    return slope, 1.0 if not spread else slope * both / spread


def _repeated(levels: Sequence[Level]) -> list[int]:
    """Levels with every step taken out that came with the longest prompt so far; such a request tells nothing else."""
    out = [levels[0].engine_bytes]
    longest, allowed, before = levels[0].prompt_tokens, 0, levels[0].engine_bytes
    for level in levels[1:]:
        if level.prompt_tokens > longest:
            longest = level.prompt_tokens
            allowed += level.engine_bytes - before
        else:
            out.append(level.engine_bytes - allowed)
        before = level.engine_bytes
    return out
