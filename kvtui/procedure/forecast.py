"""The memory of the next run from what earlier runs measured, and afterwards by how much it was wrong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kvtui.core.config import RunConfig
from kvtui.core.units import MIB
from kvtui.procedure.memory import log_bytes
from kvtui.session.state import RunRecord, SessionState

_OUT_OF_MEMORY = ("kv-oom", "compute-oom", "prefill-oom")
Point = tuple[int, int]
"""A context in tokens, and bytes measured at it."""


@dataclass(frozen=True, slots=True)
class ForecastError:
    """One forecast against what was measured. Bytes; `share` is the error as a share of what was measured."""

    what: str
    forecast: int
    measured: int

    @property
    def error(self) -> int:
        """Measured minus forecast: positive when more was needed."""
        return self.measured - self.forecast

    @property
    def share(self) -> float:
        """0.02: two percent more than forecast."""
        return self.error / self.measured if self.measured else 0.0


def forecast_error(run: RunRecord) -> tuple[ForecastError, ...]:
    """The forecasts of `run` held against its log (KV) and its samples (the engine at its highest).

    Empty for what was not forecast or not measured. Only a run that ended well shows its full memory.
    """
    if run.forecast is None or run.outcome != "ok":
        return ()
    kv = run.facts.main.kv_mib if run.facts.main else None
    highest = run.memory.highest if run.memory else None
    pairs = (
        ("KV", run.forecast.kv_bytes, None if kv is None else round(kv * MIB)),
        ("engine", run.forecast.total_bytes, highest.engine_bytes if highest else None),
    )
    return tuple(
        ForecastError(what, expected, measured)
        for what, expected, measured in pairs
        if expected is not None and measured is not None
    )


def runtime_overhead(state: SessionState, config: RunConfig, compute_bytes: int | None = None) -> int | None:
    """Bytes beyond weights and KV (runtime, compute buffers, graphs) to expect of `config`; None before any run.

    Runs with the same micro-batch give a line over the context; without one the nearest micro-batch serves, its
    transient part in proportion. Where the engine itself tells its compute buffers (`compute_bytes`), only what is
    left is taken from the runs. A run that ran out of memory says how much it must have been at least.
    """
    good = [r for r in state.runs if r.outcome == "ok"]
    runs = [r for r in good if _same_place(r.config, config)] or good
    runs = [r for r in runs if _went_deep(r)] or runs
    same = [r for r in runs if r.config.n_ubatch == config.n_ubatch]
    expected = None if compute_bytes is None else _beside_compute(state, same or runs, compute_bytes)
    if expected is None:
        expected = _at(_points(state, same), config.n_ctx)
    if expected is None:
        expected = _from_other_micro_batch(state, runs, config)
    bound = _proven_by_failure(state, config)
    return bound if expected is None else max(expected, bound or 0)


def measured_overhead(state: SessionState, run: RunRecord) -> int | None:
    """What `run` held at its highest beyond weights and KV, in bytes."""
    weights, kv, _ = log_bytes(run.facts, state.started.device)
    highest = run.memory.highest if run.memory else None
    if weights is None or kv is None or highest is None or highest.engine_bytes is None:
        return None
    # Mapped weights that were never touched are not resident, so the rest can come out below zero.
    return max(0, highest.engine_bytes - weights - kv)


def transient_bytes(state: SessionState, run: RunRecord) -> int | None:
    """What of `run` follows the micro-batch: compute buffers as the log proves them, and growth in prefill."""
    _, _, compute = log_bytes(run.facts, state.started.device)
    if compute is None:
        return None
    warm = run.memory.peak("warm-up") if run.memory else None
    prefill = run.memory.peak("prefill") if run.memory else None
    if warm is None or prefill is None or warm.engine_bytes is None or prefill.engine_bytes is None:
        return compute
    return compute + max(0, prefill.engine_bytes - warm.engine_bytes)


def _beside_compute(state: SessionState, runs: Sequence[RunRecord], compute_bytes: int) -> int | None:
    """The told compute buffers, and beside them what the latest run held beyond weights, KV and its own."""
    for run in reversed(runs):
        whole, (_, _, compute) = measured_overhead(state, run), log_bytes(run.facts, state.started.device)
        if whole is not None and compute is not None:
            return compute_bytes + max(0, whole - compute)
    return None


def _same_place(a: RunConfig, b: RunConfig) -> bool:
    return a.n_gpu_layers == b.n_gpu_layers and a.n_cpu_moe == b.n_cpu_moe


def _went_deep(run: RunRecord) -> bool:
    """True when a prompt filled at least half of the context: only then is the transient memory all there."""
    return any(s.depth * 2 >= run.config.n_ctx for s in run.speeds)


def _points(state: SessionState, runs: Sequence[RunRecord]) -> list[Point]:
    """The latest measurement at each context, ascending."""
    found: dict[int, int] = {}
    for run in runs:
        measured = measured_overhead(state, run)
        if measured is not None:
            found[run.config.n_ctx] = measured
    return sorted(found.items())


def _at(points: Sequence[Point], n_ctx: int) -> int | None:
    """The line through the two points nearest to `n_ctx`; never below the nearest for a larger context."""
    if len(points) < 2:
        return points[0][1] if points else None
    above = next((i for i, p in enumerate(points) if p[0] >= n_ctx), len(points) - 1)
    (x0, y0), (x1, y1) = points[max(above, 1) - 1], points[max(above, 1)]
    slope = max(0.0, (y1 - y0) / (x1 - x0))
    return max(0, round(y1 + slope * (n_ctx - x1)))


def _from_other_micro_batch(state: SessionState, runs: Sequence[RunRecord], config: RunConfig) -> int | None:
    if not runs:
        return None
    nearest = min(runs, key=lambda r: (abs(r.config.n_ubatch - config.n_ubatch), -r.number))
    known = [r for r in runs if r.config.n_ubatch == nearest.config.n_ubatch]
    whole = _at(_points(state, known), config.n_ctx)
    transient = _at(
        sorted({r.config.n_ctx: t for r in known if (t := transient_bytes(state, r)) is not None}.items()),
        config.n_ctx,
    )
    if whole is None or transient is None:
        return whole
    return max(0, whole + round(transient * (config.n_ubatch / nearest.config.n_ubatch - 1)))


def _proven_by_failure(state: SessionState, config: RunConfig) -> int | None:
    """The least that a run beyond weights and KV must have wanted when it ran out of memory: what was left for it."""
    device = state.started.device
    least = [
        device.total_bytes
        - (r.memory.baseline_used_bytes or 0)
        - (r.forecast.weights_bytes or 0)
        - r.forecast.kv_bytes
        for r in state.runs
        if device.kind != "host"
        and r.failure in _OUT_OF_MEMORY
        and r.memory is not None
        and r.forecast is not None
        and r.forecast.kv_bytes is not None
        and r.config.n_ubatch == config.n_ubatch
        and r.config.n_parallel == config.n_parallel
        and r.config.n_ctx <= config.n_ctx
        and _same_place(r.config, config)
    ]
    return max((b for b in least if b > 0), default=None)
