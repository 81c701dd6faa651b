"""What a report derives: figures that can be checked by hand against the sample session."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kvtui.core.units import MIB
from kvtui.logs.facts import BufferFacts, CacheFacts, ContextFacts, EngineFacts
from kvtui.report.facts import derive
from kvtui.report.run_facts import Spill, run_facts
from kvtui.session import events as ev
from kvtui.session.state import SessionState, apply
from tests.report import states
from tests.session import sample
from tests.session import sample_facts as sf


def _facts(number: int, state: SessionState | None = None):  # type: ignore[no-untyped-def]
    state = state or sample.state()
    return run_facts(state, states.run(state, number))


def test_the_final_run_is_the_one_the_verdict_stands_on() -> None:
    session = derive(sample.state())
    assert session.final is not None
    assert session.final.record.number == 6
    assert session.command is not None
    assert session.command.endswith("--port 18080")
    assert derive(sample.unfinished()).final is None
    assert derive(sample.unfinished()).command is None


def test_context_asked_allocated_usable_used() -> None:
    final = _facts(6).context
    assert (final.asked, final.allocated, final.per_slot) == (49152, 49152, 49152)
    assert final.used == 47104 + 64  # the deepest prompt and what it generated
    failed = _facts(5).context
    assert (failed.allocated, failed.used) == (49152, None)
    recalled = replace(sample.recall(40_000), depth=48_000)
    assert _facts(6, states.with_run(sample.state(), 6, recalls=(recalled,))).context.used == 48_000


def test_kv_forecast_against_what_the_log_proves() -> None:
    kv = _facts(6).kv
    # 49,152 tokens x 32 layers x 8 KV heads x (128 + 128) values x 34/32 bytes
    assert kv.forecast == 49152 * 32 * 8 * 256 * 34 // 32 == 3264 * MIB
    assert (kv.proven, kv.difference) == (3264 * MIB, 0)
    assert kv.rounding == round(0.005 * MIB)

    state = sample.state()
    main = states.run(state, 6).facts.main
    assert main is not None
    two = replace(
        main,
        caches=(
            CacheFacts("non-SWA", size_mib=3000.25, type_k="q8_0", type_v="q8_0"),
            CacheFacts("SWA", size_mib=276.5, type_k="q8_0", type_v="q4_0"),
        ),
    )
    changed = states.with_run(state, 6, facts=replace(states.run(state, 6).facts, contexts=(two,)))
    more = _facts(6, changed)
    assert more.kv.difference == round(12.75 * MIB)
    assert more.kv.rounding == round(0.01 * MIB)
    assert more.kv_types == "q8_0/q8_0, q8_0/q4_0"


def test_memory_points_are_last_readings_and_exact_peaks() -> None:
    memory = _facts(6).memory
    base = sf.WEIGHTS_MIB + sf.RUNTIME_MIB + 3264
    assert memory.before == 611 * MIB
    assert memory.after_load == round((base + sf.compute_mib(256)) * MIB)
    assert memory.peak_prefill == round((base + sf.compute_mib(256) * 1.3) * MIB)
    assert memory.peak_decode == round((base + sf.compute_mib(256) * 1.05) * MIB)
    assert (memory.peak, memory.peak_phase) == (memory.peak_prefill, "prefill")
    assert memory.host_peak == 900 * MIB
    assert memory.basis == "process"
    crashed = _facts(5).memory
    assert crashed.peak_prefill is not None
    assert crashed.peak_decode is None


def test_spill_is_what_the_log_places_on_the_host() -> None:
    assert _facts(6).spill == Spill(0, 0)
    state = sample.state()
    facts = states.run(state, 6).facts
    assert facts.main is not None
    main = replace(
        facts.main,
        kv_buffers=(BufferFacts("CUDA0", 3000.0), BufferFacts("CPU", 200.5), BufferFacts("CUDA_Host", 64.0)),
    )
    spilled = replace(facts, contexts=(main,), offloaded=(30, 33))
    assert _facts(6, states.with_run(state, 6, facts=spilled)).spill == Spill(round(264.5 * MIB), 3)
    assert _facts(6, states.with_run(state, 6, facts=EngineFacts())).spill == Spill(None, None)
    assert _facts(6, states.on_host()).spill == Spill(None, None)


def test_side_contexts_are_told_from_no_evidence() -> None:
    assert _facts(6).side_contexts == ()
    assert _facts(1, states.bare()).side_contexts is None
    state = sample.state()
    facts = states.run(state, 6).facts
    assert facts.main is not None
    draft = ContextFacts(
        role="draft", n_ctx=49152, caches=(CacheFacts("full", type_k="f16", type_v="f16", size_mib=96.0),)
    )
    earlier = replace(draft, role="mtp", launch=0)
    both = replace(facts, contexts=(earlier, facts.main, draft))
    (found,) = _facts(6, states.with_run(state, 6, facts=both)).side_contexts
    assert (found.role, found.n_ctx, found.kv_types, found.kv_bytes) == ("draft", 49152, "f16/f16", 96 * MIB)


def test_flash_attention_is_the_outcome_and_never_the_request() -> None:
    assert _facts(1).flash_attn == "enabled"
    state = sample.state()
    facts = states.run(state, 6).facts
    assert facts.main is not None
    unproven = replace(facts, contexts=(replace(facts.main, flash_attn=None),))
    assert _facts(6, states.with_run(state, 6, facts=unproven)).flash_attn is None
    stated = replace(unproven, actual={"flash_attn": False})
    assert _facts(6, states.with_run(state, 6, facts=stated)).flash_attn == "disabled"


def test_what_moved_besides_the_intended_variable_is_named() -> None:
    assert [m.variable for m in _facts(6).moved] == ["micro-batch"]
    assert _facts(6).hidden == ()
    state = sample.state()
    facts = states.run(state, 6).facts
    assert facts.main is not None
    smaller = replace(facts, contexts=(replace(facts.main, n_batch=1024),))
    both = _facts(6, states.with_run(state, 6, facts=smaller))
    assert [m.variable for m in both.moved] == ["batch", "micro-batch"]
    assert [(m.variable, m.before, m.after) for m in both.hidden] == [("batch", "2048", "1024")]


def test_quality_names_divergence_and_keeps_the_models_own_failures_apart() -> None:
    quality = _facts(6).quality
    assert (quality.baseline_run, quality.identical, quality.total) == (2, 7, 8)
    assert quality.regressed == ()
    assert quality.baseline_failed == ("tool-selection-1@12288",)
    assert [d.first_token for d in quality.divergences if not d.identical] == [41]
    assert _facts(2).quality is None
    assert _facts(4).quality is None


def test_every_advice_with_its_decision() -> None:
    session = derive(sample.state())
    assert len(session.advice) == 7
    assert all(a.recommended and a.decided for a in session.advice)
    last = session.advice[-1]
    assert last.recommended is not None
    assert last.decided is not None
    assert last.recommended.recommendation.title == "q8_0 keys, q4_0 values"
    assert last.decided.choice == "skip"

    state = replace(sample.state(), decided=sample.state().decided[:-1])
    assert derive(state).advice[-1].decided is None
    lonely = replace(sample.state(), recommended=())
    assert [a.recommended for a in derive(lonely).advice] == [None] * 7


def test_the_share_of_time_inside_the_engine() -> None:
    session = derive(sample.state())
    walls = [44, 110, 110, 180, 72, 260]
    assert session.runs_s == sum(walls)
    assert session.engine_s == pytest.approx(sum(walls) * 0.94)
    assert session.engine_share == pytest.approx(sum(walls) * 0.94 / 812)
    # After a resume the session's wall time is that of the last process: only the runs can be compared.
    resumed = apply(ev.SessionResumed("t", "0.1.0"), sample.state())
    assert derive(resumed).wall_s is None
    assert derive(resumed).engine_share == pytest.approx(0.94)
    nothing = derive(states.bare())
    assert (nothing.engine_s, nothing.runs_s, nothing.wall_s, nothing.engine_share) == (
        None,
        None,
        None,
        None,
    )


def test_what_was_not_measured_is_named_once() -> None:
    named = derive(sample.state()).not_measured
    assert named[0] == "more than one request at the same time"
    assert any("--no-context-shift" in item for item in named)
    assert len(named) == len(set(named)) == 2
    lacking = states.with_run(sample.state(), 6, tasks=(), recalls=(), memory=None, speeds=())
    named = derive(lacking).not_measured
    for item in ("task suite", "recall", "decode speed", "time to first token", "peak memory in prefill"):
        assert f"{item} of run 6" in named
    assert "step 5" in derive(sample.unfinished()).not_measured
    unproven = derive(states.with_run(sample.state(), 6, facts=EngineFacts())).not_measured
    assert "K cache type of run 6 (no proof in the log)" in unproven
    assert "KV bytes of run 6" in unproven


def test_nothing_measured_is_none_everywhere_and_never_zero() -> None:
    run = _facts(1, states.bare())
    assert run.kv_types is None
    assert (run.context.allocated, run.context.per_slot, run.context.used) == (None, None, None)
    assert (run.kv.forecast, run.kv.proven, run.kv.difference) == (None, None, None)
    assert (run.prompt_tokens, run.generated_tokens, run.deepest) == (None, None, None)
    assert (run.recall, run.tasks, run.quality, run.offloaded) == (None, None, None, None)
    assert set(run.memory.__getstate__()) == {None}
    assert all(c.state == "unproven" for c in run.checks)
