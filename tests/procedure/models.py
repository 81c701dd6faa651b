"""The geometry of real models, as their files' metadata state it: dense, sliding window, latent, hybrid, experts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Model:
    """An architecture with its keys; `expert_share` is the part of a layer's weights that are experts."""

    arch: str
    keys: dict[str, Any] = field(hash=False)
    expert_share: float = 0.0


def _attention(n_layer: int, heads: int, kv_heads: int, head: int, **more: Any) -> dict[str, Any]:
    return {
        "block_count": n_layer,
        "embedding_length": heads * head,
        "attention.head_count": heads,
        "attention.head_count_kv": kv_heads,
        "attention.key_length": head,
        "attention.value_length": head,
        **more,
    }


LLAMA_8B = Model("llama", _attention(32, 32, 8, 128))
LLAMA_70B = Model("llama", _attention(80, 64, 8, 128))
MISTRAL_24B = Model("llama", _attention(40, 32, 8, 128))
QWEN3_14B = Model("qwen3", _attention(40, 40, 8, 128))
QWEN3_32B = Model("qwen3", _attention(64, 64, 8, 128))
QWEN3_30B_A3B = Model("qwen3moe", _attention(48, 32, 4, 128), expert_share=0.9)
GEMMA3_12B = Model("gemma3", _attention(48, 16, 8, 256, **{"attention.sliding_window": 1024}))
GEMMA3_27B = Model("gemma3", _attention(62, 32, 16, 128, **{"attention.sliding_window": 1024}))
GLM_FLASH = Model(
    "deepseek2",
    {
        "block_count": 47,
        "embedding_length": 2048,
        "attention.head_count": 20,
        "attention.head_count_kv": 1,
        "attention.key_length": 576,
        "attention.value_length": 512,
        "attention.kv_lora_rank": 512,
        "attention.key_length_mla": 192,
        "attention.value_length_mla": 128,
    },
    expert_share=0.85,
)
QWEN35_27B = Model(
    "qwen35",
    _attention(
        64, 24, 4, 256,
        **{"ssm.conv_kernel": 4, "ssm.inner_size": 6144, "ssm.state_size": 128, "ssm.group_count": 16},
    ),
)  # fmt: skip
