"""Every rule in a case in which it must speak and in one in which it must not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from kvtui.core.config import RunConfig
from kvtui.core.units import GIB, MIB
from kvtui.engines.base import Traits
from kvtui.gpu.samples import DeviceInfo, MemoryRecord, PhasePeak
from kvtui.logs.facts import BufferFacts, CacheFacts, ContextFacts, EngineFacts
from kvtui.model.geometry import geometry
from kvtui.probes.results import NeedleResult, RecallResult, SpeedResult, TaskResult
from kvtui.procedure.kernels import pair_support
from kvtui.procedure.next_action import verdict
from kvtui.procedure.oracle import Oracle
from kvtui.procedure.preset import load_preset
from kvtui.procedure.rules import BY_ID, RULES, will_not_help
from kvtui.procedure.rules.rule import Case, Cause
from kvtui.procedure.situation import Situation
from kvtui.session.records import Change
from kvtui.session.state import RunRecord, SessionState
from tests.procedure.models import GLM_FLASH
from tests.procedure.outcome import LLAMA_TRAITS, VLLM_TRAITS, Card, header_of
from tests.procedure.simulator import NoEngine, Play

BASE = RunConfig("/models/model.gguf", 32768, "q8_0", "q8_0", "on")


def facts(device: str = "CUDA0", build: str = "11434", kv_mib: float = 2000.0, **more: Any) -> EngineFacts:
    caches = (CacheFacts("full", 32768, 32, 1, "q8_0", "q8_0", kv_mib / 2, kv_mib / 2, kv_mib, line=50),)
    main = ContextFacts(
        n_ctx=32768, flash_attn="enabled", caches=caches, kv_buffers=(BufferFacts(device, kv_mib),),
        compute_buffers=(BufferFacts(device, 512.0),),
    )  # fmt: skip
    whole = {"engine": "llama.cpp", "build": build, "outcome": "ready", "contexts": (main,),
             "model_buffers": (BufferFacts(device, 4000.0),)}  # fmt: skip
    return EngineFacts(**(whole | more))


def memory(engine: int = 8 * GIB, driver: str | None = None) -> MemoryRecord:
    peak = PhasePeak("prefill", engine, engine, 0, 1.0, 10, 1.0)
    return MemoryRecord(DeviceInfo("nvml", 0, "Card", 16 * GIB, driver), 0, (peak,), (), 0.1)


def run(number: int = 2, config: RunConfig = BASE, purpose: str = "stage", **more: Any) -> RunRecord:
    whole = {"facts": facts(), "memory": memory(), "outcome": "ok", "load_s": 1.0}
    return RunRecord(number, 4, purpose, config, (), (), "", **(whole | more))


def speed(tps: float, depth: int) -> SpeedResult:
    return SpeedResult(depth, 1000.0, tps, 1.0, ())


def recall(found: int) -> RecallResult:
    return RecallResult(16000, tuple(NeedleResult(0.5, 0, "k", "v", "v", i < found) for i in range(5)), 1.0)


def case(
    cause: Cause = "other",
    mine: RunRecord | None = None,
    *,
    before: tuple[RunRecord, ...] = (),
    traits: Traits = LLAMA_TRAITS,
    card: Card | None = None,
    goal: int | None = None,
    missing: int | None = None,
    freeable: int | None = None,
) -> Case:
    card = card or Card(total=16, weights=4.6)
    header = header_of(card)
    oracle = Oracle(header, geometry(header))
    mine = mine or run()
    started = Play(card)._start(oracle)
    state = replace(SessionState(started), runs=(*before, mine))
    sit = Situation(state, load_preset("coding-agent"), oracle, NoEngine(traits))  # type: ignore[arg-type]
    return Case(sit, mine, mine.config, cause, goal or mine.config.n_ctx, missing, freeable)


def with_config(**fields: Any) -> RunRecord:
    return run(config=replace(BASE, **fields))


def compared(**fields: Any) -> RunRecord:
    return run(number=3, change=Change("kv-types", "-ctk/-ctv", "f16/f16", "q8_0/q8_0", 2), **fields)


KEPT = (TaskResult("t", "retrieval", 100, True, "", "", (1,), None),)
F16 = run(1, replace(BASE, type_k="f16", type_v="f16"), "baseline", facts=facts(kv_mib=4000.0),
          speeds=(speed(50.0, 32000),), tasks=KEPT)  # fmt: skip
LOST = (TaskResult("t", "retrieval", 100, False, "", "", (2,), None),)


@dataclass(frozen=True)
class Row:
    """A rule with what makes it speak and what must leave it silent."""

    rule: str
    fires: Callable[[], Case]
    silent: Callable[[], Case]


ROWS = (
    Row("same-again", lambda: case("crash"), lambda: case("prefill")),
    Row("flash-attention-back-on", lambda: case("prefill", with_config(flash_attn="off"), before=(F16,)),
        lambda: case("prefill", before=(F16,))),
    Row("window-not-full", lambda: case("kv", with_config(swa_full=True)), lambda: case("kv")),
    Row("micro-batch", lambda: case("prefill"), lambda: case("kv")),
    Row("micro-batch", lambda: case("margin", missing=100, freeable=200),
        lambda: case("margin", missing=300, freeable=200)),
    Row("batched-tokens", lambda: case("prefill", traits=VLLM_TRAITS), lambda: case("prefill")),
    Row("slots-first", lambda: case("concurrency", with_config(n_parallel=2)), lambda: case("concurrency")),
    Row("graph-capture", lambda: case("kv", traits=VLLM_TRAITS),
        lambda: case("kv", with_config(enforce_eager=True), traits=VLLM_TRAITS)),
    Row("graph-capture", lambda: case("budget", traits=VLLM_TRAITS), lambda: case("kv")),
    Row("values-lower", lambda: case("kv"), lambda: case("concurrency")),
    Row("values-lower", lambda: case("budget"),
        lambda: case("budget", run(facts=facts(build="9500")))),
    Row("keys-lower", lambda: case("kv"), lambda: case("kv", with_config(type_k="q4_0", type_v="q4_0"))),
    Row("keys-lower", lambda: case("kv"),
        lambda: case("kv", before=(F16, run(2, replace(BASE, type_k="q4_0", type_v="q4_0"), "transient", tasks=LOST)))),
    Row("equal-pair",
        lambda: case("other", run(3, replace(BASE, type_v="q4_0"), speeds=(speed(20.0, 32000),)), before=(F16,)),
        lambda: case("other", run(3, replace(BASE, type_v="q4_0"), speeds=(speed(45.0, 32000),)), before=(F16,))),
    Row("keys-back-up", lambda: case("quality", with_config(type_k="q4_0", type_v="q4_0")), lambda: case("quality")),
    Row("experts-on-cpu", lambda: case("kv", card=Card(total=24, weights=17, model=GLM_FLASH)), lambda: case("kv")),
    Row("layers-on-cpu", lambda: case("weights"), lambda: case("speed")),
    Row("fork", lambda: case("kv"), lambda: case("recall")),
    Row("types-do-not-shrink-weights", lambda: case("weights"), lambda: case("kv")),
    Row("micro-batch-does-not-shrink-kv", lambda: case("kv"), lambda: case("prefill")),
    Row("micro-batch-does-not-shrink-kv", lambda: case("budget", missing=300, freeable=200),
        lambda: case("budget", missing=100, freeable=200)),
    Row("types-do-not-shrink-compute", lambda: case("prefill"), lambda: case("kv")),
    Row("types-do-not-add-slots", lambda: case("concurrency"), lambda: case("kv")),
    Row("memory-does-not-add-speed", lambda: case("speed"), lambda: case("margin")),
    Row("memory-does-not-add-recall", lambda: case("recall"), lambda: case("quality")),
    Row("context-does-not-add-quality", lambda: case("quality"), lambda: case("recall")),
    Row("mixed-pair-on-cpu", lambda: case("kv", run(facts=facts(build="9500"))), lambda: case("kv")),
    Row("reservation-is-not-memory", lambda: case("kv", run(facts=facts(actual={"kv_tokens": 40000}))),
        lambda: case("kv")),
    Row("context-too-short-to-show",
        lambda: case("other", compared(facts=facts(kv_mib=20.0)), before=(run(facts=facts(kv_mib=40.0)),)),
        lambda: case("other", compared(facts=facts(kv_mib=2000.0)), before=(run(facts=facts(kv_mib=4000.0)),))),
    Row("types-unproven", lambda: case("other", run(outcome="void", facts=EngineFacts())),
        lambda: case("other", run(outcome="void"))),
    Row("baseline-recalls-little", lambda: case("recall", before=(replace(F16, recalls=(recall(2),)),)),
        lambda: case("recall", before=(replace(F16, recalls=(recall(4),)),))),
    Row("memory-unread", lambda: case("other", run(memory=None)), lambda: case("other")),
    Row("target-reached", lambda: case("other"), lambda: case("other", goal=65536)),
    Row("speed-is-the-limit", lambda: case("speed"), lambda: case("kv")),
    Row("recall-is-the-limit", lambda: case("recall"),
        lambda: case("recall", with_config(type_k="q4_0", type_v="q4_0"))),
    Row("quality-is-the-limit", lambda: case("quality"),
        lambda: case("quality", with_config(type_k="q4_0", type_v="q4_0"))),
    Row("comparison-void", lambda: case("other", compared(facts=facts(build="11500")), before=(run(),)),
        lambda: case("other", compared(), before=(run(),))),
    Row("comparison-void", lambda: case("other", compared(memory=memory(driver="575.1")),
                                        before=(run(memory=memory(driver="570.8")),)),
        lambda: case("other", compared(memory=memory(driver="570.8")), before=(run(memory=memory(driver="570.8")),))),
)  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.rule)
def test_a_rule_speaks_where_it_must_and_is_silent_where_it_must_not(row: Row) -> None:
    rule, speaks = BY_ID[row.rule], row.fires()
    assert rule.holds(speaks)
    assert not rule.holds(row.silent())
    if rule.kind == "change":
        before = speaks.config
        for config in rule.values(speaks):
            assert rule.variable
            assert config != before
    assert rule.text(speaks).startswith(rule.why)


def test_every_rule_is_tried_both_ways_and_says_where_it_is_from() -> None:
    assert {row.rule for row in ROWS} == {rule.id for rule in RULES}
    for rule in RULES:
        assert rule.when
        assert rule.why
        assert rule.source
        if rule.kind == "change":
            assert rule.direction
            assert rule.memory
            assert rule.speed
            assert rule.risk


def test_values_go_before_keys_and_never_the_other_way_round() -> None:
    lower = BY_ID["values-lower"].values(case("kv"))
    assert [c.kv_types for c in lower] == ["q8_0/q4_0"]
    assert [c.kv_types for c in BY_ID["keys-lower"].values(case("kv"))] == ["q4_0/q4_0"]
    kinds = [rule.id for rule in RULES if rule.kind == "change"]
    assert kinds.index("micro-batch") < kinds.index("values-lower") < kinds.index("keys-lower")
    assert kinds.index("keys-lower") < kinds.index("layers-on-cpu")


def test_keys_go_back_before_values() -> None:
    lost = case("quality", with_config(type_k="q4_0", type_v="q4_0"))
    assert [c.kv_types for c in BY_ID["keys-back-up"].values(lost)] == ["q8_0/q4_0", "q8_0/q8_0"]


def test_what_will_not_help_comes_with_its_figures() -> None:
    (types,) = will_not_help(case("weights"))
    assert "4.6" in types
    assert "16.00 GiB" in types
    kv = will_not_help(case("budget", missing=300 * MIB, freeable=200 * MIB))
    assert any("200.0 MiB" in text and "300.0 MiB" in text for text in kv)


@pytest.mark.parametrize(
    ("device", "build", "pair", "expected"),
    [
        ("CUDA0", "11434", ("q8_0", "q8_0"), "fast"),
        ("CUDA0", "11434", ("q8_0", "q4_0"), "slow"),
        ("CUDA0", "b10819", ("q8_0", "q4_0"), "cpu"),
        ("CUDA0", "b10819", ("q5_1", "q5_1"), "cpu"),
        ("CUDA0", "11434", ("iq4_nl", "iq4_nl"), "cpu"),
        ("ROCm0", "11434", ("q8_0", "q4_0"), "slow"),
        ("Vulkan0", "9000", ("q8_0", "q4_0"), "fast"),
        ("Metal", "9000", ("q8_0", "q4_0"), "cpu"),
        ("CPU", "9000", ("q8_0", "q4_0"), "fast"),
    ],
)
def test_which_pairs_a_build_has_kernels_for(
    device: str, build: str, pair: tuple[str, str], expected: str
) -> None:
    assert pair_support(facts(device, build), *pair) == expected


def test_a_build_with_all_kernels_says_so_itself() -> None:
    told = facts(build="9500", system_info="CUDA : ARCHS = 890 | FA_ALL_QUANTS = 1 |")
    assert pair_support(told, "q8_0", "q4_0") == "fast"
    assert pair_support(EngineFacts(), "q8_0", "q4_0") == "unknown"


def test_a_verdict_says_under_what_its_speed_was_measured() -> None:
    disturbed = replace(speed(20.0, 16000), note="others kept 1.3 of 2 cores busy")
    why = verdict(case(mine=run(speeds=(disturbed,))).sit).why
    assert "decodes 20.0 t/s at a depth of 16,000 tokens (others kept 1.3 of 2 cores busy)" in why
    assert "16,000 tokens;" in verdict(case(mine=run(speeds=(speed(20.0, 16000),))).sit).why
