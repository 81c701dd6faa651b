"""Failures by phase: what was wanted, where, and the one variable that gives room."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from kvtui.logs.facts import FailureFacts, FailurePhase
from kvtui.logs.findings.entry import Detector, Entry, Hit, View

_LLAMA = "llama.cpp ggml-cuda.cu, ggml-alloc.c, src/llama-context.cpp (b11434)"

_OOM: tuple[tuple[FailurePhase, str, str, str, str], ...] = (
    (
        "weights",
        "The weights do not fit",
        "-ngl: fewer layers on the GPU; then a smaller quantization of the model",
        "No context length helps here: the model itself is too large for the device.",
        _LLAMA + "; ollama/ollama#17482",
    ),
    (
        "kv",
        "The KV cache does not fit",
        "-c: a shorter context; then -ctk/-ctv q8_0",
        "The weights fitted: what is left after them is the budget of the cache.",
        _LLAMA + "; vllm#2418",
    ),
    (
        "recurrent",
        "The recurrent state does not fit",
        "-np 1: the state exists once per sequence, whatever the context",
        "A shorter context does not help: the state's size does not depend on it.",
        "llama.cpp src/llama-memory-recurrent.cpp (b11434); unsloth#6312",
    ),
    (
        "compute",
        "The compute buffer does not fit",
        "-ub: half of it; the buffer grows with the micro-batch",
        "Without flash attention it also grows with the context: look at that first.",
        "llama.cpp #16725, #26297",
    ),
    (
        "mmproj",
        "The vision projector does not fit",
        "--no-mmproj-offload",
        "Fit and most budgets do not count the projector's weights and its graph.",
        "llama.cpp #18111, #21874",
    ),
    (
        "prefill",
        "Memory ran out while the engine worked",
        "-ub: half of it; a long prefill needs more than start-up reserved",
        "An allocation at start is no proof of stability: transients come with the first long prompt.",
        "llama.cpp #23446, #24166",
    ),
)


def _oom(phase: FailurePhase, change: str) -> Detector:
    def detect(view: View) -> Iterator[Hit]:
        for failure in view.facts.failures:
            if failure.kind == "oom" and failure.phase == phase:
                yield Hit(_wanted(failure), change, (failure.line,) if failure.line else ())

    return detect


def _wanted(failure: FailureFacts) -> str:
    size = f"{failure.wanted_mib:,.2f} MiB " if failure.wanted_mib is not None else "An allocation "
    where = f" on {failure.device}" if failure.device else ""
    return f"{size}was refused{where}."


def _other_oom(view: View) -> Iterator[Hit]:
    known = {phase for phase, *_ in _OOM}
    for failure in view.facts.failures:
        if failure.kind == "oom" and failure.phase not in known:
            yield Hit(_wanted(failure), "-c: a shorter context", (failure.line,) if failure.line else ())


def _refusal(test: Callable[[FailureFacts], bool], why: str, change: str) -> Detector:
    def detect(view: View) -> Iterator[Hit]:
        for failure in view.facts.failures:
            if failure.kind == "refused" and test(failure):
                yield Hit(why or failure.text, change, (failure.line,) if failure.line else ())

    return detect


def _needs_flash(failure: FailureFacts) -> bool:
    return "flash_attn" in failure.text or "Flash Attention" in failure.text


def _block(failure: FailureFacts) -> bool:
    return "does not divide" in failure.text


def _unequal(failure: FailureFacts) -> bool:
    return "does not support different" in failure.text


def _argument(failure: FailureFacts) -> bool:
    return failure.phase == "arguments" and "Error:" not in failure.text


def _small_pool(failure: FailureFacts) -> bool:
    return failure.phase == "kv" and "Error:" in failure.text


def _taken(failure: FailureFacts) -> bool:
    return "is less than desired" in failure.text


def _no_backend(failure: FailureFacts) -> bool:
    return failure.phase == "arguments" and "Error:" in failure.text


def _crash(view: View) -> Iterator[Hit]:
    for failure in view.facts.failures:
        if failure.kind == "crash":
            yield Hit(f"It ended in the phase {failure.phase}.", "", (failure.line,) if failure.line else ())


_OOM_ENTRIES = tuple(
    Entry(
        f"oom-{phase}",
        "error",
        title,
        "`allocating N MiB on device D: .. out of memory` and the lines round it that say for what",
        about,
        change,
        source,
        _oom(phase, change),
    )
    for phase, title, change, about, source in _OOM
)

ENTRIES = (
    *_OOM_ENTRIES,
    Entry(
        "oom",
        "error",
        "An allocation was refused",
        "a refused allocation that the log does not explain",
        "What was wanted is not in the log; the context is the cheapest to give up.",
        "-c",
        _LLAMA,
        _other_oom,
    ),
    Entry(
        "v-quant-needs-fa",
        "error",
        "A quantized V cache needs flash attention",
        "`quantized V cache requires flash_attn`, `V cache quantization requires flash_attn`",
        "The context was not created: V can be quantized only where flash attention reads it.",
        "-fa on (or auto); else -ctv f16",
        "llama.cpp #10378, #28524; ollama/ollama#15043",
        _refusal(_needs_flash, "V is quantized and flash attention is off.", "-fa on (or auto)"),
    ),
    Entry(
        "kv-block-size",
        "error",
        "The KV type's block does not divide the head size",
        "`K cache type T with block size B does not divide n_embd_head_k=N`",
        "All quantized types have blocks of 32 values: some layer's head is no multiple of it.",
        "-ctk/-ctv f16",
        "llama.cpp src/llama-context.cpp (b11434), PR #21586",
        _refusal(_block, "", "-ctk/-ctv f16"),
    ),
    Entry(
        "kv-types-must-match",
        "error",
        "This model needs equal K and V types",
        "`model does not support different K (A) and V (B) cache types`",
        "Models with latent attention keep V inside K: there is one cache and one type.",
        "-ctv: the same type as -ctk",
        "llama.cpp src/llama-context.cpp (b11434)",
        _refusal(_unequal, "", "-ctv: the same type as -ctk"),
    ),
    Entry(
        "argument-refused",
        "error",
        "The engine does not know an argument or its value",
        "`error while handling argument`, `Unsupported cache type`, `unknown argument`",
        "Forks and versions differ in the types and options that they know.",
        "the option that the line names",
        "llama.cpp common/arg.cpp (b11434)",
        _refusal(_argument, "", "the option that the line names"),
    ),
    Entry(
        "vllm-pool-too-small",
        "error",
        "The KV pool cannot hold one request of the full length",
        "`To serve at least one request ..`, `.. maximum number of tokens that can be stored in KV cache`,"
        " `No available memory for the cache blocks`",
        "vLLM does not spill: it refuses to start.",
        "--max-model-len: at most what the error says",
        "vllm#2418, #10517, #8185",
        _refusal(_small_pool, "", "--max-model-len"),
    ),
    Entry(
        "vllm-memory-taken",
        "error",
        "Less memory is free than vLLM was told to take",
        "`Free memory on device .. is less than desired GPU memory utilization`",
        "The share counts of the whole card: a desktop or another process already holds part of it.",
        "--gpu-memory-utilization: below the free share",
        "vllm#14452",
        _refusal(_taken, "", "--gpu-memory-utilization"),
    ),
    Entry(
        "vllm-kv-dtype-unsupported",
        "error",
        "No attention backend takes this KV type on this device",
        "`No valid attention backend found`, `Selected backend .. is not valid`, `kv-cache is not supported`",
        "Backends differ in the types that they read, and devices in the backends that they run.",
        "--kv-cache-dtype: auto, or one that the device's backends take",
        "vllm#7714, #24577, #12543",
        _refusal(_no_backend, "", "--kv-cache-dtype"),
    ),
    Entry(
        "engine-crashed",
        "error",
        "The engine ended abnormally",
        "an assertion, a signal or a device error that is not out of memory",
        "What ran before a crash is no evidence that the configuration works.",
        "",
        "llama.cpp ggml/src/ggml.c (b11434)",
        _crash,
    ),
)
