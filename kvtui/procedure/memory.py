"""Where the memory of one run went: weights, KV, compute, the engine's rest, others, free."""

from __future__ import annotations

from dataclasses import dataclass

from kvtui.core.units import MIB
from kvtui.gpu.samples import DeviceInfo, Sample
from kvtui.logs.facts import BufferFacts, EngineFacts
from kvtui.procedure.checks import on_host
from kvtui.session.state import RunRecord, SessionState


@dataclass(frozen=True, slots=True)
class Breakdown:
    """Bytes, or None where neither the log nor a sample tells. `proven` is False while weights and KV are forecasts.

    `other` is what the engine holds beyond weights, KV and compute (runtime, libraries, graphs); `others` is what
    other processes hold.
    """

    total: int
    weights: int | None
    kv: int | None
    compute: int | None
    other: int | None
    others: int | None
    free: int | None
    engine: int | None
    proven: bool


def log_bytes(facts: EngineFacts, device: DeviceInfo) -> tuple[int | None, int | None, int | None]:
    """Weights, KV (recurrent state included) and compute buffers in bytes on `device`, as the log proves them."""

    def total(buffers: tuple[BufferFacts, ...]) -> int | None:
        here = [b.mib for b in buffers if device.kind == "host" or not on_host(b.device)]
        return round(sum(here) * MIB) if here else None

    contexts = facts.contexts
    kv = total(tuple(b for c in contexts for b in (*c.kv_buffers, *c.rs_buffers)))
    compute = total(tuple(b for c in contexts for b in (*c.compute_buffers, *c.output_buffers)))
    return total(facts.model_buffers), kv, compute


def breakdown(state: SessionState, run: RunRecord | None, sample: Sample | None = None) -> Breakdown:
    """The memory of `run`: live with `sample`, else at its highest recorded peak."""
    device = state.started.device
    weights = kv = compute = engine = used = None
    proven = False
    if run is not None:
        weights, kv, compute = log_bytes(run.facts, device)
        proven = weights is not None and kv is not None
        if not proven and run.forecast is not None:
            weights, kv = weights or run.forecast.weights_bytes, kv or run.forecast.kv_bytes
        if sample is None and run.memory is not None and run.memory.highest is not None:
            engine, used = run.memory.highest.engine_bytes, run.memory.highest.used_bytes
    if sample is not None:
        engine, used = sample.engine_bytes, sample.used_bytes
    known = sum(part for part in (weights, kv, compute) if part is not None)
    return Breakdown(
        total=device.total_bytes,
        weights=weights,
        kv=kv,
        compute=compute,
        other=None if engine is None else max(0, engine - known),
        others=None if used is None or engine is None else max(0, used - engine),
        free=None if used is None else max(0, device.total_bytes - used),
        engine=engine,
        proven=proven,
    )
