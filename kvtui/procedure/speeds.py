"""Decode speed against depth: what earlier runs let expect, and whether a run fell off a cliff."""

from __future__ import annotations

from collections.abc import Iterable

from kvtui.procedure.variables import bits_of
from kvtui.session.state import RunRecord, SessionState

CLIFF = 0.5
"""A run below this share of the decode speed to be expected at its depth has fallen off a cliff."""


def deepest_decode(run: RunRecord) -> tuple[int, float] | None:
    """Depth (tokens) and decode speed (tokens per second) of the deepest measurement of `run`."""
    known = [(s.depth, s.decode_tps) for s in run.speeds if s.decode_tps]
    return max(known, default=None)


def expected_decode(runs: Iterable[RunRecord], depth: int) -> float | None:
    """Decode speed to be expected at `depth`, from the speeds of `runs`.

    The time of one token grows in proportion to the tokens attended to, so it is a straight line over depth: through
    the nearest two measured depths, or flat from a single one that is no shallower than half of `depth`. None
    where that is too little to tell.
    """
    points = sorted({s.depth: 1 / s.decode_tps for r in runs for s in r.speeds if s.decode_tps}.items())
    if not points:
        return None
    if len(points) == 1:
        known, seconds = points[0]
        return 1 / seconds if known * 2 >= depth else None
    below = [p for p in points if p[0] <= depth]
    a, b = (points[0], points[1]) if len(below) < 2 else (below[-2], below[-1])
    above = next((p for p in points if p[0] > depth), None)
    if above is not None and below:
        a, b = below[-1], above
    slope = max(0.0, (b[1] - a[1]) / (b[0] - a[0]))
    return 1 / max(a[1] + slope * (depth - a[0]), a[1] / 2)


def references(state: SessionState, run: RunRecord) -> list[RunRecord]:
    """Runs whose speed `run` is held against: good ones before it, on as many layers, with types that every build
    has fast kernels for (equal pairs)."""
    return [
        r
        for r in state.runs
        if r.counts
        and r.number < run.number
        and r.config.n_gpu_layers == run.config.n_gpu_layers
        and r.config.n_parallel == run.config.n_parallel
        and bits_of(r.config.type_k) == bits_of(r.config.type_v)
    ]


def share_of_expected(state: SessionState, run: RunRecord) -> float | None:
    """Decode speed of `run` as a share of what earlier runs let expect at its depth; None where nothing does."""
    mine = deepest_decode(run)
    if mine is None:
        return None
    expected = expected_decode(references(state, run), mine[0])
    return None if expected is None else mine[1] / expected


def is_slow(state: SessionState, run: RunRecord) -> bool:
    """True when `run` decodes at less than half of what is to be expected at its depth."""
    share = share_of_expected(state, run)
    return share is not None and share < CLIFF
