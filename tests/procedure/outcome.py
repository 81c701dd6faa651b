"""A simulated card: a budget of bytes, the geometry of a model, ways to fail, and what one launch gives on it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from kvtui.core.config import RunConfig
from kvtui.core.errors import EngineGone, KvtuiError, StartError
from kvtui.core.units import GIB, MIB
from kvtui.engines.base import Traits
from kvtui.gpu.samples import DeviceInfo, MemoryRecord, PhasePeak
from kvtui.logs.facts import BufferFacts, CacheFacts, ContextFacts, EngineFacts, FailureFacts, SlotFacts
from kvtui.model.header import Header, TensorInfo
from kvtui.probes.results import (
    TASK_FAMILIES,
    ConcurrencyResult,
    NeedleResult,
    RecallResult,
    SpeedResult,
    StabilityRequest,
    StabilityResult,
    TaskResult,
    Timing,
)
from kvtui.procedure.oracle import Oracle
from kvtui.procedure.situation import ProbePlan
from kvtui.session import events as ev
from tests.procedure.models import LLAMA_8B, Model

AT = "2026-01-01T00:00:00.000+00:00"
LLAMA_TRAITS = Traits("llama-server", (("f16", "f16"), ("q8_0", "q8_0"), ("q8_0", "q4_0"), ("q4_0", "q4_0")))
OLLAMA_TRAITS = Traits(
    "ollama",
    (("f16", "f16"), ("q8_0", "q8_0"), ("q4_0", "q4_0")),
    variables=("context", "kv-types", "slots", "flash-attention", "micro-batch", "gpu-layers"),
    model_is_tag=True,
    ties=(("n_batch", "n_ubatch"),),
)
VLLM_TRAITS = Traits(
    "vllm",
    (("auto", "auto"), ("fp8", "fp8")),
    ("context", "kv-types", "batch", "slots", "utilization", "graphs"),
    reserves_share=True,
    ties=(("n_ubatch", "n_batch"), ("type_v", "type_k")),
)


@dataclass(frozen=True)
class Card:
    """The card, the model on it and what goes wrong. Sizes in GiB unless named otherwise."""

    total: float = 16.0
    weights: float = 9.0
    runtime: float = 0.9
    desktop: float = 0.4
    compute_per_ubatch_mib: float = 1.0
    """Compute buffer in MiB for each token of micro-batch, at load."""
    prefill_growth_mib_per_ubatch: float = 0.0
    """More of it that appears only while a prompt is processed, at 32K of context; it grows with the context."""
    flash_attention: bool = True
    loses_at: frozenset[str] = frozenset()
    """Types of keys at which a task is lost."""
    fails_at_baseline: bool = False
    decode_tps: Callable[[int], float] = field(default=lambda depth: 50.0 / (1 + depth / 65536))
    recall_limit: int = 1 << 30
    recall_lost_at: frozenset[str] = frozenset()
    """Types of keys at which nothing is recalled."""
    offloaded: tuple[int, int] | None = None
    """Layers on the GPU whatever was asked; None: as asked."""
    hide_kv_lines: bool = False
    fails_above_slots: int = 1 << 10
    n_ctx_train: int = 131072
    gpu: bool = True
    leak_mib: float = 0.0
    """What the engine grows by with every request that is repeated."""
    f16_fallback: bool = False
    """The engine silently allocates f16 whatever was asked."""
    model: Model = LLAMA_8B
    traits: Traits = LLAMA_TRAITS
    build: str = "11434"
    builds: tuple[str, ...] = ()
    """Builds of the first runs, should the engine be replaced under the session; then `build`."""
    slow_pairs: dict[str, float] = field(default_factory=dict)
    """Share of the decode speed that is left with a pair of KV types (`q8_0/q4_0`)."""
    slow_prefill: dict[str, float] = field(default_factory=dict)
    """The same for prefill."""
    spill: float | None = None
    """Memory beyond the card goes to the host, and this share of the decode speed is left; None: out of memory."""
    shrinks: bool = False
    """The engine makes the context smaller until it fits, and says so in its log only."""
    per_slot_mib: float = 0.0
    """What every slot beyond the first takes besides its KV."""
    crashes_at: frozenset[int] = frozenset()
    """Contexts at which the first run dies without a word about memory."""
    always_crashes_at: frozenset[int] = frozenset()
    layer_price: float = 0.9
    """Share of the decode speed that is lost with all layers on the CPU."""
    lost_values: frozenset[str] = frozenset()
    """Types of values at which a task is lost."""


def header_of(card: Card) -> Header:
    """The card's model: its metadata, and its weights as one tensor per layer (two with experts)."""
    metadata: dict[str, Any] = {"general.architecture": card.model.arch, "general.file_type": 15}
    metadata |= {f"{card.model.arch}.{key}": value for key, value in card.model.keys.items()}
    metadata[f"{card.model.arch}.context_length"] = card.n_ctx_train
    n_layer = card.model.keys["block_count"]
    per_layer = round(card.weights * GIB) // n_layer
    experts = round(per_layer * card.model.expert_share)
    tensors = [
        TensorInfo(f"blk.{i}.attn_q.weight", (4096, 4096), "q4_K", per_layer - experts, i * per_layer)
        for i in range(n_layer)
    ]
    if experts:
        tensors += [
            TensorInfo(
                f"blk.{i}.ffn_up_exps.weight", (4096, 4096), "q4_K", experts, (i + 1) * per_layer - experts
            )
            for i in range(n_layer)
        ]
    return Header(
        path="/models/model.gguf", version=3, arch=card.model.arch, name="Simulated", metadata=metadata,
        tensors=tuple(tensors), header_bytes=1000, header_sha256="0" * 64, n_parts=1,
        file_bytes=per_layer * n_layer + 1000, tensor_bytes=per_layer * n_layer,
    )  # fmt: skip


class Outcome:
    """What a launch of `config` gives on a card. `earlier` counts the runs before it, `again` says that this very thing
    was tried before."""

    def __init__(
        self, card: Card, oracle: Oracle, config: RunConfig, *, earlier: int = 0, again: bool = False
    ) -> None:
        self.card, self.config, self.earlier = card, config, earlier
        self.actual = replace(config, type_k="f16", type_v="f16") if card.f16_fallback else config
        self.error: KvtuiError | None = None
        self.failure: FailureFacts | None = None
        self.spilled = False
        self._size(oracle)
        while card.shrinks and self._over() > 0 and self.actual.n_ctx > 1024:
            self.actual = replace(self.actual, n_ctx=self.actual.n_ctx - 1024)
            self._size(oracle)
        self.depth = max(64, self.actual.n_ctx // config.n_parallel)
        if self.context.refused is not None:
            self._fail("context", "refused", StartError("crashed", "refused"))
        elif card.gpu:
            self._fill()
        crashes = card.always_crashes_at | (frozenset() if again else card.crashes_at)
        if self.error is None and config.n_ctx in crashes:
            self.error = EngineGone("the engine is gone")
        total, others = round(card.total * GIB), round(card.desktop * GIB)
        loaded = self.weights + self.kv + self.compute + round(card.runtime * GIB)
        self.loaded = min(loaded, total - others)
        self.highest = min(self.loaded + self.growth, total - others)
        self.free = total - others - self.highest

    def _size(self, oracle: Oracle) -> None:
        card, config = self.card, self.actual
        self.context = oracle.context(config)
        self.total_weights = oracle.header.tensor_bytes
        self.weights = oracle.weights_bytes(config, on_gpu=card.gpu)
        layers = oracle.header.n_layer or 1
        on_gpu = layers if config.n_gpu_layers is None else min(config.n_gpu_layers, layers + 1) - 1
        self.layers = (min(config.n_gpu_layers or 0, layers + 1), layers + 1)
        all_kv = self.context.kv_bytes or 0
        self.kv = all_kv if not card.gpu or on_gpu >= layers else all_kv * max(on_gpu, 0) // layers
        slots = card.per_slot_mib * (config.n_parallel - 1)
        self.compute = round((card.compute_per_ubatch_mib * self.context.n_ubatch + slots) * MIB)
        deep = self.context.n_ctx / 32768
        self.growth = round(card.prefill_growth_mib_per_ubatch * self.context.n_ubatch * deep * MIB)

    def _over(self) -> int:
        card = self.card
        room = round((card.total - card.desktop - card.runtime) * GIB)
        return self.weights + self.kv + self.compute + self.growth - room

    def _fill(self) -> None:
        card = self.card
        room = round((card.total - card.desktop - card.runtime) * GIB)
        loads = (
            ("weights", self.weights),
            ("kv", self.kv),
            ("compute", self.compute),
            ("prefill", self.growth),
        )
        for phase, n_bytes in loads:
            room -= n_bytes
            if room < 0 and card.spill is not None:
                self.spilled = True
                return
            if room < 0:
                gone = phase == "prefill"
                self._fail(phase, "oom", EngineGone("gone") if gone else StartError("crashed", "exit 1"))
                return

    def _fail(self, phase: str, kind: str, error: KvtuiError) -> None:
        self.error = error
        self.failure = FailureFacts(phase, kind, f"{kind} in {phase}", 100)  # type: ignore[arg-type]

    @cached_property
    def facts(self) -> EngineFacts:
        """What the log proves."""
        card, config = self.card, self.config
        reached_kv = self.failure is None or self.failure.phase in ("compute", "prefill")
        device = "CUDA0" if card.gpu else "CPU"
        shown = reached_kv and not card.hide_kv_lines
        caches = tuple(
            CacheFacts(c.kind, c.cells, c.layers, c.streams, c.type_k, c.type_v, round(c.k_bytes / MIB, 2),
                       round(c.v_bytes / MIB, 2), round(c.bytes / MIB, 2), line=50)
            for c in self.context.caches
        ) if shown else ()  # fmt: skip
        enabled = config.flash_attn == "on" or (config.flash_attn == "auto" and card.flash_attention)
        total = (self.context.kv_bytes or 0) / MIB
        here, elsewhere = self.kv / MIB, total - self.kv / MIB
        buffers = (BufferFacts(device, here, 49),) + (
            (BufferFacts("CPU", elsewhere, 48),) if elsewhere > 0.5 else ()
        )
        context = ContextFacts(
            n_ctx=self.context.n_ctx, n_ctx_seq=self.context.n_ctx_seq, n_seq_max=config.n_parallel,
            n_batch=self.context.n_batch, n_ubatch=self.context.n_ubatch, kv_unified=config.kv_unified,
            flash_attn="enabled" if enabled else "disabled", caches=caches, kv_buffers=buffers if shown else (),
            compute_buffers=(BufferFacts(device, self.compute / MIB, 60),) if reached_kv else (),
        )  # fmt: skip
        slots = SlotFacts(config.n_parallel, self.context.usable_per_slot, config.kv_unified, 70)
        earlier = dict(enumerate(card.builds))
        offloaded = card.offloaded or self.layers
        return EngineFacts(
            engine="llama.cpp", build=earlier.get(self.earlier, card.build),
            outcome="ready" if self.failure is None else "failed",
            contexts=(context,) if reached_kv else (),
            slots=slots if reached_kv else None,
            model_buffers=(BufferFacts(device, self.weights / MIB, 40),),
            offloaded=offloaded if card.gpu else None,
            failures=(self.failure,) if self.failure else (),
        )  # fmt: skip

    @cached_property
    def memory(self) -> MemoryRecord:
        """What was measured."""
        card = self.card
        total, others = round(card.total * GIB), round(card.desktop * GIB)
        peaks = (
            PhasePeak("warm-up", self.loaded, self.loaded + others, 0, 1.0, 10, 1.0),
            PhasePeak("prefill", self.highest, self.highest + others, 0, 2.0, 10, 1.0),
        )
        device = DeviceInfo("nvml" if card.gpu else "host", 0, "Simulated card", total)
        return MemoryRecord(device, others, peaks, (), 0.1)

    @property
    def share_of_speed(self) -> float:
        """What is left of the decode speed with these types, this placement and this much memory."""
        card, config = self.card, self.actual
        share = card.slow_pairs.get(config.kv_types, 1.0)
        if config.flash_attn == "on" and not card.flash_attention:
            share *= 0.1
        if self.spilled:
            share *= card.spill or 1.0
        moved = 1 - self.weights / self.total_weights if card.gpu else 0.0
        return share * (1 - card.layer_price * moved)

    def decode(self, depth: int) -> float:
        """Tokens per second at a depth."""
        return self.card.decode_tps(depth) * self.share_of_speed

    def prefill(self) -> float:
        """Tokens per second."""
        return 1000.0 * self.card.slow_prefill.get(self.actual.kv_types, 1.0)

    def keeps(self, depth: int) -> bool:
        """True when planted facts come back."""
        lost = self.actual.type_k in self.card.recall_lost_at
        return not lost and depth <= self.card.recall_limit

    def loses_task(self) -> bool:
        """True when a task that full precision passes fails."""
        return self.actual.type_k in self.card.loses_at or self.actual.type_v in self.card.lost_values

    def results(self, number: int, plan: ProbePlan) -> list[ev.Event]:
        """The events that the probes of `plan` record."""
        if self.error is not None:
            return [ev.EngineReady(AT, number, 1.0, self.facts)] if self.failure is None else []
        events: list[ev.Event] = [ev.EngineReady(AT, number, 1.0, self.facts)]
        if plan.speed is not None:
            events.append(ev.SpeedMeasured(AT, number, self._speed(plan.speed)))
        if plan.tasks:
            tasks = tuple(self._task(f, d) for d in plan.tasks for f in TASK_FAMILIES)
            events.append(ev.TasksMeasured(AT, number, tasks))
        if plan.deep is not None:
            deep = min(plan.deep, self.context.usable_per_slot)
            events.append(ev.SpeedMeasured(AT, number, self._speed(deep)))
            events.append(ev.RecallMeasured(AT, number, self._recall(deep)))
        if plan.stability:
            events.append(ev.StabilityMeasured(AT, number, self._stability(plan.stability)))
        if plan.concurrency:
            failed = max(0, plan.concurrency - self.card.fails_above_slots)
            result = ConcurrencyResult(plan.concurrency, 100, failed, (), (), 1.0)
            events.append(ev.ConcurrencyMeasured(AT, number, result))
        return events

    def _speed(self, depth: int) -> SpeedResult:
        tps, prompt = self.decode(depth), self.prefill()
        timing = Timing(depth, 0, 32, prompt, tps, 1.0, 2.0, 1.0, 1.0)
        return SpeedResult(depth, prompt, tps, 1.0, (timing,))

    def _recall(self, depth: int) -> RecallResult:
        good = self.keeps(depth)
        needles = tuple(
            NeedleResult(p, 0, "k", "v", "v" if good else "", good) for p in (0.02, 0.25, 0.5, 0.75, 0.98)
        )
        return RecallResult(depth, needles, 1.0)

    def _stability(self, requests: int) -> StabilityResult:
        grown = [self.highest + round(self.card.leak_mib * MIB) * (n + 1) for n in range(requests)]
        told = tuple(StabilityRequest(None, level) for level in grown)
        return StabilityResult(1000, 32, requests, self.highest, told, 1.0)

    def _task(self, family: Any, depth: int) -> TaskResult:
        lost = self.loses_task() and family == "tool-selection"
        passed = not lost and not (self.card.fails_at_baseline and family == "code-edit")
        tokens = (1, 2, 3) if self.actual.type_k == "f16" else (1, 2, 4)
        return TaskResult(family, family, depth, passed, "", "text", tokens, None)
