"""Transients first: what frees memory and leaves outputs as they are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from kvtui.core.config import RunConfig
from kvtui.core.units import size
from kvtui.procedure.rules.rule import MEMORY_CAUSES, Case, Rule, meaningful

SMALLEST_MICRO_BATCH = 64
SMALLEST_BATCH = 256


def micro_batch_can_free_it(case: Case) -> bool:
    """True unless it is measured that all transient memory together is less than what is missing."""
    return case.missing is None or case.freeable is None or case.freeable >= case.missing


def _prefill(case: Case) -> bool:
    return case.cause == "prefill" or (
        case.cause in ("margin", "budget", "spill") and micro_batch_can_free_it(case)
    )


def _micro_batch(case: Case) -> bool:
    return meaningful(case, "micro-batch") and _prefill(case)


def _halve_micro_batch(case: Case) -> Iterator[RunConfig]:
    half = case.config.n_ubatch // 2
    while half >= SMALLEST_MICRO_BATCH:
        yield replace(case.config, n_ubatch=half)
        half //= 2


def _micro_batch_figures(case: Case) -> str:
    if case.missing is None or case.freeable is None:
        return ""
    return f"{size(case.missing)} missing, up to {size(case.freeable)} of it is transient"


def _batched_tokens(case: Case) -> bool:
    return not meaningful(case, "micro-batch") and meaningful(case, "batch") and _prefill(case)


def _halve_batch(case: Case) -> Iterator[RunConfig]:
    half = case.config.n_batch // 2
    while half >= SMALLEST_BATCH:
        yield replace(case.config, n_batch=half, n_ubatch=min(half, case.config.n_ubatch))
        half //= 2


def _slots(case: Case) -> bool:
    several = case.config.n_parallel > 1 and meaningful(case, "slots")
    return several and (case.cause == "concurrency" or case.cause in MEMORY_CAUSES)


def _fewer_slots(case: Case) -> Iterator[RunConfig]:
    fewer = case.config.n_parallel // 2
    while fewer >= 1:
        yield replace(case.config, n_parallel=fewer)
        fewer //= 2


def _swa_full(case: Case) -> bool:
    return case.config.swa_full and case.cause in MEMORY_CAUSES and meaningful(case, "swa-full")


def _flash_attention(case: Case) -> bool:
    proven = any(
        r.counts and r.facts.main is not None and r.facts.main.flash_attn == "enabled"
        for r in case.sit.state.runs
    )
    off = case.config.flash_attn == "off" and meaningful(case, "flash-attention")
    return off and proven and case.cause in MEMORY_CAUSES


def _graphs(case: Case) -> bool:
    on = (
        meaningful(case, "graphs")
        and bool(case.sit.engine.traits.variables)
        and not case.config.enforce_eager
    )
    return on and case.cause in MEMORY_CAUSES


SLOTS = Rule(
    id="slots-first",
    kind="change",
    when="one request holds and several do not, or memory is short with several slots",
    holds=_slots,
    why="one request works and several do not: slots multiply per-sequence memory, so they come before anything else",
    source="llama.cpp #23652, #11681; src/llama-kv-cache-iswa.cpp (b11434)",
    variable="slots",
    direction="fewer",
    values=_fewer_slots,
    memory="per-sequence state, sliding-window cells and output buffers shrink with the slots",
    speed="requests beyond the slots wait",
    risk="fewer requests at the same time",
)

MICRO_BATCH = Rule(
    id="micro-batch",
    kind="change",
    when="memory ran out in prefill, or what is missing is no more than the transient memory that was measured",
    holds=_micro_batch,
    why="memory is short in prefill: the compute buffer grows with the micro-batch, persistent KV does not",
    source="llama.cpp #16725, #26297",
    variable="micro-batch",
    direction="smaller",
    values=_halve_micro_batch,
    figures=_micro_batch_figures,
    memory="the compute buffer, in proportion to the micro-batch",
    speed="slower prefill, decode stays",
    risk="slower prefill; decode speed and outputs stay the same",
)

BATCHED_TOKENS = Rule(
    id="batched-tokens",
    kind="change",
    when="the same, on an engine whose one batch size is that of prefill",
    holds=_batched_tokens,
    why="memory is short in prefill: activations grow with the tokens of one batch",
    source="vLLM 0.33 --max-num-batched-tokens; vllm#2418",
    variable="batch",
    direction="smaller",
    values=_halve_batch,
    memory="peak activations, in proportion to the batched tokens",
    speed="slower prefill, decode stays",
    risk="slower prefill; outputs stay the same",
)

GRAPHS = Rule(
    id="graph-capture",
    kind="change",
    when="memory is short on an engine that captures graphs beside its pool, after batched tokens and sequences",
    holds=_graphs,
    why="captured graphs take memory beside the pool: without them it holds more tokens",
    source="vLLM 0.33 VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS, --enforce-eager",
    variable="graphs",
    direction="off",
    values=lambda case: iter((replace(case.config, enforce_eager=True),)),
    memory="what the captured graphs held goes to the pool",
    speed="slower decode",
    risk="slower decode; outputs stay the same",
)

TRANSIENT: tuple[Rule, ...] = (
    Rule(
        id="flash-attention-back-on",
        kind="change",
        when="memory is short, flash attention was switched off, and the engine's probe proved that the device has it",
        holds=_flash_attention,
        why="without flash attention the compute buffer holds the whole KQ matrix",
        source="thecodacus/llama.cpp#3; llama.cpp #16725",
        variable="flash-attention",
        direction="on",
        values=lambda case: iter((replace(case.config, flash_attn="on"),)),
        memory="the KQ matrix: heads times micro-batch times context, four bytes each",
        speed="prefill and decode are usually faster with it",
        risk="none where the probe proved the kernel",
    ),
    Rule(
        id="window-not-full",
        kind="change",
        when="memory is short and sliding-window layers keep the whole context",
        holds=_swa_full,
        why="the full-size cache of sliding-window layers is kept for prefix reuse only",
        source="llama.cpp #14123, #13194",
        variable="swa-full",
        direction="off",
        values=lambda case: iter((replace(case.config, swa_full=False),)),
        memory="sliding-window layers keep their window",
        speed="a changed history is processed again from the last checkpoint",
        risk="slower turns in a conversation whose history is edited",
    ),
    MICRO_BATCH,
    BATCHED_TOKENS,
    SLOTS,
    GRAPHS,
)
