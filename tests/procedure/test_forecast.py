"""Forecasts from what was measured, and their errors afterwards."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kvtui.core.units import GIB, MIB
from kvtui.gpu.samples import DeviceInfo, MemoryRecord, PhasePeak
from kvtui.logs.facts import BufferFacts, CacheFacts, ContextFacts, EngineFacts
from kvtui.procedure.forecast import forecast_error, runtime_overhead
from kvtui.session.records import Forecast
from kvtui.session.state import RunRecord, SessionState
from tests.procedure.outcome import Card
from tests.procedure.test_rules import BASE, case, speed

WEIGHTS, KV = 4000, 1000


def run(number: int, n_ctx: int, beyond_mib: int, n_ubatch: int = 512, **more: Any) -> RunRecord:
    """A run that held `beyond_mib` beyond its weights and KV, half of it compute buffers."""
    cache = CacheFacts("full", k_mib=500.0, v_mib=500.0, size_mib=float(KV))
    main = ContextFacts(
        n_ctx=n_ctx, caches=(cache,), kv_buffers=(BufferFacts("CUDA0", float(KV)),),
        compute_buffers=(BufferFacts("CUDA0", beyond_mib / 2),),
    )  # fmt: skip
    facts = EngineFacts(contexts=(main,), model_buffers=(BufferFacts("CUDA0", float(WEIGHTS)),))
    total = (WEIGHTS + KV + beyond_mib) * MIB
    peak = PhasePeak("prefill", total, total, 0, 1.0, 10, 1.0)
    memory = MemoryRecord(DeviceInfo("nvml", 0, "Card", 16 * GIB), 0, (peak,), (), 0.1)
    whole = {"facts": facts, "memory": memory, "outcome": "ok", "speeds": (speed(50.0, n_ctx - 200),)}
    config = replace(BASE, n_ctx=n_ctx, n_ubatch=n_ubatch)
    return RunRecord(number, 4, "stage", config, (), (), "", **(whole | more))


def state(*runs: RunRecord) -> SessionState:
    return replace(case().sit.state, runs=runs)


@pytest.mark.parametrize(
    ("runs", "n_ctx", "n_ubatch", "expected"),
    [
        ((), 32768, 512, None),
        ((run(1, 32768, 1000),), 65536, 512, 1000),
        ((run(1, 32768, 1000), run(2, 65536, 1200)), 131072, 512, 1600),
        ((run(1, 32768, 1000), run(2, 65536, 1200)), 49152, 512, 1100),
        ((run(1, 32768, 1200), run(2, 65536, 1000)), 131072, 512, 1000),
        ((run(1, 32768, 1000),), 32768, 256, 750),
        ((run(1, 32768, 1000), run(2, 32768, 600, n_ubatch=128)), 32768, 128, 600),
    ],
    ids=["nothing", "one", "a line", "between", "never falling", "in proportion", "the same micro-batch"],
)
def test_what_is_beyond_weights_and_kv(
    runs: tuple[RunRecord, ...], n_ctx: int, n_ubatch: int, expected: int | None
) -> None:
    config = replace(BASE, n_ctx=n_ctx, n_ubatch=n_ubatch)
    found = runtime_overhead(state(*runs), config)
    assert found == (None if expected is None else expected * MIB)


def test_a_short_prompt_says_nothing_about_a_deep_one() -> None:
    floor = run(1, 8192, 700, speeds=(speed(50.0, 256),))
    deep = run(2, 32768, 1000)
    assert runtime_overhead(state(floor, deep), replace(BASE, n_ctx=65536)) == 1000 * MIB


def test_running_out_of_memory_says_how_much_it_was_at_least() -> None:
    forecast = Forecast(4 * GIB, None, 4 * GIB, None, "exact")
    failed = run(2, 65536, 0, outcome="failed", failure="prefill-oom", forecast=forecast)
    before = run(1, 32768, 1000)
    device = case().sit.state.started.device.total_bytes
    found = runtime_overhead(state(before, failed), replace(BASE, n_ctx=98304))
    assert found == device - 8 * GIB
    assert runtime_overhead(state(before, failed), replace(BASE, n_ctx=32768)) == 1000 * MIB


def test_the_error_is_in_bytes_and_as_a_share() -> None:
    forecast = Forecast(KV * MIB, None, WEIGHTS * MIB, 5900 * MIB, "exact")
    kv, engine = forecast_error(run(1, 32768, 1000, forecast=forecast))
    assert (kv.what, kv.error, kv.share) == ("KV", 0, 0.0)
    assert (engine.what, engine.error) == ("engine", 100 * MIB)
    assert engine.share == pytest.approx(100 / 6000)


def test_no_error_of_a_run_that_failed_or_was_not_forecast() -> None:
    assert forecast_error(run(1, 32768, 1000)) == ()
    forecast = Forecast(KV * MIB, None, WEIGHTS * MIB, 5900 * MIB, "exact")
    assert forecast_error(run(1, 32768, 1000, forecast=forecast, outcome="failed")) == ()


def test_layers_elsewhere_take_their_kv_with_them() -> None:
    given = case(card=Card(total=16, weights=8.0)).sit
    whole = given.oracle.forecast(state(run(1, 32768, 1000)), replace(BASE, n_ctx=32768))
    half = given.oracle.forecast(state(run(1, 32768, 1000)), replace(BASE, n_ctx=32768, n_gpu_layers=17))
    assert whole.total_bytes is not None
    assert half.total_bytes is not None
    assert whole.kv_bytes == half.kv_bytes
    freed = whole.total_bytes - half.total_bytes
    assert freed == pytest.approx(4 * GIB + (whole.kv_bytes or 0) / 2, rel=0.02)
