"""The equation, DESIGN's worked example and the conventional tables."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kvtui.core.units import GIB
from kvtui.model.budget import Assumptions, budget, largest_context
from kvtui.model.context import plan
from kvtui.model.request import ContextRequest

LLAMA_32 = {"block_count": 32, "attention__head_count": 32, "attention__head_count_kv": 8}
LLAMA_64 = {
    "block_count": 64,
    "attention__head_count": 64,
    "attention__head_count_kv": 8,
    "embedding_length": 8192,
}
CARD_16 = Assumptions(
    total_bytes=16 * GIB,
    reserve_bytes=0,
    runtime_bytes=int(1.2 * GIB),
    runtime_measured=False,
    margin_bytes=1 * GIB,
)


def test_worked_example(geometry_of) -> None:
    shape = geometry_of("llama", **LLAMA_32)
    left = budget(int(10.8 * GIB), CARD_16).kv_budget_bytes
    assert left / GIB == pytest.approx(3.0, abs=0.01)
    # 3 GiB / (2 * 32 layers * 1024 values * 34/32 bytes) = 46,260 tokens; "45K" is 45 * 1024 = 46,080 and fits.
    q8 = largest_context(shape, ContextRequest(0, type_k="q8_0", type_v="q8_0"), 3 * GIB)
    assert 45 * 1024 <= q8.tokens < 46 * 1024
    q4 = largest_context(shape, ContextRequest(0, type_k="q4_0", type_v="q4_0"), 3 * GIB)
    assert 85 * 1024 <= q4.tokens < 87.5 * 1024
    assert q4.tokens == 87_296


@pytest.mark.parametrize(
    ("keys", "expected"), [(LLAMA_32, (4, 8, 16)), (LLAMA_64, (8, 16, 32))], ids=["32 layers", "64 layers"]
)
def test_conventional_tables(geometry_of, keys, expected) -> None:
    shape = geometry_of("llama", **keys)
    for ctx, gib in zip((32_768, 65_536, 131_072), expected, strict=True):
        made = plan(shape, ContextRequest(ctx))
        assert made.kv_bytes == gib * GIB
        assert made.conventional_kv_bytes == gib * GIB


def test_every_term_is_in_the_sum() -> None:
    terms = Assumptions(100, 10, 5, True, 7, speculative_bytes=3)
    made = budget(40, terms)
    assert (made.usable_bytes, made.kv_budget_bytes) == (90, 35)
    assert made.runtime_measured
    assert made.fits(35)
    assert not made.fits(36)
    assert made.over_bytes(36) == 1


def test_largest_context_is_the_largest(geometry_of) -> None:
    shape = geometry_of("llama", **LLAMA_32)
    for request in (
        ContextRequest(0),
        ContextRequest(0, n_seq_max=3),
        ContextRequest(0, n_seq_max=4, kv_unified=True),
    ):
        found = largest_context(shape, request, 2 * GIB)
        step = 256 if request.kv_unified else 256 * request.n_seq_max
        assert found.tokens % step == 0
        assert not found.capped
        here = plan(shape, replace(request, ctx=found.tokens)).kv_bytes
        above = plan(shape, replace(request, ctx=found.tokens + step)).kv_bytes
        assert here is not None
        assert above is not None
        assert here <= 2 * GIB < above


def test_cap_at_the_trained_context_is_said(geometry_of) -> None:
    shape = geometry_of("llama", **LLAMA_32, context_length=8192)
    found = largest_context(shape, ContextRequest(0), 3 * GIB)
    assert (found.tokens, found.capped) == (8192, True)
    assert found.by_memory is not None
    assert found.by_memory > 8192


def test_nothing_fits(geometry_of) -> None:
    shape = geometry_of("llama", **LLAMA_32)
    assert largest_context(shape, ContextRequest(0), 1000).tokens == 0
    assert largest_context(shape, ContextRequest(0), -GIB).tokens == 0


def test_refused_has_no_largest_context(geometry_of) -> None:
    shape = geometry_of("llama", **LLAMA_32)
    found = largest_context(shape, ContextRequest(0, type_v="q8_0", flash_attn="off"), 3 * GIB)
    assert found.tokens == 0
    assert found.refused is not None
    assert "flash attention" in found.refused


def test_state_alone_is_limited_by_training_only(geometry_of) -> None:
    shape = geometry_of("mamba", ssm__conv_kernel=4, ssm__inner_size=1024, ssm__state_size=16)
    found = largest_context(shape, ContextRequest(0), GIB)
    assert (found.tokens, found.by_memory, found.capped) == (131072, None, True)
