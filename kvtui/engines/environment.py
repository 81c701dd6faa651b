"""The environment an engine runs in: which variables count for what it does, and which ones must not reach it."""

from __future__ import annotations

import os
from collections.abc import Iterable

from kvtui.core.config import RunConfig
from kvtui.core.secrets import is_secret_name
from kvtui.core.text import clean

_COUNTING = ("LLAMA_", "GGML_", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "HIP_VISIBLE_", "ROCR_VISIBLE_")
_DROPPED = frozenset(
    (
        "LLAMA_API_KEY",
        "LLAMA_ARG_MODEL",
        "LLAMA_ARG_MODEL_URL",
        "LLAMA_ARG_MODELS_DIR",
        "LLAMA_ARG_MODELS_PRESET",
        "LLAMA_ARG_HF_REPO",
        "LLAMA_ARG_HF_FILE",
        "LLAMA_ARG_DOCKER_REPO",
        "LLAMA_ARG_HOST",
        "LLAMA_ARG_PORT",
        "LLAMA_ARG_API_KEY_FILE",
        "LLAMA_ARG_API_PREFIX",
        "LLAMA_ARG_SSL_KEY_FILE",
        "LLAMA_ARG_SSL_CERT_FILE",
        "LLAMA_SERVER_BIN",
        "OLLAMA_BIN",
        "OLLAMA_API_KEY",
    )
)


LAUNCHED = "KVTUI_ENGINE"
"""The variable by which an engine that kvtui started is known again: no session file can claim another process."""


def counting_variables(*own: str) -> tuple[tuple[str, str], ...]:
    """Variables of our own environment that change what the engine does; without them a run is not reproducible.

    `own` are the beginnings of the names of variables that only this engine reads. Secrets are none of them.
    """
    return tuple(
        (name, clean(value))
        for name, value in sorted(os.environ.items())
        if name.startswith((*_COUNTING, *own)) and name not in _DROPPED and not is_secret_name(name)
    )


def overruling(config: RunConfig) -> tuple[str, ...]:
    """Variables that are set and would change what `config` leaves off: llama-server has no option that says so."""
    names: tuple[str, ...] = () if config.swa_full else ("LLAMA_ARG_SWA_FULL",)
    if config.kv_offload:
        names += ("LLAMA_ARG_KV_OFFLOAD", "LLAMA_ARG_NO_KV_OFFLOAD")
    if config.prefix_reuse:
        names += ("LLAMA_ARG_CACHE_PROMPT", "LLAMA_ARG_NO_CACHE_PROMPT")
    return tuple(name for name in names if name in os.environ)


def engine_environment(on_top: Iterable[tuple[str, str]], without: Iterable[str] = ()) -> dict[str, str]:
    """Ours, without what would keep kvtui from reaching the engine or give it another model, plus `on_top`."""
    dropped = _DROPPED.union(without)
    env = {name: value for name, value in os.environ.items() if name not in dropped}
    return env | {"NO_COLOR": "1", LAUNCHED: "1"} | dict(on_top)
