"""What vLLM changes without an error."""

from __future__ import annotations

from collections.abc import Iterator

from kvtui.logs.findings.entry import Entry, Hit, View
from kvtui.logs.findings.running import of


def _narrow(view: View) -> Iterator[Hit]:
    actual = view.facts.actual or {}
    concurrency, n_ctx = actual.get("max_concurrency"), actual.get("n_ctx")
    line = view.facts.lines.get("actual.max_concurrency")
    if (
        view.facts.engine == "vllm"
        and isinstance(concurrency, float)
        and concurrency < 2
        and isinstance(n_ctx, int)
    ):
        yield Hit(
            f"The pool holds {concurrency:.2f} requests of {n_ctx:,} tokens.",
            "--max-model-len: shorter, or --kv-cache-dtype fp8",
            (line,) if line else (),
        )


def _graphs(view: View) -> Iterator[Hit]:
    actual = view.facts.actual or {}
    graphs, pool = actual.get("graph_gib"), actual.get("kv_gib")
    line = view.facts.lines.get("actual.graph_gib")
    if isinstance(graphs, float) and isinstance(pool, float) and 0 < pool < graphs:
        yield Hit(
            f"CUDA graphs take {graphs:.2f} GiB, the KV pool {pool:.2f} GiB.",
            "--max-num-seqs: fewer sizes to capture (or --enforce-eager)",
            (line,) if line else (),
        )


ENTRIES = (
    Entry(
        "vllm-kv-uncalibrated",
        "warning",
        "The fp8 cache runs without calibrated scales",
        "`Using KV cache scaling factor 1.0 for fp8_e4m3`",
        "Values beyond the type's range are cut: quality has to be measured.",
        "a checkpoint with k/v scales, or --kv-cache-dtype auto",
        "vllm#12543, #4827",
        of("vllm-kv-uncalibrated", "{0} is used with a scale of 1.0.", "--kv-cache-dtype auto"),
    ),
    Entry(
        "vllm-fp8-slow-backend",
        "warning",
        "The fp8 cache moved attention to a slower backend",
        "`Cannot use FlashAttention-2 backend for FP8 KV cache`",
        "The type was kept, the kernel was not.",
        "the attention backend: FlashInfer",
        "vllm#8409",
        of("vllm-fp8-slow", "FlashAttention does not read this type.", "the attention backend: FlashInfer"),
    ),
    Entry(
        "vllm-quant-algo-unknown",
        "warning",
        "The checkpoint's KV scheme is unknown to this version",
        "`Unknown kv_cache_quant_algo`",
        "The cache silently has 16 bits.",
        "--kv-cache-dtype fp8",
        "vLLM config (0.33)",
        of("vllm-quant-algo-unknown", "The cache falls back to the model's type.", "--kv-cache-dtype"),
    ),
    Entry(
        "vllm-hybrid-off",
        "warning",
        "The hybrid KV cache manager is off",
        "`Hybrid KV cache manager is disabled`, `KV cache page sizes cannot be unified`",
        "Sliding-window layers are kept in full: more memory per token.",
        "",
        "vLLM v1/core/kv_cache_utils.py (0.33)",
        of("vllm-hybrid-off", "Every layer is cached as full attention.", ""),
    ),
    Entry(
        "vllm-backend-forced",
        "info",
        "The attention backend was forced by the model",
        "`.. forcing X backend`",
        "Speeds do not compare with runs of another backend.",
        "",
        "vLLM platforms (0.25)",
        of("vllm-backend-forced", "{0} is used.", ""),
    ),
    Entry(
        "vllm-env-ignored",
        "warning",
        "An environment variable is not known to this version",
        "`Unknown vLLM environment variable detected: VLLM_ATTENTION_BACKEND`",
        "The backend that was asked for is not the one in use.",
        "--attention-backend",
        "vLLM envs.py (0.22)",
        of("vllm-env-ignored", "{0} has no effect.", "--attention-backend"),
    ),
    Entry(
        "vllm-ctx-auto-fit",
        "warning",
        "vLLM shortened the context to fit",
        "`Auto-fit max_model_len: reduced from A to B`",
        "The length is what memory was left for.",
        "--max-model-len: state it",
        "vLLM v1/core/kv_cache_utils.py (0.33)",
        of("vllm-auto-fit", "From {0} to {1} tokens.", "--max-model-len"),
    ),
    Entry(
        "vllm-pool-narrow",
        "warning",
        "The pool holds fewer than two full-length requests",
        "`Maximum concurrency for N tokens per request` below 2",
        "A second long request waits or preempts the first.",
        "--max-model-len",
        "vllm#10517",
        _narrow,
    ),
    Entry(
        "vllm-graphs-large",
        "warning",
        "CUDA graphs take more memory than the KV pool",
        "`Graph capturing finished .. took X GiB` above `Available KV cache memory`",
        "The memory that graphs take is missing from the pool.",
        "--max-num-seqs",
        "vLLM v1/worker/gpu_worker.py (0.21)",
        _graphs,
    ),
)
