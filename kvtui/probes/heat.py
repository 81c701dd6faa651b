"""Recall as a map: where in the context facts come back, at every depth that was measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kvtui.probes.results import RecallResult


@dataclass(frozen=True, slots=True)
class HeatMap:
    """`cells[i][j]`: facts found and asked at `depths[i]` (tokens) and `positions[j]` (0.0 start to 1.0 end of the
    depth), None where nothing was asked. Both axes ascend."""

    depths: tuple[int, ...]
    positions: tuple[float, ...]
    cells: tuple[tuple[tuple[int, int] | None, ...], ...]


def heat_map(results: Sequence[RecallResult]) -> HeatMap:
    """All of `results` in one map; those of the same depth are added up."""
    sums: dict[tuple[int, float], tuple[int, int]] = {}
    for result in results:
        for needle in result.needles:
            found, asked = sums.get((result.depth, needle.position), (0, 0))
            sums[result.depth, needle.position] = (found + needle.found, asked + 1)
    depths = tuple(sorted({depth for depth, _ in sums}))
    positions = tuple(sorted({position for _, position in sums}))
    cells = tuple(tuple(sums.get((depth, position)) for position in positions) for depth in depths)
    return HeatMap(depths, positions, cells)
