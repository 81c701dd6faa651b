"""Engines whose settings have names of their own: what each is called when asked, in the log, and over HTTP.

An engine that is not listed takes llama-server's options, and its log speaks of llama.cpp's contexts and slots.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kvtui.engines.attach.kinds import Kind

_FULL_LOG = "-lv 4 (or LLAMA_ARG_LOG_VERBOSITY=4)"


@dataclass(frozen=True, slots=True)
class OwnSetting:
    """`label` is for a person. `asked` names it where it was asked (empty: it cannot be), `proven` in what the log
    proves, `told` in what an endpoint says (empty: as in the log). `automatic` leave the choice to the engine."""

    label: str
    asked: str
    proven: str
    told: str = ""
    automatic: tuple[Any, ...] = ()


_VLLM = (
    OwnSetting("KV cache type", "kv_cache_dtype", "kv_type", "kv_cache_dtype", ("auto",)),
    OwnSetting("longest request", "max_model_len", "n_ctx", "max_model_len", (-1, "auto")),
    OwnSetting("KV tokens in all", "", "kv_tokens"),
    OwnSetting("parallel requests", "max_num_seqs", "max_num_seqs"),
    OwnSetting("block size", "block_size", "block_size"),
    OwnSetting("memory share", "gpu_memory_utilization", "gpu_memory_utilization"),
    OwnSetting("attention backend", "attention_backend", "attn_backend"),
)
OWN_SETTINGS: Mapping[Kind, tuple[OwnSetting, ...]] = {
    "ollama": (
        OwnSetting("KV cache type", "kv_type", "kv_type"),
        OwnSetting("flash attention", "flash_attention", "flash_attn"),
        OwnSetting("context per request", "num_ctx", "n_ctx_request", automatic=(0,)),
        OwnSetting("context", "", "n_ctx"),
        OwnSetting("parallel requests", "num_parallel", "num_parallel", automatic=(0,)),
        OwnSetting("layers on GPU", "", "layers_gpu"),
    ),
    "vllm": _VLLM,
    "vllm-worker": _VLLM,
}
MORE_IN_THE_LOG: Mapping[Kind, str] = {"llama-server": _FULL_LOG}
"""What makes an engine print the proofs that its log lacks."""
