"""What makes a measured speed mean less than it seems to: clocks held down, other programs at work."""

from __future__ import annotations

from dataclasses import replace

from kvtui.gpu.samples import Conditions
from kvtui.probes.results import SpeedResult

THROTTLED_SHARE = 0.1
"""Share of the readings from which clocks held down count."""
BUSY_CORES, BUSY_SHARE = 0.5, 0.1
"""Cores that others keep busy, absolute and as a share of the machine's, from which the machine is busy."""


def throttled(conditions: Conditions | None) -> tuple[tuple[str, float], ...]:
    """What held the clocks down in a share of the time that counts."""
    reasons = conditions.throttled if conditions is not None else None
    return tuple((word, share) for word, share in reasons or () if share >= THROTTLED_SHARE)


def busy_cores(conditions: Conditions | None, cores: int) -> float | None:
    """How many of `cores` others kept busy; None where they were not, or nothing was read."""
    return busy(conditions.others_cpu if conditions is not None else None, cores)


def busy(others: float | None, cores: int) -> float | None:
    """`others`, the cores of `cores` that other programs keep busy, where that disturbs a measurement; else None."""
    return others if others is not None and others >= max(BUSY_CORES, BUSY_SHARE * cores) else None


def marked(speed: SpeedResult, conditions: Conditions | None, cores: int) -> SpeedResult:
    """`speed` with the conditions that it was measured under, those that count in its note too."""
    if conditions is None:
        return speed
    notes = [speed.note] if speed.note else []
    held = throttled(conditions)
    if held:
        notes.append("throttled: " + ", ".join(f"{word} {share:.0%} of the time" for word, share in held))
    others = busy_cores(conditions, cores)
    if others is not None:
        notes.append(f"others kept {others:.1f} of {cores} cores busy")
    return replace(
        speed,
        gpu_util=conditions.gpu_util,
        note="; ".join(notes),
        throttled=held,
        others_cpu=conditions.others_cpu,
    )
