"""A card under an engine that takes a share of it as a whole: a pool for KV, and beside it activations and graphs."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

from kvtui.core.config import RunConfig
from kvtui.core.errors import StartError
from kvtui.core.units import GIB
from kvtui.gpu.samples import DeviceInfo, MemoryRecord, PhasePeak
from kvtui.logs.facts import BufferFacts, CacheFacts, ContextFacts, EngineFacts, FailureFacts, SlotFacts
from kvtui.model.context import ContextPlan
from kvtui.model.geometry import geometry
from kvtui.procedure.oracle import Oracle
from kvtui.procedure.oracle_vllm import VllmOracle
from tests.procedure.outcome import Card, Outcome, header_of

SHARE = 0.9
GRAPHS_GIB = 0.8
MIB_PER_BATCHED_TOKEN = 1.0


def kv_bytes(arithmetic: Oracle, config: RunConfig) -> int:
    """What one request of the whole context takes: 16 bits a value, or 8."""
    whole = arithmetic.context(replace(config, type_k="f16", type_v="f16", n_parallel=1)).kv_bytes or 0
    return whole // 2 if config.type_k == "fp8" else whole


@dataclass(frozen=True)
class ReservingOracle(VllmOracle):
    """The product's own forecast, over the arithmetic of another file format."""

    arithmetic: Oracle = field(kw_only=True)

    @classmethod
    def over(cls, arithmetic: Oracle) -> ReservingOracle:
        config = SimpleNamespace(exactness="exact", notes=())
        model: Any = SimpleNamespace(config=config, path="", notes=())
        return cls(model, "0" * 64, arithmetic.header.tensor_bytes, True, arithmetic=arithmetic)

    @property
    def n_ctx_train(self) -> int | None:
        return self.arithmetic.n_ctx_train

    @property
    def n_layer(self) -> int | None:
        return self.arithmetic.n_layer

    def context(self, config: RunConfig) -> ContextPlan:
        made = self.arithmetic.context(replace(config, type_k="f16", type_v="f16", n_parallel=1))
        return replace(made, caches=(), n_ubatch=config.n_batch, kv_bytes=kv_bytes(self.arithmetic, config))


class ReservingOutcome(Outcome):
    """What such an engine gives: a context that does not fit into the pool is refused before anything is allocated."""

    def __init__(self, card: Card, oracle: Any, config: RunConfig, **more: Any) -> None:
        arithmetic = oracle.arithmetic if isinstance(oracle, ReservingOracle) else oracle
        super().__init__(
            replace(card, gpu=False), arithmetic, replace(config, type_k="f16", type_v="f16"), **more
        )
        self.card, self.config, self.actual = card, config, config
        self.error = self.failure = None
        beside = self.total_weights + round(card.runtime * GIB)
        beside += round(MIB_PER_BATCHED_TOKEN * config.n_batch * (1 << 20))
        beside += 0 if config.enforce_eager else round(GRAPHS_GIB * GIB)
        beside += round(card.per_slot_mib * (config.n_parallel - 1) * (1 << 20))
        self.pool = round(card.total * SHARE * GIB) - beside
        self.kv = kv_bytes(arithmetic, config)
        if self.kv > self.pool:
            self.error = StartError("crashed", "exit 1")
            text = f"({self.kv / GIB:.2f} GiB KV cache is needed)"
            self.failure = FailureFacts("kv", "refused", text, 90)
        self.weights = self.total_weights
        self.highest = self.loaded = round(card.total * SHARE * GIB)
        self.free = round((card.total * (1 - SHARE) - card.desktop) * GIB)

    @property
    def facts(self) -> EngineFacts:  # type: ignore[override]
        """What the log proves: the pool, in the terms that everything else reads."""
        config, gib = self.config, round(self.pool / GIB, 2)
        cache = CacheFacts(
            "paged", type_k=config.type_k, type_v=config.type_k, size_mib=gib * 1024, digit_mib=10.24
        )
        main = ContextFacts(
            n_ctx=config.n_ctx, n_ctx_seq=config.n_ctx, n_seq_max=config.n_parallel, n_batch=config.n_batch,
            n_ubatch=config.n_batch, kv_unified=True, flash_attn="enabled", caches=(cache,),
            kv_buffers=(BufferFacts("GPU", gib * 1024),),
        )  # fmt: skip
        return EngineFacts(
            engine="vllm", build="0.33.0", outcome="failed" if self.failure else "ready",
            contexts=() if self.failure else (main,), slots=SlotFacts(config.n_parallel, config.n_ctx, True),
            actual={"n_ctx": config.n_ctx, "kv_gib": gib, "kv_tokens": 1},
            model_buffers=(BufferFacts("GPU", self.total_weights / (1 << 20)),),
            failures=(self.failure,) if self.failure else (),
        )  # fmt: skip

    @property
    def memory(self) -> MemoryRecord:  # type: ignore[override]
        """The share, whatever the context is."""
        card = self.card
        used = self.highest + round(card.desktop * GIB)
        peaks = (PhasePeak("warm-up", self.highest, used, 0, 1.0, 10, 1.0),
                 PhasePeak("prefill", self.highest, used, 0, 2.0, 10, 1.0))  # fmt: skip
        device = DeviceInfo("nvml", 0, "Simulated card", round(card.total * GIB))
        return MemoryRecord(device, round(card.desktop * GIB), peaks, (), 0.1)

    @property
    def share_of_speed(self) -> float:
        """Decode without captured graphs is slower."""
        return 0.8 if self.config.enforce_eager else 1.0


def oracle_of(card: Card) -> Any:
    """The model on the card, asked as its engine's forecast would be."""
    header = header_of(card)
    arithmetic = Oracle(header, geometry(header))
    return ReservingOracle.over(arithmetic) if card.traits.reserves_share else arithmetic


def outcome_of(card: Card, oracle: Any, config: RunConfig, **more: Any) -> Outcome:
    """What one launch gives on the card."""
    made = ReservingOutcome if card.traits.reserves_share else Outcome
    return made(card, oracle, config, **more)
