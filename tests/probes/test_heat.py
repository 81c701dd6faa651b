"""The map of recall: every cell where it belongs, and nothing where nothing was asked."""

from __future__ import annotations

from kvtui.probes.heat import heat_map
from kvtui.probes.results import NeedleResult, RecallResult


def recall(depth: int, *found: tuple[float, bool]) -> RecallResult:
    return RecallResult(depth, tuple(NeedleResult(p, 0, "k", "1", "", ok) for p, ok in found), 1.0)


def test_depths_and_positions_ascend_and_repeats_add_up() -> None:
    made = heat_map(
        [
            recall(4000, (0.98, True), (0.02, False)),
            recall(1000, (0.02, True), (0.5, True)),
            recall(4000, (0.02, True)),
        ]
    )
    assert made.depths == (1000, 4000)
    assert made.positions == (0.02, 0.5, 0.98)
    assert made.cells == (((1, 1), (1, 1), None), ((1, 2), None, (1, 1)))


def test_no_recall_is_an_empty_map() -> None:
    assert heat_map([]).cells == ()
