"""What is known of model types: defaults that `config.json` may leave out, and how their layers alternate.

Sources: the configuration classes of transformers for the defaults, the model classes of vLLM 0.33 for the layers.
A type that is not here is taken for what its file says, and its figures are approximate.
"""

from __future__ import annotations

from typing import Any

# Full attention in every layer, or as `layer_types` says.
PLAIN = frozenset(
    (
        "llama", "qwen2", "qwen3", "qwen2_moe", "qwen3_moe", "gemma", "granite", "granitemoe", "olmo", "olmo2", "olmo3",
        "olmoe", "phi", "cohere", "glm", "glm4", "glm4_moe", "nemotron", "stablelm", "internlm2",
        "smollm3", "seed_oss", "arcee", "apertus", "ernie4_5", "ernie4_5_moe", "minimax_m2", "exaone4",
        "hunyuan_v1_dense", "hunyuan_v1_moe", "qwen2_vl", "qwen2_5_vl", "qwen2_vl_text", "qwen2_5_vl_text",
        "qwen3_vl_text", "qwen3_vl_moe_text",
    )
)  # fmt: skip

# Where the file leaves these out, the configuration class takes: as many KV heads as heads,
HEADS_ALIKE = frozenset(
    (
        "llama", "phi", "phi3", "olmo", "olmo2", "olmo3", "olmoe", "stablelm", "granite", "granitemoe", "cohere",
        "internlm2", "nemotron", "arcee", "apertus",
    )
)  # fmt: skip
# and heads that share the width of the model.
HEADS_SHARE_WIDTH = HEADS_ALIKE | {
    "qwen2", "qwen2_moe", "qwen2_vl", "qwen2_vl_text", "qwen2_5_vl", "qwen2_5_vl_text", "mistral", "mixtral",
    "starcoder2", "smollm3", "exaone4", "cohere2",
}  # fmt: skip

# A window in the file counts for every layer.
ALL_SLIDING = frozenset(("mistral", "mixtral", "phi3", "starcoder2"))

# One in so many layers attends to everything, the last of each group, where `layer_types` is absent.
EVERY: dict[str, int] = {"gemma2": 2, "gemma3_text": 6, "cohere2": 4, "gpt_oss": 2}
PATTERN_KEYS = ("sliding_window_pattern", "_sliding_window_pattern")

LATENT = frozenset(("deepseek_v2", "deepseek_v3", "kimi_k2", "glm4_moe_lite", "pangu_ultra_moe"))

# Types whose `kv_lora_rank` vLLM serves with latent attention, but with more than it beside.
LATENT_AND_MORE = frozenset(
    ("deepseek_v32", "glm_moe_dsa", "deepseek_v4", "deepseek_v41", "kimi_linear", "hy_v4", "longcat_flash")
)

WITH_STATE = frozenset(
    (
        "qwen3_next", "qwen3_5", "qwen3_5_text", "qwen3_5_moe", "qwen3_5_moe_text", "nemotron_h", "jamba", "bamba",
        "granitemoehybrid", "lfm2", "lfm2_moe", "falcon_h1", "zamba2",
    )
)  # fmt: skip

# What a configuration class fills in: files of some models leave these out.
DEFAULTS: dict[str, dict[str, Any]] = {
    "gemma": {"head_dim": 256},
    "gemma2": {"head_dim": 256, "num_key_value_heads": 4, "sliding_window": 4096},
    "gemma3_text": {
        "num_hidden_layers": 26, "hidden_size": 2304, "num_attention_heads": 8, "num_key_value_heads": 4,
        "head_dim": 256, "sliding_window": 4096, "max_position_embeddings": 131072,
    },
    "gpt_oss": {"head_dim": 64, "num_key_value_heads": 8, "sliding_window": 128},
    "cohere2": {"sliding_window": 4096},
    "llama": {"max_position_embeddings": 2048},
    "mistral": {"num_key_value_heads": 8},
    "mixtral": {"num_key_value_heads": 8},
    "starcoder2": {"num_key_value_heads": 2},
    "glm": {"num_key_value_heads": 2, "head_dim": 128},
    "glm4": {"num_key_value_heads": 2, "head_dim": 128},
    "qwen3": {"head_dim": 128},
    "qwen3_moe": {"num_key_value_heads": 4},
    "deepseek_v2": {"kv_lora_rank": 512, "qk_rope_head_dim": 64},
    "deepseek_v3": {"kv_lora_rank": 512, "qk_rope_head_dim": 64},
    "qwen3_next": {
        "head_dim": 256, "num_key_value_heads": 2, "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128,
        "linear_value_head_dim": 128, "linear_num_key_heads": 16, "linear_num_value_heads": 32,
        "full_attention_interval": 4,
    },
}  # fmt: skip

# transformers' own names for nested text models that carry none.
TEXT_TYPES = {"gemma3": "gemma3_text", "gemma3n": "gemma3n_text", "gemma4": "gemma4_text"}
