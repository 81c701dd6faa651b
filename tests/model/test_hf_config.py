"""`config.json`: which layers keep what, and what is said of it when that cannot be told."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from kvtui.core.errors import ModelFileError
from kvtui.model.hf.config import HfConfig, read_config
from kvtui.model.hf.layers import AttentionLayer, StateLayer
from kvtui.model.hf.vllm import ServeRequest, lay_out

LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096, "num_attention_heads": 32,
    "num_key_value_heads": 8, "num_hidden_layers": 4, "max_position_embeddings": 131072, "torch_dtype": "bfloat16",
}  # fmt: skip
QWEN3_NEXT: dict[str, Any] = {"model_type": "qwen3_next", "num_hidden_layers": 48, "num_attention_heads": 16}


def config(base: dict[str, Any] | None = None, **changes: Any) -> HfConfig:
    return read_config({**(LLAMA if base is None else base), **changes}, "config.json")


def kinds(made: HfConfig) -> Counter[tuple[str, int]]:
    return Counter(("state", 0) if isinstance(x, StateLayer) else (x.kind, x.window) for x in made.layers)


def test_grouped_heads() -> None:
    made = config()
    assert made.layers == (AttentionLayer("full", 8, 128, 128),) * 4
    assert (made.exactness, made.notes) == ("exact", ())
    assert (made.n_layer, made.n_ctx_train, made.dtype, made.dtype_bytes) == (4, 131072, "bfloat16", 2)
    alike = config(num_key_value_heads=None)
    assert (alike.layers[0], alike.exactness) == (AttentionLayer("full", 32, 128, 128), "exact")
    for missing in ("num_key_value_heads", "head_dim"):
        taken = config(**{"model_type": "minimax_m2", "head_dim": 128, missing: None})
        assert taken.exactness == "approximate"
        assert f"{missing} is not in the file" in taken.notes[0]
    assert config(num_key_value_heads=1, head_dim=64).layers[0] == AttentionLayer("full", 1, 64, 64)


def test_types_that_leave_out_what_their_class_fills_in() -> None:
    made = config({"model_type": "gemma3", "text_config": {"num_hidden_layers": 34, "sliding_window": 1024}})
    assert made.model_type == "gemma3_text"
    assert kinds(made) == {("sliding", 1024): 29, ("full", 0): 5}
    assert made.layers[5] == AttentionLayer("full", 4, 256, 256)
    assert (made.exactness, made.n_ctx_train) == ("exact", 131072)


@pytest.mark.parametrize(
    ("model_type", "changes", "expected"),
    [
        ("gemma2", {}, {("sliding", 4096): 2, ("full", 0): 2}),
        ("gpt_oss", {"sliding_window": 128}, {("sliding", 128): 2, ("full", 0): 2}),
        ("cohere2", {"sliding_window": 4096}, {("sliding", 4097): 3, ("full", 0): 1}),
        (
            "gemma3_text",
            {"sliding_window_pattern": 2, "sliding_window": 512},
            {("sliding", 512): 2, ("full", 0): 2},
        ),
        ("mistral", {"sliding_window": 4096}, {("sliding", 4096): 4}),
        ("mistral", {"sliding_window": None}, {("full", 0): 4}),
        (
            "qwen2",
            {"sliding_window": 4096, "use_sliding_window": False, "max_window_layers": 2},
            {("full", 0): 4},
        ),
        (
            "qwen2",
            {"sliding_window": 4096, "use_sliding_window": True, "max_window_layers": 3},
            {("full", 0): 3, ("sliding", 4096): 1},
        ),
        (
            "llama",
            {"layer_types": ["sliding_attention"] * 3 + ["full_attention"], "sliding_window": 64},
            {("sliding", 64): 3, ("full", 0): 1},
        ),
    ],
)
def test_sliding_layers(
    model_type: str, changes: dict[str, Any], expected: dict[tuple[str, int], int]
) -> None:
    made = config(model_type=model_type, **changes)
    assert kinds(made) == expected
    assert made.exactness == "exact"


def test_latent_attention() -> None:
    made = config(model_type="deepseek_v3", kv_lora_rank=512, qk_rope_head_dim=64)
    assert made.layers == (AttentionLayer("latent", 1, 576, 0),) * 4
    assert made.exactness == "exact"
    more = config(model_type="deepseek_v32", kv_lora_rank=512, qk_rope_head_dim=64)
    assert more.exactness == "approximate"
    assert "indexers" in more.notes[0]
    other = config(model_type="somebody's", kv_lora_rank=512)
    assert other.exactness == "approximate"
    assert kinds(other) == {("full", 0): 4}


def test_layers_with_a_state() -> None:
    made = config(QWEN3_NEXT)
    assert kinds(made) == {("state", 0): 36, ("full", 0): 12}
    # conv (2 x 16 x 128 + 32 x 128) x 3, recurrence 32 x 128 x 128
    assert made.layers[0] == StateLayer(24576, 524288)
    assert made.exactness == "approximate"
    nemotron = config(
        model_type="nemotron_h", hybrid_override_pattern="M-*E", mamba_num_heads=128, mamba_head_dim=64, n_groups=8,
        ssm_state_size=128, conv_kernel=4,
    )  # fmt: skip
    assert nemotron.layers[0] == StateLayer((8192 + 2 * 8 * 128) * 3, 128 * 64 * 128, recurrence_f32=True)
    assert kinds(nemotron) == {("state", 0): 1, ("full", 0): 1}
    mamba = {"mamba_expand": 2, "mamba_d_conv": 4, "mamba_d_state": 16}
    jamba = config(model_type="jamba", attn_layer_period=4, attn_layer_offset=2, **mamba)
    assert [isinstance(x, StateLayer) for x in jamba.layers] == [True, True, False, True]
    lfm = config(
        model_type="lfm2", layer_types=["conv", "full_attention"] * 2, conv_L_cache=3, hidden_size=2048
    )
    assert lfm.layers[0] == StateLayer(4096, 0)
    bamba = config(
        model_type="bamba",
        attn_layer_indices=[1],
        mamba_n_groups=1,
        mamba_n_heads=64,
        mamba_d_head=64,
        **mamba,
    )
    assert kinds(bamba) == {("state", 0): 3, ("full", 0): 1}
    falcon = config(model_type="falcon_h1", mamba_n_groups=1, mamba_n_heads=64, mamba_d_head=64, **mamba)
    assert kinds(falcon) == {("state", 0): 4, ("full", 0): 4}


def test_heads_that_differ_and_layers_that_share() -> None:
    made = config(
        model_type="gemma4_text", layer_types=["sliding_attention", "full_attention"] * 2, sliding_window=1024,
        head_dim=256, global_head_dim=512, num_global_key_value_heads=2, num_kv_shared_layers=2,
    )  # fmt: skip
    assert made.layers == (AttentionLayer("sliding", 8, 256, 256, 1024), AttentionLayer("full", 2, 512, 512))
    assert made.exactness == "approximate"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"num_hidden_layers": None}, "num_hidden_layers is missing"),
        ({"num_hidden_layers": "many"}, "num_hidden_layers is not a plain number"),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers is not a plain number"),
        ({"num_key_value_heads": -1}, "num_key_value_heads is not a plain number"),
        ({"num_attention_heads": 0}, "num_attention_heads is missing"),
        ({"hidden_size": [1]}, "hidden_size is not a plain number"),
        ({"layer_types": ["full_attention"]}, "names 1 layers, there are 4"),
        ({"layer_types": ["warp"] * 4}, "a kind of layer that is not known: warp"),
        ({"layer_types": [1] * 4}, "not a list of words"),
        ({"layer_types": ["sliding_attention"] * 4}, "sliding_window is missing"),
        ({"layer_types": ["mamba"] * 4}, "shape of the state"),
        ({"model_type": "zamba2"}, "which layers attend"),
        ({"hybrid_override_pattern": "M?"}, "does not fit the layers"),
    ],
)
def test_what_cannot_be_told_is_unknown(changes: dict[str, Any], reason: str) -> None:
    made = config(**changes)
    assert made.exactness == "unknown"
    assert reason in made.notes[0]
    assert lay_out(made, "auto", ServeRequest()) is None


def test_a_type_that_is_not_known_is_taken_at_its_word() -> None:
    made = config(model_type="brand_new")
    assert made.exactness == "approximate"
    assert "brand_new is not known" in made.notes[0]
    assert made.layers == config().layers


def test_types_of_values() -> None:
    assert config(torch_dtype="float32").dtype == "bfloat16"
    assert config(torch_dtype=None, dtype="torch.float16").dtype == "float16"
    open_ = config(torch_dtype=None)
    assert "no dtype" in open_.notes[0]
    quantized = config(quantization_config={"quant_method": "awq"})
    assert (quantized.quantization, quantized.kv_fp8) == ("awq", False)
    scheme = {"quant_method": "compressed-tensors", "kv_cache_scheme": {"type": "float", "num_bits": 8}}
    assert config(quantization_config=scheme).kv_fp8
    assert config(quantization_config={"quantization": {"kv_cache_quant_algo": "FP8"}}).kv_fp8


@pytest.mark.parametrize("raw", [{}, {"x": 1}, {"text_config": {}}, {"text_config": 3}])
def test_what_is_no_configuration_of_a_model(raw: dict[str, Any]) -> None:
    with pytest.raises(ModelFileError, match="not a model's config"):
        read_config(raw, "config.json")


def test_nothing_in_a_configuration_breaks_the_reader() -> None:
    chance = random.Random(7)
    rubbish: list[Any] = [
        None,
        True,
        -1,
        0,
        1,
        3,
        2**70,
        1e308,
        float("nan"),
        "",
        "x",
        "\x1b[2J",
        [],
        [1],
        {},
        {"a": 1},
    ]
    bases = [LLAMA, QWEN3_NEXT, {**LLAMA, "model_type": "gemma4_text"}, {**LLAMA, "model_type": "falcon_h1"}]
    keys = [
        *LLAMA, "head_dim", "layer_types", "sliding_window", "kv_lora_rank", "text_config", "quantization_config",
        "hybrid_override_pattern", "num_kv_shared_layers", "full_attention_interval", "attn_layer_indices", "dtype",
        "linear_num_key_heads", "mamba_d_conv", "attn_layer_period", "attn_layer_offset", "max_window_layers",
    ]  # fmt: skip
    outcomes: Counter[str] = Counter()
    for _ in range(3000):
        raw = dict(chance.choice(bases))
        for key in chance.sample(keys, chance.randint(1, 4)):
            raw[key] = chance.choice(rubbish)
        try:
            made = read_config(raw, "c")
        except ModelFileError:
            outcomes["refused"] += 1
            continue
        outcomes[made.exactness] += 1
        pages = lay_out(made, "auto", ServeRequest())
        assert pages is None or pages.request_bytes(1000) >= 0
        assert all(note.isprintable() for note in made.notes)
    assert min(outcomes[k] for k in ("exact", "approximate", "unknown")) > 50


def test_words_of_a_configuration_are_cleaned_where_they_enter() -> None:
    for base, key in ((LLAMA, "layer_types"), (QWEN3_NEXT, "layers_block_type")):
        made = config(base, **{key: ["\x1b[31mfull\x07"] * base["num_hidden_layers"]})
        assert made.notes
        assert all(note.isprintable() for note in made.notes)
