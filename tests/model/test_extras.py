"""What a context may cost beside its KV."""

from __future__ import annotations

from collections.abc import Callable

from kvtui.model.context import plan
from kvtui.model.extras import Extra, extras
from kvtui.model.geometry import Geometry
from kvtui.model.request import ContextRequest

GeometryOf = Callable[..., Geometry]
MIB = 1 << 20


def named(shape: Geometry, request: ContextRequest) -> dict[str, Extra]:
    return {e.name: e for e in extras(shape, request, plan(shape, request))}


def test_scratch_of_a_quantized_cache(geometry_of: GeometryOf) -> None:
    shape = geometry_of("qwen3", block_count=36, attention__head_count=32, attention__head_count_kv=8)
    assert "f16 scratch" not in named(shape, ContextRequest(32768))
    # 32,768 cells of 2 x 1,024 values in f16, as a public report measured for Qwen3-8B.
    assert (
        named(shape, ContextRequest(32768, type_k="q8_0", type_v="q8_0"))["f16 scratch"].n_bytes == 128 * MIB
    )
    # Keys alone are quantized: the whole layer is still copied.
    assert named(shape, ContextRequest(32768, type_k="q8_0"))["f16 scratch"].n_bytes == 128 * MIB


def test_speculation_of_a_hybrid(geometry_of: GeometryOf) -> None:
    keys = {
        "embedding_length": 5120, "attention__head_count": 24, "attention__head_count_kv": 4,
        "attention__key_length": 256, "attention__value_length": 256,
        "ssm__conv_kernel": 4, "ssm__inner_size": 6144, "ssm__state_size": 128, "ssm__group_count": 16,
    }  # fmt: skip
    shape = geometry_of("qwen35", block_count=65, nextn_predict_layers=1, **keys)
    found = named(shape, ContextRequest(32768))
    # Three more states of 149.625 MiB, and one f16 layer of 4,096 bytes per token.
    assert found["speculation"].n_bytes == int((3 * 149.625 + 128) * MIB)
    assert found["checkpoints"].n_bytes == int(32 * 149.625 * MIB)
    assert found["checkpoints"].place == "host"
    assert "speculation" not in named(geometry_of("qwen35", block_count=64, **keys), ContextRequest(32768))


def test_checkpoints_are_for_what_cannot_be_rolled_back(geometry_of: GeometryOf) -> None:
    shape = geometry_of("gemma3", attention__head_count=8, attention__sliding_window=512)
    assert "checkpoints" in named(shape, ContextRequest(8192))
    assert "checkpoints" not in named(shape, ContextRequest(8192, swa_full=True))
    one, four = (named(shape, ContextRequest(32768, n_seq_max=n))["checkpoints"].n_bytes for n in (1, 4))
    assert one is not None
    assert four == 4 * one


def test_nothing_for_a_context_that_is_not_made(geometry_of: GeometryOf) -> None:
    shape = geometry_of("llama", attention__head_count=8)
    assert named(shape, ContextRequest(8192, type_v="q8_0", flash_attn="off")) == {}
