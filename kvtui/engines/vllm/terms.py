"""What vLLM's log proves, in the terms of llama.cpp's that everything else reads: one context, one pool of cells.

vLLM's log names no type where `auto` was asked. It tells the pool twice, in GiB and in tokens, and with the model's
layers the quotient is the bytes of a token: that proves 16 bits or 8, as the two differ by a factor of two.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kvtui.core.errors import InputError
from kvtui.core.units import GIB
from kvtui.logs.facts import BufferFacts, CacheFacts, ContextFacts, EngineFacts, SlotFacts
from kvtui.model.hf.vllm import IN_FLIGHT, KvDtype, Pages, ServeRequest, fill, lay_out

_DEVICE = "GPU"
_TOLERANCE = 0.02
"""Of the tokens: the pool is told in hundredths of a GiB, and vLLM's versions count blocks a little differently."""


def layouts(model: str) -> dict[KvDtype, Pages]:
    """The layouts of 16 and 8 bits of `model`'s cache; empty where its configuration is not on this machine."""
    from kvtui.sources.open import open_model
    from kvtui.sources.source import HfModel

    try:
        found = open_model(model)
    except InputError:
        return {}
    if not isinstance(found, HfModel):
        return {}
    request = ServeRequest(in_flight=IN_FLIGHT)
    made: dict[KvDtype, Pages | None] = {"auto": lay_out(found.config, "auto", request)}
    made["fp8"] = lay_out(found.config, "fp8", request)
    return {dtype: pages for dtype, pages in made.items() if pages is not None}


def in_llama_terms(facts: EngineFacts, pages: dict[KvDtype, Pages]) -> EngineFacts:
    """`facts` with a context, its pool, the weights and the slots. `pages` are the model's layouts, empty: unknown."""
    told = facts.actual
    if not told or facts.contexts or told.get("n_ctx") is None:
        return facts
    sequences = _whole(facts.requested.get("max_num_seqs"))
    n_ctx = told["n_ctx"]
    batch = _whole(told.get("max_num_batched_tokens", facts.requested.get("max_num_batched_tokens")))
    values = {
        "n_ctx": n_ctx,
        "n_ctx_seq": n_ctx,
        "n_seq_max": sequences,
        "n_batch": batch,
        "n_ubatch": batch,
        "kv_unified": True,
        "flash_attn": "enabled",
    }
    known = {name: value for name, value in values.items() if value is not None}
    context = ContextFacts(
        **known,
        caches=_caches(facts, told, pages),
        kv_buffers=_buffer(facts, told, "kv_gib"),
        compute_buffers=_buffer(facts, told, "graph_gib"),
        lines={name: line for name in known if (line := _line(facts, name)) is not None},
    )
    return replace(
        facts,
        contexts=(context,),
        slots=facts.slots or SlotFacts(sequences, n_ctx, kv_unified=True, line=_line(facts, "n_ctx")),
        model_buffers=facts.model_buffers or _buffer(facts, told, "weights_gib_per_gpu"),
    )


def _caches(facts: EngineFacts, told: dict[str, Any], pages: dict[KvDtype, Pages]) -> tuple[CacheFacts, ...]:
    kind, line = told.get("kv_type"), _line(facts, "kv_type")
    asked = facts.requested.get("kv_cache_dtype", "auto")
    if kind is None or (asked == "auto" and str(kind) in ("bfloat16", "float16")):
        kind, line = by_arithmetic(told, pages), _line(facts, "kv_tokens")
    if kind is None:
        return ()
    gib = told.get("kv_gib")
    return (
        CacheFacts(
            "paged",
            cells=_whole(told.get("kv_tokens")),
            type_k=str(kind),
            type_v=str(kind),
            size_mib=gib * 1024 if isinstance(gib, int | float) else None,
            digit_mib=10.24,
            line=line,
        ),
    )


def by_arithmetic(told: dict[str, Any], pages: dict[KvDtype, Pages]) -> KvDtype | None:
    """`auto` (16 bits) or `fp8`, whichever layout gives the tokens that the log tells of its pool; None where neither
    does, where both do, or where a figure is missing."""
    tokens, gib, n_ctx = told.get("kv_tokens"), told.get("kv_gib"), told.get("n_ctx")
    if not tokens or not n_ctx or not isinstance(gib, int | float) or gib <= 0:
        return None
    fits = [
        dtype
        for dtype, layout in pages.items()
        if abs(fill(layout, round(gib * GIB), n_ctx).tokens / tokens - 1) <= _TOLERANCE
    ]
    return fits[0] if len(fits) == 1 else None


def _buffer(facts: EngineFacts, told: dict[str, Any], name: str) -> tuple[BufferFacts, ...]:
    gib = told.get(name)
    return (BufferFacts(_DEVICE, gib * 1024, _line(facts, name)),) if isinstance(gib, int | float) else ()


def _line(facts: EngineFacts, name: str) -> int | None:
    asked = {
        "n_seq_max": "max_num_seqs",
        "n_batch": "max_num_batched_tokens",
        "n_ubatch": "max_num_batched_tokens",
        "n_ctx_seq": "n_ctx",
    }.get(name, name)
    if name == "n_ctx" and "actual.n_ctx" not in facts.lines:
        return facts.lines.get("requested.max_model_len")
    return facts.lines.get(f"actual.{asked}", facts.lines.get(f"requested.{asked}"))


def _whole(value: Any) -> int | None:
    return value if type(value) is int else None
