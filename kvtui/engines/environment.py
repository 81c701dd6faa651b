"""The environment an engine runs in: which variables count for what it does, and which ones must not reach it."""

from __future__ import annotations

import os
from collections.abc import Iterable

from kvtui.core.text import clean

_COUNTING = ("LLAMA_", "GGML_", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "HIP_VISIBLE_", "ROCR_VISIBLE_")
_DROPPED = frozenset(
    (
        "LLAMA_API_KEY",
        "LLAMA_ARG_API_KEY_FILE",
        "LLAMA_ARG_API_PREFIX",
        "LLAMA_ARG_SSL_KEY_FILE",
        "LLAMA_ARG_SSL_CERT_FILE",
        "LLAMA_SERVER_BIN",
        "OLLAMA_BIN",
        "OLLAMA_API_KEY",
    )
)


def counting_variables(*own: str) -> tuple[tuple[str, str], ...]:
    """Variables of our own environment that change what the engine does; without them a run is not reproducible.

    `own` are the beginnings of the names of variables that only this engine reads.
    """
    return tuple(
        (name, clean(value))
        for name, value in sorted(os.environ.items())
        if name.startswith((*_COUNTING, *own)) and name not in _DROPPED
    )


def engine_environment(on_top: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Ours, without what would keep kvtui from reaching the engine (keys, prefixes, TLS), plus `on_top`."""
    env = {name: value for name, value in os.environ.items() if name not in _DROPPED}
    return env | {"NO_COLOR": "1"} | dict(on_top)
