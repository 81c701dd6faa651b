"""Facts of an engine that has words of its own (`actual`), in the terms of llama.cpp's that everything else reads.

For the eras of Ollama whose runner prints no `llama_context` lines: one context, made of what the load request and
the lines by device prove. Nothing is added to what they say.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kvtui.logs.facts import BufferFacts, CacheFacts, ContextFacts, EngineFacts, SlotFacts

_UNITS = (("b", 2.0**-20), ("kib", 2.0**-10), ("mib", 1.0), ("gib", 1024.0))
_LAST_DIGIT = 0.1


def in_llama_terms(facts: EngineFacts) -> EngineFacts:
    """`facts` with a context, its caches, buffers and slots where only `actual` told of them; else as they are."""
    told = facts.actual
    if not told or facts.contexts or told.get("n_ctx") is None:
        return facts
    line = facts.lines.get("request", facts.lines.get("command"))
    parallel = told.get("num_parallel")
    share = told["n_ctx"] // parallel if parallel else None
    on_gpu, layers = told.get("layers_gpu"), told.get("layers_total")
    placed = None if on_gpu is None or layers is None else (on_gpu, layers)
    return replace(
        facts,
        contexts=(_context(told, share, line),),
        slots=facts.slots or (SlotFacts(parallel, share, False, line) if parallel else None),
        model_buffers=facts.model_buffers or _buffers(told, "weights", line),
        offloaded=facts.offloaded or placed,
    )


def _context(told: dict[str, Any], share: int | None, line: int | None) -> ContextFacts:
    flash = told.get("flash_attn")
    kv = _buffers(told, "kv", line)
    values = {
        "n_ctx": told["n_ctx"],
        "n_ctx_seq": share,
        "n_seq_max": told.get("num_parallel"),
        "n_batch": told.get("num_batch"),
        "n_ubatch": told.get("num_batch"),
        "kv_unified": False if told.get("num_parallel") else None,
        "flash_attn": None if flash is None else "enabled" if flash else "disabled",
    }
    known = {name: value for name, value in values.items() if value is not None}
    return ContextFacts(
        **known,
        caches=_caches(told, kv, line),
        kv_buffers=kv,
        compute_buffers=_buffers(told, "compute", line),
        lines=dict.fromkeys(known, line) if line is not None else {},
    )


def _caches(told: dict[str, Any], kv: tuple[BufferFacts, ...], line: int | None) -> tuple[CacheFacts, ...]:
    kind = told.get("kv_type")
    key, value = told.get("kv_type_k", kind), told.get("kv_type_v", kind)
    if key is None or value is None:
        return ()
    digits = [_LAST_DIGIT * scale for unit, scale in _UNITS for _ in told.get(f"kv_{unit}_by_device", {})]
    return (
        CacheFacts(
            "full",
            type_k=key,
            type_v=value,
            size_mib=sum(b.mib for b in kv) if kv else None,
            digit_mib=sum(digits) if digits else None,
            line=line,
        ),
    )


def _buffers(told: dict[str, Any], family: str, line: int | None) -> tuple[BufferFacts, ...]:
    return tuple(
        BufferFacts(device, size * scale, line)
        for unit, scale in _UNITS
        for device, size in told.get(f"{family}_{unit}_by_device", {}).items()
    )
