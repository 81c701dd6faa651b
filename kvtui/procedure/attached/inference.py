"""Which KV types fit the memory that a process holds, where its log proves none. Inferred, never proven.

For every pair of types the process should hold: weights + KV (exact, from the model file) + everything else. The
rest (compute buffers, runtime, tokenizer, repacked weights) is not printed either, so that it is a range: bounds
that llama.cpp b11434 keeps with room to spare, listed at `gpu_rest` and `host_rest`. A pair is possible when the
measured memory lies in its range. A conclusion is drawn only when the possible pairs all take the same bytes.

The engine clears its KV buffers when it makes them (`ggml_backend_buffer_clear` in llama-kv-cache.cpp), so that they
are resident from the start, on the host too; compute buffers become resident only as far as they are used.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from kvtui.core.units import MIB, size
from kvtui.model.context import plan
from kvtui.model.geometry import Geometry
from kvtui.model.header import ArrayInfo, Header
from kvtui.model.request import ContextRequest

Basis = Literal["gpu", "host"]
Pair = tuple[str, str]

USUAL: tuple[Pair, ...] = (
    ("f32", "f32"),
    ("f16", "f16"),
    ("q8_0", "q8_0"),
    ("q8_0", "q4_0"),
    ("q5_1", "q5_1"),
    ("q5_0", "q5_0"),
    ("q4_1", "q4_1"),
    ("q4_0", "q4_0"),
)
"""Pairs that are looked at beside the one asked for. bf16 takes what f16 takes, iq4_nl what q4_0 takes."""

_SAME_SIZE = {
    "f16": "f16 or bf16",
    "bf16": "f16 or bf16",
    "q4_0": "q4_0 or iq4_nl",
    "iq4_nl": "q4_0 or iq4_nl",
}
_REPACKED = frozenset(("Q4_0", "Q4_K", "Q5_K", "Q6_K", "Q8_0", "Q2_K", "Q3_K", "IQ4_NL", "MXFP4"))
_CUDA_LOW, _CUDA_HIGH = 120 * MIB, 900 * MIB
_PROGRAM_LOW, _PROGRAM_HIGH = 4 * MIB, 96 * MIB
_TOKEN_LOW, _TOKEN_HIGH = 40, 400
_MIX_HIDDEN, _MIX_FEED = 10, 4
_CELL_LOW, _CELL_HIGH = 16, 64
_WARM_UP, _FIRST_CELLS = 8, 1024
_PLAIN = ("f16", "bf16", "f32")


@dataclass(frozen=True, slots=True)
class Range:
    """Bytes from `low` to `high`."""

    low: int
    high: int

    def __add__(self, other: Range) -> Range:
        return Range(self.low + other.low, self.high + other.high)


@dataclass(frozen=True, slots=True)
class Candidate:
    """One pair of types: its KV in bytes, and all that the process should hold with it."""

    pair: Pair
    kv_bytes: int
    total: Range

    def away(self, measured: int) -> int:
        """Bytes by which `measured` lies outside the range, 0 inside."""
        return max(self.total.low - measured, measured - self.total.high, 0)


@dataclass(frozen=True, slots=True)
class Inference:
    """`types` as they are written (`q8_0/q8_0`), None where no conclusion can be drawn, for which `why` says what is
    possible and what is not. `expected_bytes` is the middle of the range and `tolerance_bytes` its half; the runner-up
    is the nearest pair of another size, `runner_up_away_bytes` beyond its own range (0: it is possible too).
    """

    types: str | None
    basis: Basis
    measured_bytes: int | None
    why: str
    expected_bytes: int | None = None
    tolerance_bytes: int | None = None
    runner_up: str | None = None
    runner_up_away_bytes: int | None = None


def infer(measured: int, basis: Basis, candidates: tuple[Candidate, ...]) -> Inference:
    """What the measured bytes leave possible. Pure arithmetic: see the module for what the ranges are."""
    if not candidates:
        return Inference(None, basis, measured, "what the KV would take cannot be told from the model file")
    nearest = sorted(candidates, key=lambda c: (c.away(measured), abs(_middle(c.total) - measured)))
    best = nearest[0]
    other = next((c for c in nearest if c.kv_bytes != best.kv_bytes), None)
    types, why = _conclusion(measured, nearest, other)
    return Inference(
        types,
        basis,
        measured,
        why,
        expected_bytes=_middle(best.total),
        tolerance_bytes=_half(best.total),
        runner_up=None if other is None else written(other.pair),
        runner_up_away_bytes=None if other is None else other.away(measured),
    )


def _conclusion(measured: int, nearest: list[Candidate], other: Candidate | None) -> tuple[str | None, str]:
    best = nearest[0]
    if best.away(measured) > 0:
        away = size(best.away(measured))
        return (
            None,
            f"{size(measured)} fit no pair of types: the nearest, {written(best.pair)}, is {away} away",
        )
    possible = [written(c.pair) for c in nearest if c.away(measured) == 0]
    if any(c.kv_bytes != best.kv_bytes and c.away(measured) == 0 for c in nearest):
        excluded = [written(c.pair) for c in nearest if c.away(measured) > 0]
        rest = f"; not possible: {', '.join(excluded)}" if excluded else ""
        near = f"which lie closer than ±{size(_half(best.total))}"
        return None, f"{size(measured)} are possible with {', '.join(possible)}, {near}{rest}"
    away = "" if other is None else f"; the next, {written(other.pair)}, is {size(other.away(measured))} off"
    expected = f"{size(_middle(best.total))} ±{size(_half(best.total))}"
    return written(best.pair), f"{size(measured)} measured, {expected} expected{away}"


def candidates(
    header: Header,
    geometry: Geometry,
    request: ContextRequest,
    fixed: Range,
    basis: Basis,
    *,
    has_worked: bool = True,
) -> tuple[Candidate, ...]:
    """The usual pairs and the one in `request`, each with what the process should hold: `fixed` (weights and the rest),
    KV and compute buffers, on the host also 16 to 64 bytes that each cell keeps beside its rows (position, shift,
    sequences: 48 in b11434). A host that has not `has_worked` yet has touched little of those. Empty where the
    geometry is not exact."""
    found = []
    for pair in dict.fromkeys(((request.type_k, request.type_v), *USUAL)):
        wanted = replace(request, type_k=pair[0], type_v=pair[1])
        context = plan(geometry, wanted)
        if context.kv_bytes is None or context.exactness != "exact":
            continue
        worst = compute_bytes(header, wanted, context.n_ctx, basis, has_worked=has_worked)
        if basis == "gpu":
            worst += _scratch(geometry, pair, context.n_ctx)
        total = fixed + Range(context.kv_bytes, context.kv_bytes + worst)
        if basis == "host":
            n_cells = sum(cache.cells * cache.streams for cache in context.caches)
            total += Range(_CELL_LOW * n_cells, _CELL_HIGH * n_cells)
        found.append(Candidate(pair, context.kv_bytes, total))
    return tuple(found)


def gpu_rest(devices: int) -> Range:
    """Runtime on GPUs: context and libraries, 120 to 900 MiB for each device that is used."""
    return Range(_CUDA_LOW, _CUDA_HIGH * max(1, devices))


def host_rest(header: Header, *, repack: bool, prompt_cache_bytes: int) -> Range:
    """Host memory beside KV and compute: program and libraries 4 to 96 MiB, 40 to 400 bytes per token of the
    vocabulary, weights that are copied into another order (any of those types), saved prompts."""
    n_vocab = _vocabulary(header)
    repacked = sum(
        t.n_bytes
        for t in header.tensors
        if t.type_name.upper() in _REPACKED and not t.name.startswith("token_embd")
    )
    high = _PROGRAM_HIGH + n_vocab * _TOKEN_HIGH + (repacked if repack else 0) + prompt_cache_bytes
    return Range(_PROGRAM_LOW + n_vocab * _TOKEN_LOW, high)


def compute_bytes(
    header: Header, request: ContextRequest, n_ctx: int, basis: Basis, *, has_worked: bool
) -> int:
    """The most that compute and output buffers hold: ten hidden, four feed-forward rows per token of the micro-batch,
    the mask in f16 and f32, the scores of all heads without flash attention, and logits (of the micro-batch on GPUs, as
    builds before 2026 reserve them; of the slots on the host). On a host that has only warmed up: of eight tokens in
    the first cells."""
    n_ubatch = min(request.n_ubatch, request.n_batch, n_ctx)
    n_tokens = n_ubatch if basis == "gpu" or has_worked else min(n_ubatch, _WARM_UP)
    hidden = header.integer("embedding_length") or 8192
    feed = _largest(header, "feed_forward_length", 4 * hidden)
    n_outputs = n_ubatch if basis == "gpu" else max(_WARM_UP, request.n_seq_max)
    worst = n_tokens * 4 * (_MIX_HIDDEN * hidden + _MIX_FEED * feed) + n_outputs * _vocabulary(header) * 4
    n_cells = n_ctx if n_tokens == n_ubatch else min(n_ctx, _FIRST_CELLS)
    worst += n_cells * n_tokens * 6
    if request.flash_attn != "on" and request.type_v in _PLAIN:
        worst += n_cells * n_tokens * _largest(header, "attention.head_count", 64) * 4
    return worst


def written(pair: Pair) -> str:
    """`q8_0/q8_0`; types that take the same bytes are named together."""
    k, v = pair
    if k == v and k in _SAME_SIZE:
        return " or ".join(f"{name}/{name}" for name in _SAME_SIZE[k].split(" or "))
    return f"{k}/{v}"


def _scratch(geometry: Geometry, pair: Pair, n_ctx: int) -> int:
    """Flash attention on CUDA copies the widest layer of a quantized cache to f16."""
    if all(name in _PLAIN for name in pair):
        return 0
    widest = max((layer.k + layer.v for shape in geometry.caches for layer in shape.layers), default=0)
    return n_ctx * widest * 2


def _middle(span: Range) -> int:
    return (span.low + span.high) // 2


def _half(span: Range) -> int:
    return (span.high - span.low) // 2


def _vocabulary(header: Header) -> int:
    tokens = header.metadata.get("tokenizer.ggml.tokens")
    return tokens.length if isinstance(tokens, ArrayInfo) else 0


def _largest(header: Header, key: str, default: int) -> int:
    value = header.metadata.get(f"{header.arch}.{key}")
    if isinstance(value, tuple):
        numbers = [int(n) for n in value if not isinstance(n, bool)]
        return max(numbers, default=default)
    return value if isinstance(value, int) and not isinstance(value, bool) else default
