"""What moved besides the one variable, what voids a comparison, and whether a run holds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kvtui.core.units import GIB, MIB
from kvtui.gpu.samples import DeviceInfo, MemoryRecord, PhasePeak
from kvtui.logs.facts import CacheFacts, ContextFacts, EngineFacts, SlotFacts
from kvtui.probes.results import SpeedResult, StabilityRequest, StabilityResult
from kvtui.procedure.compare import hidden_moves, moved, voided
from kvtui.procedure.judge import judge
from kvtui.procedure.stability import growth_per_request, stability
from kvtui.session.records import Change
from kvtui.session.state import RunRecord, SessionState
from tests.procedure.outcome import Card
from tests.procedure.simulator import play
from tests.procedure.test_rules import BASE, F16, case, facts, memory, run, speed

MAIN = ContextFacts(
    n_ctx=32768, n_ctx_seq=32768, n_seq_max=1, n_batch=2048, n_ubatch=512, kv_unified=False,
    flash_attn="enabled", caches=(CacheFacts("full", 32768, type_k="q8_0", type_v="q8_0", size_mib=1.0),),
)  # fmt: skip


def pair(
    before: EngineFacts, after: EngineFacts, variable: str = "kv-types"
) -> tuple[SessionState, RunRecord]:
    """Two runs, the second meant to change `variable`."""
    first = run(1, facts=before)
    second = run(2, facts=after, change=Change(variable, "-x", "a", "b", 1))
    return replace(case().sit.state, runs=(first, second)), second


def main(**fields: Any) -> EngineFacts:
    return EngineFacts(engine="llama.cpp", contexts=(replace(MAIN, **fields),))


def window(cells: int) -> tuple[CacheFacts, ...]:
    return (
        CacheFacts("non-SWA", 32768, type_k="f16", type_v="f16"),
        CacheFacts("SWA", cells, type_k="f16", type_v="f16"),
    )


@pytest.mark.parametrize(
    ("before", "after", "name"),
    [
        (main(), main(n_batch=1024), "batch"),
        (main(), main(n_ubatch=256), "micro-batch"),
        (main(), main(n_ctx=16384), "context"),
        (main(), main(n_ctx_seq=8192), "context per sequence"),
        (main(), main(n_seq_max=4), "slots"),
        (main(), main(kv_unified=True), "unified"),
        (main(), main(flash_attn="disabled"), "flash-attention"),
        (main(n_rs_seq=0), main(n_rs_seq=3), "n_rs_seq"),
        (main(caches=window(1536)), main(caches=window(4608)), "SWA cells"),
        (EngineFacts(offloaded=(33, 33)), EngineFacts(offloaded=(30, 33)), "gpu-layers"),
        (EngineFacts(slots=SlotFacts(1)), EngineFacts(slots=SlotFacts(4)), "slots"),
        (EngineFacts(build="11434"), EngineFacts(build="11500"), "engine build"),
        (EngineFacts(actual={"n_ctx": 4096}), EngineFacts(actual={"n_ctx": 8192}), "context"),
        (EngineFacts(actual={"num_parallel": 1}), EngineFacts(actual={"num_parallel": 2}), "slots"),
        (EngineFacts(actual={"flash_attn": True}), EngineFacts(actual={"flash_attn": False}), "flash-attention"),
        (EngineFacts(actual={"layers_gpu": 30}), EngineFacts(actual={"layers_gpu": 33}), "gpu-layers"),
        (EngineFacts(actual={"attn_backend": "FLASH_ATTN"}), EngineFacts(actual={"attn_backend": "TRITON_ATTN"}),
         "attention backend"),
        (EngineFacts(actual={"block_size": 16}), EngineFacts(actual={"block_size": 32}), "block size"),
    ],
)  # fmt: skip
def test_everything_that_moves_besides_the_variable_is_listed(
    before: EngineFacts, after: EngineFacts, name: str
) -> None:
    state, second = pair(before, after)
    assert [m.variable for m in hidden_moves(state, second)] == [name]
    same, unmoved = pair(before, before)
    assert hidden_moves(same, unmoved) == ()


def test_the_intended_variable_and_what_follows_from_it_are_not_hidden() -> None:
    state, second = pair(main(), main(n_ctx=65536, n_ctx_seq=65536), "context")
    assert hidden_moves(state, second) == ()
    state, second = pair(main(), main(n_seq_max=4, n_ctx_seq=8192), "slots")
    assert hidden_moves(state, second) == ()


def test_more_slots_that_widen_a_window_are_said_without_a_warning() -> None:
    state, second = pair(main(caches=window(1536)), main(caches=window(4608), n_seq_max=4), "slots")
    found = {f.id: f.severity for f in judge(state, second, None).findings}
    assert found["second-variable"] == "info"
    state, second = pair(main(), main(n_seq_max=4, n_ctx_seq=8192, n_batch=512), "slots")
    found = {f.id: f.severity for f in judge(state, second, None).findings}
    assert found["second-variable"] == "warning"


def test_another_build_or_driver_voids_the_comparison() -> None:
    state, second = pair(facts(build="11434"), facts(build="11500"))
    assert [m.variable for m in voided(state, second)] == ["engine build"]
    (finding,) = [f for f in judge(state, second, None).findings if f.id == "comparison-void"]
    assert "Not comparable with run 1" in finding.title
    other = replace(second, facts=facts(), memory=memory(driver="575"))
    first = replace(state.runs[0], memory=memory(driver="570"))
    state = replace(state, runs=(first, other))
    assert [m.variable for m in voided(state, other)] == ["driver"]


def test_a_build_that_changes_in_a_session_is_found() -> None:
    state, _ = play(Card(total=48.0, weights=4.6, builds=("11434", "11434", "11434")), stages=(65536,),
                    target_context=65536)  # fmt: skip
    assert not [f for r in state.runs for f in r.findings if f.id == "comparison-void"]
    state, _ = play(Card(total=48.0, weights=4.6, builds=("11000", "11000", "11000")), stages=(65536,),
                    target_context=65536)  # fmt: skip
    assert [r.number for r in state.runs for f in r.findings if f.id == "comparison-void"] == [4]


def test_threads_that_were_asked_differently_are_listed() -> None:
    first, second = run(1), run(2, replace(BASE, threads=4))
    assert [m.variable for m in moved(replace(first, config=replace(BASE, threads=2)), second)] == ["threads"]


def holds(mine: RunRecord, *before: RunRecord) -> tuple[bool, str | None]:
    given = case(mine=mine, before=before)
    found = stability(given.sit.state, given.sit.plan, mine)
    return found.ok, found.trouble


def full(*levels: int, failed: str = "") -> tuple[StabilityResult, ...]:
    told = tuple(StabilityRequest(None, level, failed) for level in levels)
    return (StabilityResult(31000, 32, len(levels), levels[0], told, 1.0),)


def test_memory_that_grows_with_every_request_is_not_stable() -> None:
    steady = run(3, stability=full(8 * GIB, 8 * GIB + 200 * MIB, 8 * GIB + 201 * MIB, 8 * GIB + 200 * MIB))
    growing = run(3, stability=full(8 * GIB, 8 * GIB + 100 * MIB, 8 * GIB + 200 * MIB, 8 * GIB + 300 * MIB))
    assert holds(steady) == (True, None)
    assert holds(growing) == (False, "leak")
    assert growth_per_request(growing) == 100 * MIB
    assert growth_per_request(run(3, stability=full(8 * GIB, 9 * GIB))) is None
    assert holds(run(3, stability=full(8 * GIB, 8 * GIB, failed="HTTP 500"))) == (False, "leak")


def test_a_context_that_the_engine_made_smaller_does_not_hold() -> None:
    assert holds(run(3)) == (True, None)
    assert holds(run(3, replace(BASE, n_ctx=65536))) == (False, "context")
    told = EngineFacts(actual={"n_ctx": 4096})
    assert holds(run(3, facts=told)) == (False, "context")


def test_a_spill_needs_a_full_card_and_lost_speed() -> None:
    peak = PhasePeak("prefill", 16 * GIB - 100 * MIB, 16 * GIB - 100 * MIB, 0, 1.0, 10, 1.0)
    crowded = MemoryRecord(DeviceInfo("nvml", 0, "Card", 16 * GIB), 0, (peak,), (), 0.1)
    slow, fast = (speed(5.0, 32000),), (speed(45.0, 32000),)
    given = case(mine=run(3, memory=crowded, speeds=slow), before=(F16,))
    plan = replace(given.sit.plan, margin_gib=0.0, min_decode_tps=None)
    assert stability(given.sit.state, plan, given.run).trouble == "spill"
    assert stability(given.sit.state, plan, replace(given.run, speeds=fast)).ok
    assert stability(given.sit.state, plan, replace(given.run, memory=memory())).trouble != "spill"


def test_attention_without_a_kernel_shows_at_the_very_depth_of_the_baseline() -> None:
    base = replace(F16, speeds=(SpeedResult(16000, 1000.0, 50.0, 1.0, ()),))
    lost = run(3, speeds=(SpeedResult(16000, 60.0, 48.0, 1.0, ()),))
    kept = run(3, speeds=(SpeedResult(16000, 900.0, 48.0, 1.0, ()),))
    assert holds(lost, base) == (False, "kernel")
    assert holds(kept, base) == (True, None)
    assert holds(run(3, speeds=(SpeedResult(30000, 210.0, 48.0, 1.0, ()),)), base) == (True, None)


def test_a_leaking_engine_ends_without_a_proof_and_says_so() -> None:
    state, launches = play(
        Card(total=48.0, weights=4.6, leak_mib=200.0), stages=(65536,), target_context=65536
    )
    assert any(x.probes.stability for x in launches)
    assert state.verdict is not None
    assert "memory grows by" in " ".join(s.summary for s in state.steps)
    assert any("stability" in missing for missing in state.verdict.not_measured) or state.verdict.run is None
