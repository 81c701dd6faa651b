"""The engine's rules for a context: padding, division, caps, windows, refusals."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvtui.model.cache_types import UPSTREAM
from kvtui.model.context import plan
from kvtui.model.geometry import Geometry
from kvtui.model.request import ContextRequest
from kvtui.model.shapes import CacheShape, LayerWidth

GeometryOf = Callable[..., Geometry]
GEMMA = Geometry(
    arch="gemma3",
    n_layer=6,
    n_ctx_train=32768,
    exactness="exact",
    caches=(
        CacheShape("non-SWA", (LayerWidth(5, 256, 256),), v_padded=256),
        CacheShape("SWA", tuple(LayerWidth(i, 256, 256) for i in range(5)), 512, sliding=True, v_padded=256),
    ),
    heads=((256, 256),) * 6,
)


@pytest.fixture
def llama(geometry_of: GeometryOf) -> Geometry:
    return geometry_of(
        "llama",
        context_length=32768,
        embedding_length=2048,
        attention__head_count=16,
        attention__head_count_kv=4,
    )


@pytest.fixture
def gemma(geometry_of: GeometryOf) -> Geometry:
    return geometry_of(
        "gemma3", block_count=18, embedding_length=640, context_length=32768, attention__head_count=4,
        attention__head_count_kv=1, attention__key_length=256, attention__value_length=256,
        attention__sliding_window=512,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("request_", "n_ctx", "n_ctx_seq", "usable"),
    [
        (ContextRequest(8192), 8192, 8192, 8192),
        (ContextRequest(1000), 1024, 1024, 1024),
        (ContextRequest(0), 32768, 32768, 32768),
        (ContextRequest(1000, n_seq_max=3), 1536, 512, 512),
        (ContextRequest(8192, n_seq_max=4), 8192, 2048, 2048),
        (ContextRequest(8192, n_seq_max=4, kv_unified=True), 8192, 8192, 8192),
        (ContextRequest(65536), 65536, 65536, 32768),
        (ContextRequest(65536, n_seq_max=2), 65536, 32768, 32768),
    ],
)
def test_padding_division_and_cap(
    llama: Geometry, request_: ContextRequest, n_ctx: int, n_ctx_seq: int, usable: int
) -> None:
    made = plan(llama, request_)
    assert (made.n_ctx, made.n_ctx_seq, made.usable_per_slot) == (n_ctx, n_ctx_seq, usable)


def test_batches_are_limited_by_the_context_as_asked(llama: Geometry) -> None:
    made = plan(llama, ContextRequest(1000, n_batch=2048, n_ubatch=4096))
    assert (made.n_batch, made.n_ubatch) == (1000, 1000)
    made = plan(llama, ContextRequest(8192, n_batch=2048, n_ubatch=0))
    assert (made.n_batch, made.n_ubatch) == (2048, 2048)


@pytest.mark.parametrize(
    ("request_", "cells", "streams", "mib"),
    [
        (ContextRequest(8192, type_k="q8_0", type_v="q8_0"), 1024, 1, 7.97),
        (ContextRequest(8192, n_seq_max=4, kv_unified=True, type_k="q8_0", type_v="q8_0"), 2560, 1, 19.92),
        (ContextRequest(8192, n_seq_max=4, type_v="q4_0"), 1024, 4, 38.44),
        (ContextRequest(65536, swa_full=True, type_k="iq4_nl", type_v="iq4_nl"), 65536, 1, 270.0),
        (ContextRequest(8192, n_ubatch=1024, type_k="q8_0", type_v="q8_0"), 1536, 1, 11.95),
        (ContextRequest(512), 512, 1, 7.5),
    ],
)
def test_sliding_cells(
    gemma: Geometry, request_: ContextRequest, cells: int, streams: int, mib: float
) -> None:
    # Figures of the real engine on Gemma 3 270M.
    swa = plan(gemma, request_).caches[1]
    assert (swa.kind, swa.cells, swa.streams) == ("SWA", cells, streams)
    assert swa.bytes / (1 << 20) == pytest.approx(mib, abs=0.006)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"type_v": "q8_0", "flash_attn": "off"}, "needs flash attention"),
        ({"type_k": "q9_9"}, "unsupported cache type: q9_9"),
        ({"type_v": "Q8_0"}, "unsupported cache type: Q8_0"),
        ({"n_seq_max": 257}, "at most 256 sequences"),
    ],
)
def test_refusals(llama: Geometry, options: dict[str, Any], reason: str) -> None:
    made = plan(llama, ContextRequest(8192, **options))
    assert made.refused is not None
    assert reason in made.refused
    assert made.caches == ()
    assert made.kv_bytes is None


def test_quantized_keys_alone_need_no_flash_attention(llama: Geometry) -> None:
    assert plan(llama, ContextRequest(8192, type_k="q8_0", flash_attn="off")).refused is None


@pytest.mark.parametrize(("k", "v"), [("q8_0", "f16"), ("f16", "q4_0")])
def test_block_must_divide_the_head(geometry_of: GeometryOf, k: str, v: str) -> None:
    shape = geometry_of("llama", embedding_length=1280, attention__head_count=16)
    made = plan(shape, ContextRequest(8192, type_k=k, type_v=v))
    assert made.refused is not None
    assert "head length of 80" in made.refused


def test_flash_attention_forced_off(geometry_of: GeometryOf) -> None:
    shape = geometry_of("grok", attention__head_count=32)
    assert plan(shape, ContextRequest(8192)).refused is None
    refused = plan(shape, ContextRequest(8192, type_v="q8_0", flash_attn="on")).refused
    assert refused is not None
    assert "forces it off for grok" in refused


def test_values_are_padded_to_the_widest_layer_without_flash_attention(geometry_of: GeometryOf) -> None:
    shape = geometry_of(
        "llama",
        block_count=2,
        embedding_length=1024,
        attention__head_count=8,
        attention__head_count_kv=[2, 8],
    )
    with_fa, without = (plan(shape, ContextRequest(1024, flash_attn=fa)) for fa in ("on", "off"))
    assert (with_fa.caches[0].v_bytes, without.caches[0].v_bytes) == (1024 * 1280 * 2, 1024 * 2048 * 2)
    assert with_fa.caches[0].k_bytes == without.caches[0].k_bytes


def test_types_of_forks_are_not_exact(llama: Geometry) -> None:
    made = plan(llama, ContextRequest(8192, type_k="turbo3", type_v="q6_0"))
    assert made.exactness == "approximate"
    assert made.refused is None
    assert any("turboquant" in note for note in made.notes)


def test_partial_blocks_are_not_exact(geometry_of: GeometryOf) -> None:
    shape = geometry_of("llama", embedding_length=1280, attention__head_count=16, attention__head_count_kv=1)
    made = plan(shape, ContextRequest(8192, type_k="q8_0", flash_attn="off"))
    assert (shape.exactness, made.exactness) == ("exact", "approximate")


def test_uneven_micro_batch_of_linear_attention(geometry_of: GeometryOf) -> None:
    shape = geometry_of("minimax-01", block_count=24, embedding_length=1024, attention__head_count=8)
    assert plan(shape, ContextRequest(12288, n_seq_max=3)).refused is not None
    assert plan(shape, ContextRequest(12288, n_seq_max=3, n_ubatch=510)).refused is None
    assert plan(shape, ContextRequest(12288, n_seq_max=3, kv_unified=True)).refused is None
    assert plan(shape, ContextRequest(12288, n_seq_max=4)).refused is None


def test_an_indexer_of_partial_blocks_is_not_exact(geometry_of: GeometryOf) -> None:
    shape = geometry_of(
        "minimax-m3", attention__head_count=16, attention__indexer__key_length=48, attention__indexer__top_k=8
    )
    assert plan(shape, ContextRequest(8192)).exactness == "exact"
    assert plan(shape, ContextRequest(8192, type_k="q8_0")).exactness == "approximate"


SEQUENCES = st.integers(1, 16)
TYPES = st.sampled_from(UPSTREAM)


@given(
    ctx=st.integers(1, 300_000),
    more=st.integers(0, 100_000),
    n_seq=SEQUENCES,
    unified=st.booleans(),
    kind=TYPES,
)
def test_more_context_never_costs_less(ctx: int, more: int, n_seq: int, unified: bool, kind: str) -> None:
    small, large = (
        plan(GEMMA, ContextRequest(n, n_seq_max=n_seq, kv_unified=unified, type_k=kind, type_v=kind))
        for n in (ctx, ctx + more)
    )
    assert small.kv_bytes is not None
    assert large.kv_bytes is not None
    assert small.kv_bytes <= large.kv_bytes
    assert small.n_ctx % 256 == 0
    assert small.n_ctx_seq * (1 if unified else n_seq) == small.n_ctx
    assert small.kv_bytes == sum(c.k_bytes + c.v_bytes for c in small.caches)


@given(ctx=st.integers(256, 300_000), n_seq=SEQUENCES, unified=st.booleans(), ubatch=st.integers(1, 4096))
def test_a_sliding_cache_never_exceeds_the_full_one(ctx: int, n_seq: int, unified: bool, ubatch: int) -> None:
    request = ContextRequest(ctx, n_seq_max=n_seq, kv_unified=unified, n_ubatch=ubatch)
    full, sliding = plan(GEMMA, request).caches
    assert sliding.cells <= full.cells
    assert sliding.cells % 256 == 0
    swa_full = plan(GEMMA, replace(request, swa_full=True)).caches
    assert swa_full[1].cells == full.cells
