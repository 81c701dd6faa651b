"""Where the time of a slow decode went, by what the readings of the run show."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from kvtui.gpu.samples import Conditions
from kvtui.procedure.findings.memory import HARMLESS, SPILL_TRAFFIC

Place = Literal["clocks", "bus", "host", "gpu", "unknown"]

_IDLE_GPU = 50
"""Percent of the time below which the GPU waited for something else."""
_HELD = 0.5
"""Share of the readings with clocks held down that explains a speed."""
_WORDS: dict[Place, str] = {
    "clocks": "the GPU's clocks were held down",
    "bus": "data came over the bus for every token: weights or KV lie in host memory",
    "host": "the GPU waited for the host, which computes a part of every token or is busy with something else",
    "gpu": "the GPU was at work all the time: attention over this depth is what it costs here",
    "unknown": "no reading shows where the time went",
}


@dataclass(frozen=True, slots=True)
class Where:
    """The place, in words, and the readings that say so."""

    place: Place
    words: str
    evidence: tuple[str, ...]


def where_time_went(decode: Conditions | None) -> Where:
    """What held decode up, from the conditions of that phase; what was not read proves nothing."""
    place = "unknown" if decode is None else _place(decode)
    return Where(place, _WORDS[place], () if decode is None else _evidence(decode))


def _place(decode: Conditions) -> Place:
    held = [share for reason, share in decode.throttled or () if reason not in HARMLESS]
    if max(held, default=0.0) >= _HELD:
        return "clocks"
    if decode.pcie_rx is not None and decode.pcie_rx >= SPILL_TRAFFIC:
        return "bus"
    if decode.gpu_util is None:
        return "unknown"
    return "host" if decode.gpu_util < _IDLE_GPU else "gpu"


def _evidence(decode: Conditions) -> tuple[str, ...]:
    told = []
    if decode.gpu_util is not None:
        told.append(f"GPU busy {decode.gpu_util} % of the time in decode")
    if decode.pcie_rx is not None:
        told.append(f"{decode.pcie_rx / 1e6:,.0f} MB/s to the GPU in decode")
    if decode.others_cpu is not None:
        told.append(f"other programs kept {decode.others_cpu:.1f} cores busy")
    told += [f"{reason} {share:.0%} of the time" for reason, share in decode.throttled or ()]
    return tuple(told)
