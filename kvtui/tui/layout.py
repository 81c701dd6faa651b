"""How the main screen divides a terminal of a given size. Plain arithmetic, no widget."""

from __future__ import annotations

from dataclasses import dataclass

MIN_CELLS, MIN_ROWS = 36, 10
WIDE = 140
STEPS_CELLS = 25


@dataclass(frozen=True, slots=True)
class Plan:
    """Rows and cells of each panel, titles included; 0 means: not on this screen (one key away).

    `main` and `side` are the two columns, `steps` the checklist inside the main one.
    """

    main: int
    side: int
    steps: int
    top: int
    memory: int
    next: int
    log: int
    runs: int

    @property
    def inner(self) -> int:
        """Cells of the main column that are drawn on; a blank one stands before the edge of the side column."""
        return self.main - 1 if self.side else self.main


def plan(cells: int, rows: int, wanted_top: int = 14) -> Plan | None:
    """The division, None when the terminal is too small for anything but saying so.

    Header and footer take a line each. `wanted_top` is how many lines the current step would fill.
    """
    if cells < MIN_CELLS or rows < MIN_ROWS:
        return None
    side = 0 if cells < WIDE else min(cells - 96, max(64, cells * 9 // 20))
    main = cells - side
    steps = STEPS_CELLS if main >= 70 else 0
    if main >= 90:
        steps = 30
    left = rows - 2
    if main < 60:
        following = 4 if left < 12 else 5 if left < 18 else 8
        return Plan(main, 0, 0, left - following, 0, following, 0, 0)
    following = 5 if left >= 20 else 4
    memory = 7 if left >= 22 else 3 if left >= 17 else 0
    top = left - following - memory
    spare = max(0, top - 10)
    grow = min(spare, max(0, wanted_top - 10))
    top, spare = 10 + grow if top >= 10 else top, spare - grow
    grow = min(spare, 5)
    following, spare = following + grow, spare - grow
    grow = min(spare, 12) if memory == 7 else 0
    memory, spare = memory + grow, spare - grow
    log = 0
    if not side and spare >= 5:
        log, spare = spare, 0
    top += spare
    runs = 0
    if side:
        runs = max(6, left // 3)
        log = left - runs
    return Plan(main, side, steps, top, memory, following, log, runs)
