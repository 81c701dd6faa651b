"""vLLM's pages, groups and pools, against what its own logs said of real models."""

from __future__ import annotations

from typing import Any

import pytest

from kvtui.model.hf.config import read_config
from kvtui.model.hf.vllm import Card, Group, KvDtype, Pages, ServeRequest, fill, lay_out

GIB = 1 << 30


def pages(request: ServeRequest | None = None, dtype: KvDtype = "auto", **raw: Any) -> Pages:
    made = lay_out(read_config({"torch_dtype": "bfloat16", **raw}, "c"), dtype, request or ServeRequest())
    assert made is not None
    return made


LLAMA_8B = {
    "model_type": "llama", "hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8,
    "num_hidden_layers": 32,
}  # fmt: skip
GEMMA4_26B = {
    "model_type": "gemma4_text", "num_hidden_layers": 30, "num_attention_heads": 16, "num_key_value_heads": 8,
    "head_dim": 256, "global_head_dim": 512, "num_global_key_value_heads": 2, "sliding_window": 1024,
    "layer_types": (["sliding_attention"] * 5 + ["full_attention"]) * 5,
}  # fmt: skip
# Model, GiB that the log gives to the cache, context, and what the log says of it. The GiB are rounded to 0.005.
LOGS: list[tuple[dict[str, Any], int, float, int, float, int]] = [
    (LLAMA_8B, 1, 4.75, 32_000, 1.22, 38_944),
    (
        {"model_type": "qwen2", "hidden_size": 1536, "num_attention_heads": 12, "num_key_value_heads": 2,
         "num_hidden_layers": 28}, 1, 70.35, 4096, 643.20, 2_634_544,
    ),
    (
        {"model_type": "qwen3_moe", "head_dim": 128, "num_attention_heads": 32, "num_key_value_heads": 4,
         "num_hidden_layers": 48}, 2, 5.93, 8196, 15.78, 129_504,
    ),
    (
        {"model_type": "qwen2", "hidden_size": 2048, "num_attention_heads": 16, "num_key_value_heads": 2,
         "num_hidden_layers": 36}, 1, 14.74, 4096, 104.82, 429_328,
    ),
    (
        {"model_type": "phi3", "hidden_size": 3072, "num_attention_heads": 32, "num_key_value_heads": 32,
         "num_hidden_layers": 32, "sliding_window": 2047}, 1, 13.06, 4096, 8.67, 35_648,
    ),
    (
        {"model_type": "qwen3", "head_dim": 128, "num_attention_heads": 32, "num_key_value_heads": 8,
         "num_hidden_layers": 36}, 2, 4.37, 4096, 15.52, 63_584,
    ),
    (GEMMA4_26B, 1, 84.68, 262_144, 14.92, 3_912_140),
]  # fmt: skip


@pytest.mark.parametrize(("raw", "gpus", "pool_gib", "ctx", "concurrency", "tokens"), LOGS)
def test_what_logs_of_vllm_say(
    raw: dict[str, Any], gpus: int, pool_gib: float, ctx: int, concurrency: float, tokens: int
) -> None:
    # Releases of that time counted one batch in flight; this one held 2,496 tokens where windows matter.
    made = pages(ServeRequest(tensor_parallel=gpus, in_flight=2496), **raw)
    pools = [fill(made, int((pool_gib + off) * GIB), ctx) for off in (-0.005, 0.005)]
    assert pools[0].concurrency - 0.005 <= concurrency <= pools[1].concurrency + 0.005
    # Before 0.25 the log's tokens were those of all blocks; since then what requests of that length take.
    low, high = (p.tokens if len(made.groups) > 1 else p.blocks * 16 for p in pools)
    assert low <= tokens <= high


def test_bytes_per_token() -> None:
    made = pages(**LLAMA_8B)
    assert made.groups == (Group("full", 32, 0, 16),)
    assert (made.bytes_per_token, made.bytes_per_block) == (131_072, 131_072 * 16)
    assert pages(dtype="fp8", **LLAMA_8B).bytes_per_token == 65_536
    assert made.request_bytes(131_072) == 16 * GIB
    assert made.blocks(131_073) == 8193
    assert pages(ServeRequest(block_size=32), **LLAMA_8B).blocks(131_073) == 4097
    many = {"model_type": "deepseek_v3", "num_hidden_layers": 61}
    for gpus in (1, 8):  # a latent is kept whole by each
        assert pages(ServeRequest(tensor_parallel=gpus), **many).bytes_per_token == 61 * 576 * 2
    assert pages(ServeRequest(tensor_parallel=16), **LLAMA_8B).bytes_per_token == 32 * 2 * 128 * 2
    scheme = {"kv_cache_scheme": {"type": "float", "num_bits": 8}}
    assert pages(quantization_config=scheme, **LLAMA_8B).bytes_per_token == 65_536


def test_groups_are_equal_and_padded() -> None:
    made = pages(model_type="gemma3_text", num_hidden_layers=34, sliding_window=1024)
    assert [(g.kind, g.layers, g.padding) for g in made.groups] == [("sliding", 5, 0)] * 5 + [
        ("sliding", 5, 1), ("full", 5, 0),
    ]  # fmt: skip
    assert made.bytes_per_block == 5 * 16 * 4 * 512 * 2
    # Windows: ceil((1023 + 4096) / 16) + 1 blocks in each of 6 groups.
    assert made.blocks(131_072) == 8192 + 6 * 321
    assert made.blocks(100) == 7 + 6 * 8
    near = pages(
        model_type="llama", hidden_size=64, num_attention_heads=1, num_hidden_layers=9, sliding_window=64,
        layer_types=["sliding_attention"] * 5 + ["full_attention"] * 4,
    )  # fmt: skip
    # 5 is less than half as many again as 4: both kinds get the larger size.
    assert [(g.kind, g.layers, g.padding) for g in near.groups] == [("sliding", 5, 0), ("full", 5, 1)]


def test_a_block_of_attention_holds_a_state() -> None:
    raw = {"model_type": "qwen3_next", "num_hidden_layers": 48, "num_attention_heads": 16}
    made = pages(**raw)
    # The log of this model says: "Setting attention block size to 544 tokens".
    assert [(g.kind, g.layers, g.block_size) for g in made.groups] == [("state", 12, 0)] * 3 + [
        ("full", 12, 544)
    ]
    assert pages(dtype="fp8", **raw).groups[-1].block_size == 1072
    assert made.blocks(544 * 10) == 10 + 3
    assert made.page_padding == 36 * (544 * 2 * 512 * 2 - 2 * (24_576 + 524_288))


def test_pages_of_several_sizes_are_said_so() -> None:
    made = pages(ServeRequest(in_flight=2496), **GEMMA4_26B)
    assert "several sizes" in made.notes[0]
    assert {g.block_size for g in made.groups if g.kind == "full"} == {32}


def test_the_longest_request_leaves_one_block() -> None:
    made = pages(**LLAMA_8B)
    pool = fill(made, 101 * made.bytes_per_block + 5, 131_072)
    assert (pool.blocks, pool.longest) == (101, 1600)
    assert fill(made, 101 * made.bytes_per_block, 1000).longest == 1000
    empty = fill(made, -5, 131_072)
    assert (empty.blocks, empty.longest, empty.tokens) == (0, 0, 0)


def test_the_pool_of_a_card() -> None:
    card = Card(16 * GIB, 0.9, 5 * GIB, GIB, reserve_bytes=GIB)
    assert card.pool_bytes == 15461882266 - 6 * GIB
    assert card.starts
    assert not Card(16 * GIB, 0.9, 0, 0, reserve_bytes=2 * GIB).starts
