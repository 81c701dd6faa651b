"""The forecast of a run when the engine itself tells its compute buffers."""

from __future__ import annotations

from dataclasses import replace

from kvtui.core.units import MIB
from kvtui.engines.base import DeviceNeed, DryRun
from kvtui.model.geometry import geometry
from kvtui.procedure.forecast import measured_overhead
from kvtui.procedure.memory import log_bytes
from kvtui.procedure.oracle import Oracle
from tests.procedure.outcome import Card, header_of
from tests.procedure.simulator import Play

CARD = Card()
ORACLE = Oracle(header_of(CARD), geometry(header_of(CARD)))


def told(compute_mib: int) -> DryRun:
    return DryRun(
        "llama-fit-params", (DeviceNeed("CUDA0", 1, 2, compute_mib), DeviceNeed("Host", 3, 4, 5)), 1.0
    )


def test_told_compute_buffers_take_the_place_of_a_guess_from_other_runs() -> None:
    state = Play(CARD).run()
    run = next(r for r in reversed(state.runs) if r.outcome == "ok")
    whole, (_, _, compute) = measured_overhead(state, run), log_bytes(run.facts, state.started.device)
    assert whole is not None
    assert compute is not None
    wider = replace(run.config, n_ubatch=run.config.n_ubatch * 2)
    forecast = ORACLE.forecast(state, wider, told(3000))
    assert forecast.kv_bytes is not None
    assert forecast.weights_bytes is not None
    assert forecast.total_bytes == forecast.weights_bytes + forecast.kv_bytes + 3000 * MIB + whole - compute
    assert [d.device for d in forecast.dry_run] == ["CUDA0", "Host"]
    assert ORACLE.forecast(state, wider).dry_run == ()


def test_before_any_run_the_runtime_is_unknown_and_so_is_the_total() -> None:
    state = Play(CARD).run()
    fresh = replace(state, runs=())
    forecast = ORACLE.forecast(fresh, state.started.base, told(300))
    assert forecast.total_bytes is None
    assert forecast.dry_run[0].compute_mib == 300
