"""Flash attention: asked, proven, refused, or forced without a probe."""

from __future__ import annotations

from collections.abc import Iterator

from kvtui.logs.findings.entry import Entry, Hit, View


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


ENTRIES = (
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
