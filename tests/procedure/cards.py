"""Simulated cards with real models on them, each with something that goes wrong. Sizes in GiB unless named."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.procedure.models import (
    GEMMA3_12B,
    GEMMA3_27B,
    GLM_FLASH,
    LLAMA_70B,
    MISTRAL_24B,
    QWEN3_14B,
    QWEN3_30B_A3B,
    QWEN3_32B,
    QWEN35_27B,
)
from tests.procedure.outcome import OLLAMA_TRAITS, VLLM_TRAITS, Card

STAGES = (32768, 65536, 98304, 131072)


@dataclass(frozen=True)
class Scenario:
    """A card and an aim, with what makes it interesting."""

    name: str
    card: Card
    plan: dict[str, Any] = field(default_factory=dict, hash=False)


def _scenario(name: str, plan: dict[str, Any] | None = None, **card: Any) -> Scenario:
    wanted = {"stages": STAGES, "target_context": 131072, "n_ubatch": 512, "min_decode_tps": None}
    return Scenario(name, Card(**card), wanted | (plan or {}))


MIXED = {"q8_0/q4_0": 0.4}
CPU = {"q8_0/q4_0": 0.05}

SCENARIOS: tuple[Scenario, ...] = (
    _scenario("roomy: 8B on 48", total=48, weights=4.6),
    _scenario("8B on 12", total=12, weights=4.6),
    _scenario("8B on 10, q4 needed", total=10, weights=4.6),
    _scenario("8B on 8, tight", total=8, weights=4.6, runtime=0.6),
    _scenario("14B on 16", total=16, weights=8.4, model=QWEN3_14B),
    _scenario("14B on 16, trained for 40K", total=16, weights=8.4, model=QWEN3_14B, n_ctx_train=40960),
    _scenario("24B on 24", total=24, weights=13.3, model=MISTRAL_24B),
    _scenario("24B on 16, hardly any room", {"stages": (8192, 16384, 32768), "target_context": 32768,
              "baseline_context": 8192, "baseline_depths": (2048, 6144)},
              total=16, weights=13.0, runtime=0.6, compute_per_ubatch_mib=0.5, model=MISTRAL_24B),
    _scenario("32B on 24", total=24, weights=18.4, model=QWEN3_32B, compute_per_ubatch_mib=0.6),
    _scenario("70B on 48", total=48, weights=39.6, model=LLAMA_70B, compute_per_ubatch_mib=1.2),
    _scenario("sliding window 12B on 16", total=16, weights=6.8, model=GEMMA3_12B),
    _scenario("sliding window 27B on 24", total=24, weights=15.4, model=GEMMA3_27B),
    _scenario("latent MoE on 24", total=24, weights=17.0, model=GLM_FLASH),
    _scenario("hybrid 27B on 24", total=24, weights=15.6, model=QWEN35_27B),
    _scenario("hybrid 27B on 24, four slots", {"n_parallel": 4}, total=24, weights=15.6, model=QWEN35_27B),
    _scenario("MoE 30B-A3B on 24", total=24, weights=17.3, model=QWEN3_30B_A3B),
    _scenario("prefill out of memory above ub 256", total=16, weights=6.0, prefill_growth_mib_per_ubatch=2.0),
    _scenario("prefill out of memory above ub 128", total=16, weights=6.5, prefill_growth_mib_per_ubatch=4.0),
    _scenario("prefill and KV together", total=12, weights=4.6, prefill_growth_mib_per_ubatch=2.0),
    _scenario("big compute buffers at ub 2048", {"n_ubatch": 2048}, total=16, weights=8.4, model=QWEN3_14B,
              compute_per_ubatch_mib=1.2),
    _scenario("two requests fail", {"n_parallel": 2}, total=24, weights=4.6, fails_above_slots=1),
    _scenario("four requests, two hold", {"n_parallel": 4}, total=24, weights=4.6, fails_above_slots=2),
    _scenario("out of memory only with several requests", {"n_parallel": 4}, total=14, weights=4.6,
              per_slot_mib=900),
    _scenario("sliding window, four slots", {"n_parallel": 4}, total=16, weights=6.8, model=GEMMA3_12B),
    _scenario("flash attention refused by the device", total=24, weights=4.6, flash_attention=False),
    _scenario("engine makes the context smaller", total=10, weights=4.6, shrinks=True),
    _scenario("spills to the host with a speed cliff", {"margin_gib": 0.0}, total=10, weights=4.6, spill=0.12),
    _scenario("spill that a margin catches", total=12, weights=4.6, spill=0.12),
    _scenario("tasks lost with 4-bit keys", total=10, weights=4.6, loses_at=frozenset({"q4_0"})),
    _scenario("recall lost with 4-bit keys", total=12, weights=7.0, recall_lost_at=frozenset({"q4_0"})),
    _scenario("tasks lost with 4-bit values too", total=10, weights=4.6, loses_at=frozenset({"q4_0"}),
              lost_values=frozenset({"q4_0"})),
    _scenario("tasks lost with 8-bit keys", total=24, weights=4.6, loses_at=frozenset({"q8_0", "q4_0"})),
    _scenario("mixed pair slow, equal pair good", total=12, weights=7.0, slow_pairs=MIXED),
    _scenario("mixed pair slow, 4-bit keys lose", total=12, weights=6.5, slow_pairs=MIXED,
              loses_at=frozenset({"q4_0"})),
    _scenario("mixed pair on the CPU in an older build", total=12, weights=7.0, build="9500", slow_pairs=CPU,
              slow_prefill=CPU),
    _scenario("speed floor ends it", {"min_decode_tps": 22.0}, total=48, weights=4.6),
    _scenario("recall breaks with depth", total=48, weights=4.6, recall_limit=70000),
    _scenario("weights do not fit", total=16, weights=16.5),
    _scenario("weights do not fit, capacity first", {"offload": "run"}, total=16, weights=17.0,
              model=QWEN3_32B, compute_per_ubatch_mib=0.6),
    _scenario("layers to the CPU, capacity first", {"offload": "run"}, total=12, weights=8.4, model=QWEN3_14B),
    _scenario("engine with equal pairs only", total=10, weights=4.6, traits=OLLAMA_TRAITS),
    _scenario("engine with equal pairs only, 14B", total=16, weights=8.4, model=QWEN3_14B, traits=OLLAMA_TRAITS),
    _scenario("engine that reserves a share, batch", total=24, weights=13.3, model=MISTRAL_24B, traits=VLLM_TRAITS),
    _scenario("engine that reserves a share, batch and graphs", {"stages": (32768, 65536), "target_context": 65536},
              total=24, weights=14.8, model=MISTRAL_24B, traits=VLLM_TRAITS),
    _scenario("engine that reserves a share, four requests", {"n_parallel": 4}, total=48, weights=9.0,
              traits=VLLM_TRAITS),
    _scenario("crashes once at 64K", total=24, weights=4.6, crashes_at=frozenset({65536})),
    _scenario("crashes always above 64K", total=24, weights=4.6, always_crashes_at=frozenset({98304, 131072})),
)  # fmt: skip
