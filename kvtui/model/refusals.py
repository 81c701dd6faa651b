"""Why the engine makes no context of a request (llama.cpp b11434), in the order of its own checks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvtui.model.cache_types import CACHE_TYPES, CacheType

if TYPE_CHECKING:
    from kvtui.model.geometry import Geometry
    from kvtui.model.request import ContextRequest

MAX_SEQUENCES = 256


def flash_attention(geometry: Geometry, request: ContextRequest) -> bool:
    """Whether the context is laid out for flash attention (`auto` is, until the probe says otherwise)."""
    return geometry.flash_attn and request.flash_attn != "off"


def refusal(geometry: Geometry, request: ContextRequest, asked: int, n_seq: int, n_tokens: int) -> str | None:
    """Why the engine makes no such context, None where it does.

    `asked` is the context before padding; `n_tokens` the micro-batch that the engine sizes its graphs for.
    """
    if geometry.refused:
        return geometry.refused
    for name in (request.type_k, request.type_v):
        if name not in CACHE_TYPES:
            return f"unsupported cache type: {name}"
    if request.n_seq_max > MAX_SEQUENCES:
        return f"at most {MAX_SEQUENCES} sequences are possible, {request.n_seq_max} were asked for"
    if asked == 0:
        return "no context size was given and the file does not say what the model was trained for"
    types = CACHE_TYPES[request.type_k], CACHE_TYPES[request.type_v]
    return _type_refusal(geometry, request, *types) or _stream_refusal(geometry, request, n_seq, n_tokens)


def _stream_refusal(geometry: Geometry, request: ContextRequest, n_seq: int, n_tokens: int) -> str | None:
    if request.kv_unified:
        return None
    if geometry.one_stream and n_seq > 1:
        return f"the engine stops with several sequences of {geometry.arch} unless the context is unified"
    if geometry.even_batches and n_tokens % n_seq:
        return f"a micro-batch of {n_tokens} does not divide among {n_seq} sequences: the engine stops"
    return None


def _type_refusal(geometry: Geometry, request: ContextRequest, k: CacheType, v: CacheType) -> str | None:
    if geometry.equal_types and k.name != v.name:
        return f"the model keeps keys only: K and V types must be equal, not {k.name} and {v.name}"
    flash = flash_attention(geometry, request)
    if v.quantized and not flash:
        forced = "" if geometry.flash_attn else f" and the engine forces it off for {geometry.arch}"
        return f"a quantized V cache ({v.name}) needs flash attention{forced}"
    if flash:
        for letter, kind, heads in (("K", k, 0), ("V", v, 1)):
            for pair in geometry.heads if kind.quantized else ():
                if pair[heads] % kind.block:
                    return (
                        f"{letter} cache type {kind.name} stores blocks of {kind.block} values, "
                        f"which do not divide the head length of {pair[heads]}"
                    )
    return None
