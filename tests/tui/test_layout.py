from __future__ import annotations

import pytest

from kvtui.tui.layout import MIN_CELLS, MIN_ROWS, plan


@pytest.mark.parametrize("cells", [36, 40, 59, 60, 69, 70, 80, 89, 90, 100, 139, 140, 160, 200, 300])
def test_the_panels_fill_the_screen_exactly(cells: int) -> None:
    for rows in range(MIN_ROWS, 101):
        for wanted in (10, 16, 22):
            p = plan(cells, rows, wanted)
            assert p is not None
            assert p.main + p.side == cells
            in_main = 0 if p.side else p.log
            assert 2 + p.top + p.memory + p.next + in_main == rows
            assert not p.side or p.runs + p.log == rows - 2
            assert p.top >= 4
            assert p.next >= 4
            assert p.main - p.steps >= 36


@pytest.mark.parametrize(("cells", "rows"), [(MIN_CELLS - 1, 40), (80, MIN_ROWS - 1), (1, 1), (0, 0)])
def test_a_terminal_that_is_too_small_has_no_plan(cells: int, rows: int) -> None:
    assert plan(cells, rows) is None


def test_80_by_24_has_everything_of_the_sketch() -> None:
    p = plan(80, 24)
    assert p is not None
    assert (p.steps, p.top, p.memory, p.next) == (25, 10, 7, 5)


def test_40_cells_keep_the_current_step_and_next() -> None:
    p = plan(40, 24)
    assert p is not None
    assert (p.steps, p.memory, p.log, p.side) == (0, 0, 0, 0)
    assert p.top + p.next == 22


def test_a_wide_terminal_has_log_and_runs_beside() -> None:
    p = plan(200, 60)
    assert p is not None
    assert p.side >= 64
    assert p.log > 20
    assert p.runs >= 6
