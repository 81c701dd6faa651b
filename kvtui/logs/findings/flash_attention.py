"""Flash attention: asked, proven, refused, or forced without a probe."""

from __future__ import annotations

from collections.abc import Iterator

from kvtui.logs.findings.entry import Entry, Hit, View
from kvtui.logs.findings.placement import on_host


def _disabled(view: View) -> Iterator[Hit]:
    for context in view.contexts if view.facts.contexts else ():
        if context.flash_attn == "disabled" and context.flash_attn_requested == "auto":
            elsewhere = view.last("fa-elsewhere")
            where = f" {elsewhere.values[1]} has no kernel for it." if elsewhere else ""
            lines = (context.lines["flash_attn"],) + ((elsewhere.line,) if elsewhere else ())
            yield Hit(
                f"The engine's probe turned flash attention off for all layers.{where} The compute buffer then"
                " holds the whole KQ matrix and grows with context times micro-batch.",
                "-ctk/-ctv: a type and head size that the device has a kernel for",
                lines,
            )


def _off(view: View) -> Iterator[Hit]:
    asked = view.facts.requested.get("flash_attn")
    for context in view.contexts if view.facts.contexts else ():
        if context.flash_attn == "disabled" and context.flash_attn_requested != "auto" and asked == "on":
            yield Hit(
                "-fa on was asked, the context was made without it.", "-fa", (context.lines["flash_attn"],)
            )


def _forced(view: View) -> Iterator[Hit]:
    note = view.last("fa-forced")
    if note is not None:
        yield Hit(
            "A quantized V cache switches flash attention on without the probe that would show whether the device"
            " has a kernel: if it has none, the operation runs on the CPU.",
            "",
            (note.line,),
        )


def _vector_kernel(view: View) -> Iterator[Hit]:
    note = view.last("no-vector-kernel")
    if note is not None:
        yield Hit(
            f"The build has no vector kernel for {note.values[0]}/{note.values[1]}: each decode step converts K and V"
            " to f16 first.",
            "-ctv: the same type as -ctk",
            (note.line,),
        )


_NATIVE = {("f16", "f16"), ("bf16", "bf16"), ("q8_0", "q8_0"), ("q4_0", "q4_0")}
_CUDA_TYPES = {"f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "q5_0", "q5_1"}


def _pair(view: View) -> tuple[tuple[str, str], int] | None:
    """The KV types of a cache on a CUDA or ROCm device, with the line that proves them."""
    main = view.facts.main
    if main is None or not any(
        b.device.startswith(("CUDA", "ROCm")) and b.device[-1].isdigit() for b in main.kv_buffers
    ):
        return None
    for cache in main.caches:
        if cache.type_k and cache.type_v and cache.line is not None:
            return (cache.type_k, cache.type_v), cache.line
    return None


def _no_kernel(view: View) -> Iterator[Hit]:
    found = _pair(view)
    if found is None or view.facts.engine != "llama.cpp" or not view.facts.main:
        return
    (k, v), line = found
    info = view.facts.system_info or ""
    if (
        view.facts.main.flash_attn != "enabled"
        or (k, v) in _NATIVE
        or "FA_ALL_QUANTS = 1" in info
        or f"{k}-{v}" in info
    ):
        return
    if k not in _CUDA_TYPES or v not in _CUDA_TYPES:
        if k == "iq4_nl" or v == "iq4_nl":
            yield Hit(
                f"{k}/{v}: CUDA has no kernel for iq4_nl, attention runs on the CPU.",
                "-ctk/-ctv q4_0",
                (line,),
            )
        return
    yield Hit(
        f"{k}/{v} is not among the pairs of a default build: builds before September 2026 run attention on the CPU,"
        " later ones convert the cache at every step.",
        "-ctk/-ctv: q8_0/q8_0 or q4_0/q4_0",
        (line,),
    )


def _on_cpu(view: View) -> Iterator[Hit]:
    main, offloaded = view.facts.main, view.facts.offloaded
    if main is None or main.graph_splits is None or offloaded is None or offloaded[0] < offloaded[1]:
        return
    attention = sum(c.layers or 0 for c in main.caches if c.kind != "recurrent")
    gpus = {b.device for b in main.kv_buffers if not on_host(b)}
    weights_on_host = sum(b.mib for b in view.facts.model_buffers if on_host(b))
    weights = sum(b.mib for b in view.facts.model_buffers)
    kv_on_host = any(on_host(b) and b.mib for b in main.kv_buffers)
    if (
        main.flash_attn == "enabled"
        and gpus
        and not kv_on_host
        and weights_on_host < 0.3 * weights
        and attention
        and main.graph_splits > attention + len(gpus)
    ):
        yield Hit(
            f"The graph is cut into {main.graph_splits} parts though everything is on the GPU: about two per attention"
            " layer means that attention is computed on the CPU (inferred from the splits).",
            "-ctk/-ctv: a pair that the device has a kernel for",
            tuple(main.lines[k] for k in ("graph_splits", "flash_attn") if k in main.lines),
        )


ENTRIES = (
    Entry(
        "kv-no-cuda-kernel",
        "warning",
        "The pair of KV types has no kernel in a default CUDA build",
        "the types of a cache on CUDA or ROCm outside f16/f16, bf16/bf16, q8_0/q8_0, q4_0/q4_0",
        "Prefill drops 5 to 45 times, or decode converts the cache at every step, and nothing warns.",
        "-ctk/-ctv: an equal pair, q8_0 or q4_0",
        "llama.cpp #28455, #27109, #24485, PR #28079; ggml-cuda/fattn.cu (b11434)",
        _no_kernel,
    ),
    Entry(
        "fa-on-cpu",
        "warning",
        "Flash attention is on, but seems to run on the CPU",
        "`splits =` far above the devices with full offload and all KV on the GPU",
        "The GPU waits while the CPU computes attention; nothing warns.",
        "-ctk/-ctv",
        "llama.cpp ggml-cuda/fattn.cu, src/llama-context.cpp (b11434), #28455",
        _on_cpu,
    ),
    Entry(
        "fa-disabled",
        "warning",
        "Flash attention was refused by the device",
        "`Flash Attention not supported, set to disabled` after `flash_attn = auto`",
        "Without it the compute buffer grows with context times micro-batch, and V cannot be quantized.",
        "-ctk/-ctv, or the device",
        "llama.cpp src/llama-context.cpp resolve_fused_ops (b11434); thecodacus/llama.cpp#3",
        _disabled,
    ),
    Entry(
        "fa-off",
        "warning",
        "Flash attention is off though it was asked for",
        "`flash_attn = disabled` with -fa on",
        "Some architectures and older builds force it off.",
        "-fa",
        "llama.cpp src/llama-context.cpp (b11434); ollama/ollama#15043",
        _off,
    ),
    Entry(
        "fa-forced",
        "info",
        "Flash attention was switched on by the quantized V cache",
        "`enabling flash_attn since it is required for quantized V cache`",
        "The engine's own probe was skipped: only speed and graph splits show where it runs.",
        "",
        "llama.cpp src/llama-context.cpp llama_init_from_model (b11434)",
        _forced,
    ),
    Entry(
        "fa-no-vector-kernel",
        "warning",
        "No flash-attention vector kernel for this pair of KV types",
        "`no FlashAttention vector kernel compiled for K/V types A-B`",
        "Decode converts the cache to f16 at every step and slows down with depth; prefill does not.",
        "-ctv: the same type as -ctk",
        "llama.cpp ggml-cuda/fattn-vec (b11434), PR #28079",
        _vector_kernel,
    ),
)
