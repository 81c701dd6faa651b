"""What will not help, what must be measured first, when to stop, and when two runs cannot be compared."""

from __future__ import annotations

from kvtui.core.units import MIB, signed_size, size
from kvtui.procedure.compare import voided
from kvtui.procedure.kernels import pair_support
from kvtui.procedure.memory import log_bytes
from kvtui.procedure.rules.rule import Case, Rule
from kvtui.procedure.rules.transient import micro_batch_can_free_it
from kvtui.procedure.stability import recall_reference
from kvtui.procedure.variables import bits_of

VISIBLE_SHARE = 0.005
VISIBLE_BYTES = 64 * MIB
"""A saving below these cannot be told from what a driver or a desktop takes and gives between two runs."""


def saved_bytes(case: Case) -> int | None:
    """KV bytes of this run minus those of the run it is compared with, both as the log proves them."""
    before = case.sit.state.run(case.run.change.against_run) if case.run.change else None
    mine = case.run.facts.main.kv_mib if case.run.facts.main else None
    theirs = before.facts.main.kv_mib if before is not None and before.facts.main else None
    return None if mine is None or theirs is None else round((mine - theirs) * MIB)


def _short_context(case: Case) -> bool:
    saved = saved_bytes(case)
    moved = case.run.change is not None and case.run.change.variable == "kv-types"
    if not moved or saved is None or saved > 0:
        return False
    return -saved < max(VISIBLE_BYTES, VISIBLE_SHARE * case.sit.state.started.device.total_bytes)


def _short_figures(case: Case) -> str:
    saved = saved_bytes(case)
    return "" if saved is None else f"KV {signed_size(saved)} at {case.config.n_ctx:,} tokens"


def _weights_figures(case: Case) -> str:
    weights = case.sit.oracle.weights_bytes(case.config, on_gpu=case.sit.on_gpu)
    kv = case.sit.oracle.context(case.config).kv_bytes
    total = size(case.sit.state.started.device.total_bytes)
    beside = "" if kv is None else f", KV is {size(kv)}"
    return f"{size(weights)} of weights on {total}{beside}"


def _micro_batch_figures(case: Case) -> str:
    if case.cause == "kv" or case.missing is None or case.freeable is None:
        return "the failing allocation is persistent KV, not the compute buffer"
    return f"all transient memory is {size(case.freeable)}, {size(case.missing)} are missing"


def _mixed_on_cpu(case: Case) -> bool:
    return any(
        k != v and bits_of(k) < 16 and pair_support(case.run.facts, k, v) == "cpu"
        for k, v in case.sit.engine.traits.kv_ladder
    )


def _baseline_recalls_little(case: Case) -> bool:
    reference = recall_reference(case.sit.state)
    return (
        reference is not None
        and bool(reference.needles)
        and reference.found / len(reference.needles) < 0.5
        and bits_of(case.config.type_k) < 16
    )


def _unread_memory(case: Case) -> bool:
    highest = case.run.memory.highest if case.run.memory else None
    weights, kv, _ = log_bytes(case.run.facts, case.sit.state.started.device)
    return case.run.outcome == "ok" and (highest is None or weights is None or kv is None)


WILL_NOT_HELP: tuple[Rule, ...] = (
    Rule(
        id="types-do-not-shrink-weights",
        kind="will-not-help",
        when="loading the weights ran out of memory, quantized KV or not",
        holds=lambda case: case.cause == "weights",
        why="KV types: the weights are what does not fit",
        source="llama.cpp src/llama-model.cpp load_tensors (b11434); ollama/ollama#15634",
        figures=_weights_figures,
    ),
    Rule(
        id="micro-batch-does-not-shrink-kv",
        kind="will-not-help",
        when="persistent KV is what fails, or all transient memory together is less than what is missing",
        holds=lambda case: (
            case.cause == "kv"
            or (case.cause in ("margin", "budget", "spill") and not micro_batch_can_free_it(case))
        ),
        why="micro-batch",
        source="llama.cpp src/llama-kv-cache.cpp, src/llama-context.cpp (b11434)",
        figures=_micro_batch_figures,
    ),
    Rule(
        id="types-do-not-shrink-compute",
        kind="will-not-help",
        when="memory ran out in the compute buffer or while a prompt was processed",
        holds=lambda case: case.cause == "prefill",
        why="smaller KV types alone: the failing allocation is the compute buffer",
        source="llama.cpp #16725, #26297, #24166 (f16 scratch of quantized KV)",
    ),
    Rule(
        id="types-do-not-add-slots",
        kind="will-not-help",
        when="a single request holds and several do not",
        holds=lambda case: case.cause == "concurrency",
        why="KV types: a single request holds",
        source="llama.cpp #23652, #11681",
    ),
    Rule(
        id="memory-does-not-add-speed",
        kind="will-not-help",
        when="decode or prefill is below the operator's floor with everything on the GPU",
        holds=lambda case: case.cause == "speed",
        why="micro-batch, slots or KV types: decode speed at depth falls with the tokens that are attended to",
        source="llama.cpp #15766, #25121",
    ),
    Rule(
        id="memory-does-not-add-recall",
        kind="will-not-help",
        when="recall at depth is below the preset's share of the baseline",
        holds=lambda case: case.cause == "recall",
        why="more memory: the model does not find what it was told",
        source="llama.cpp src/llama-context.cpp training context overflow (b11434); lukesdevlab#2",
    ),
    Rule(
        id="context-does-not-add-quality",
        kind="will-not-help",
        when="a task that passed at full precision fails",
        holds=lambda case: case.cause == "quality",
        why="a larger context: outputs are already worse at this one",
        source="llama.cpp PR #7412; minimal-ai#18",
    ),
    Rule(
        id="mixed-pair-on-cpu",
        kind="will-not-help",
        when="the build computes attention over mixed pairs on the CPU, as its build number or its device tells",
        holds=lambda case: (
            case.cause in ("kv", "budget", "margin", "spill", "prefill") and _mixed_on_cpu(case)
        ),
        why="a pair of two types: this build computes attention over it on the CPU, 5 to 45 times slower in prefill",
        source="llama.cpp #28455, #27109, #28633, #24485, PR #28079; ggml-metal (equal types only)",
    ),
    Rule(
        id="reservation-is-not-memory",
        kind="will-not-help",
        when="memory is short on an engine that reserves a share of the card and says how many tokens fit into it",
        holds=lambda case: (
            case.cause in ("kv", "budget", "margin", "prefill")
            and bool(case.run.facts.actual and "kv_tokens" in case.run.facts.actual)
        ),
        why="the share of the card that is reserved: it is a reservation, not memory. Batched tokens, then sequences, "
        "then graph capture, then the length decide what fits into it",
        source="vLLM 0.33 --gpu-memory-utilization; vllm#14452, vllm#2418",
    ),
    Rule(
        id="context-too-short-to-show",
        kind="will-not-help",
        when="KV types moved and the KV saved is less than what others take and give between two runs",
        holds=_short_context,
        why="no gain is visible because the context is too short for KV to matter; larger contexts show it",
        source="the saving follows the cells: src/llama-kv-cache.cpp (b11434)",
        figures=_short_figures,
    ),
)

MEASURE_FIRST: tuple[Rule, ...] = (
    Rule(
        id="types-unproven",
        kind="measure-first",
        when="a run ended well and its log does not prove the KV types",
        holds=lambda case: (
            (case.run.outcome == "void" and case.run.facts.main is None)
            or (
                case.run.outcome == "void"
                and case.run.facts.main is not None
                and not case.run.facts.main.caches
            )
        ),
        why="not enough evidence: the log shows no KV cache lines; make the engine say them (-lv 4) and measure again",
        source="llama.cpp common/log.h levels (b11434), #23613",
    ),
    Rule(
        id="baseline-recalls-little",
        kind="measure-first",
        when="the full-precision baseline itself recalls less than half",
        holds=_baseline_recalls_little,
        why="not enough evidence: the model recalls less than half at full precision, so recall says nothing about KV; "
        "measure with another model or template first",
        source="measured in this session",
    ),
    Rule(
        id="memory-unread",
        kind="measure-first",
        when="a run ended well and its weights, its KV or its peak could not be read",
        holds=_unread_memory,
        why="not enough evidence: weights, KV or the peak of this run could not be read, so no total can be forecast; "
        "measure memory first",
        source="measured in this session",
    ),
)

REPEAT: tuple[Rule, ...] = (
    Rule(
        id="same-again",
        kind="repeat",
        when="the engine died or did not answer once it was ready, and no line says that memory ran out",
        holds=lambda case: case.cause == "crash" and case.run.load_s is not None,
        why="a crash without a line about memory is no result: the same again, once, before anything is concluded",
        source="llama.cpp #23446, #23620 (late failures by the driver's pool)",
        risk="the time of one run",
    ),
)

STOP: tuple[Rule, ...] = (
    Rule(
        id="target-reached",
        kind="stop",
        when="the configuration holds at the largest context that was asked for",
        holds=lambda case: case.sit.stable(case.run).ok and case.config.n_ctx >= case.goal,
        why="this is it: the target holds, and a change could only lose",
        source="measured in this session",
    ),
    Rule(
        id="speed-is-the-limit",
        kind="stop",
        when="the operator's speed floor ended the climb, and the pair of types has its kernel",
        holds=lambda case: case.cause == "speed",
        why="decode speed is what ends the climb, and no memory lever raises it",
        source="measured in this session",
    ),
    Rule(
        id="recall-is-the-limit",
        kind="stop",
        when="recall ended the climb with keys of 8 bits or more",
        holds=lambda case: case.cause == "recall" and bits_of(case.config.type_k) >= 8,
        why="recall is what ends the climb, and no memory lever brings it back",
        source="measured in this session",
    ),
    Rule(
        id="quality-is-the-limit",
        kind="stop",
        when="quality ended the climb with keys of 8 bits or more",
        holds=lambda case: case.cause == "quality" and bits_of(case.config.type_k) >= 8,
        why="quality is what ends the climb, and no memory lever brings it back",
        source="measured in this session",
    ),
)

VOID: tuple[Rule, ...] = (
    Rule(
        id="comparison-void",
        kind="void",
        when="the engine's build or the driver is not the same in two runs that are compared",
        holds=lambda case: bool(voided(case.sit.state, case.run)),
        why="another engine or driver than in the run it is compared with voids the comparison",
        source="llama.cpp PR #28079, #23907: the same options do other things in another build",
        figures=lambda case: ", ".join(
            f"{m.variable} {m.before} before, {m.after} now" for m in voided(case.sit.state, case.run)
        ),
    ),
)
