"""What Ollama is told, and where: KV type, flash attention and slots are the daemon's, the rest is each request's."""

from __future__ import annotations

import json
from typing import Any

from kvtui.core.config import RunConfig
from kvtui.core.shell import quote
from kvtui.engines.base import Missing

ALL_LAYERS = 999


def num_ctx(config: RunConfig) -> int:
    """Tokens of one request: Ollama multiplies them by its slots, where llama.cpp divides the whole context."""
    return config.n_ctx // config.n_parallel


def tuning_variables(config: RunConfig, *, probes: bool = True) -> tuple[tuple[str, str], ...]:
    """The daemon's settings that `config` decides, by their environment variables, in the order of the names.

    Flash attention that is left to the engine is left unset where that means a probe of the device (`probes`, since
    0.30). Before, unset mostly means off, and to ask for it is the probe: it is dropped with a line in the log where
    GPU or model cannot.
    """
    found = {
        "OLLAMA_CONTEXT_LENGTH": str(num_ctx(config)),
        "OLLAMA_KV_CACHE_TYPE": config.type_k,
        "OLLAMA_NUM_PARALLEL": str(config.n_parallel),
    }
    if config.flash_attn != "auto" or not probes:
        found["OLLAMA_FLASH_ATTENTION"] = "0" if config.flash_attn == "off" else "1"
    return tuple(sorted(found.items()))


def private_variables(config: RunConfig, port: int, models: str) -> tuple[tuple[str, str], ...]:
    """What makes the daemon ours: its port, the store in `models` left as it is, one model that stays loaded.

    It asks nothing of the internet, and keeps no prompt cache beyond what `config` asks (llama-server's own variable,
    which reaches the runner since 0.30).
    """
    return (
        ("OLLAMA_HOST", f"127.0.0.1:{port}"),
        ("OLLAMA_MODELS", models),
        ("OLLAMA_KEEP_ALIVE", "-1"),
        ("OLLAMA_MAX_LOADED_MODELS", "1"),
        ("OLLAMA_NOPRUNE", "1"),
        ("OLLAMA_NO_CLOUD", "1"),
        ("LLAMA_ARG_CACHE_RAM", str(config.cache_ram_mib)),
    )


def load_options(config: RunConfig) -> dict[str, Any]:
    """The options that decide how a model is loaded. Every request carries the same ones: others reload the model.

    One number is batch and micro-batch alike, and it is stated: left out, it follows the context.
    """
    options: dict[str, Any] = {"num_ctx": num_ctx(config), "num_batch": config.n_ubatch}
    if config.n_gpu_layers is not None:
        options["num_gpu"] = config.n_gpu_layers
    if config.threads is not None:
        options["num_thread"] = config.threads
    return options


def left_out(config: RunConfig) -> tuple[Missing, ...]:
    """What `config` asks and Ollama has no setting for."""
    found = []
    if config.type_v != config.type_k:
        found.append(Missing(f"type of V ({config.type_v})", "values of another type than the keys"))
    if config.kv_unified:
        found.append(Missing("unified KV", "one pool of cells for all slots"))
    if config.n_cpu_moe is not None:
        found.append(Missing("experts on the CPU", "experts kept on the CPU"))
    if not config.kv_offload:
        found.append(Missing("KV offload off", "the KV cache kept in host memory"))
    if not config.prefix_reuse:
        found.append(Missing("no prefix reuse", "that no prompt is taken from an earlier one"))
    if config.swa_full:
        found.append(Missing("full-size SWA cache", "a full-size sliding-window cache"))
    found += [
        Missing(word, "what this option of the engine does") for word in config.extra if "=" not in word
    ]
    return tuple(found)


def own_variables(config: RunConfig) -> tuple[tuple[str, str], ...]:
    """Further variables that the operator gives as engine options: `NAME=value`."""
    pairs = (word.partition("=") for word in config.extra if "=" in word)
    return tuple((name.lstrip("-"), value) for name, _, value in pairs)


def load_request(config: RunConfig, base_url: str) -> str:
    """The request that loads the model as `config` asks, as a line for a shell."""
    body = {"model": config.model, "keep_alive": -1, "options": load_options(config)}
    return f"curl {quote(base_url + '/api/generate')} -d {quote(json.dumps(body))}"
