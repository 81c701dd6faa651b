"""What an engine's own command line or environment asked for, under the names of the contract."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

_INT = "int"
_STR = "str"
_FLAG = "flag"

OPTIONS: dict[str, tuple[str, str]] = {
    "-c": ("ctx", _INT),
    "--ctx-size": ("ctx", _INT),
    "-ctk": ("cache_type_k", _STR),
    "--cache-type-k": ("cache_type_k", _STR),
    "-ctv": ("cache_type_v", _STR),
    "--cache-type-v": ("cache_type_v", _STR),
    "-fa": ("flash_attn", "flash"),
    "--flash-attn": ("flash_attn", "flash"),
    "-np": ("n_parallel", _INT),
    "--parallel": ("n_parallel", _INT),
    "-ngl": ("n_gpu_layers", _INT),
    "--gpu-layers": ("n_gpu_layers", _INT),
    "--n-gpu-layers": ("n_gpu_layers", _INT),
    "-b": ("n_batch", _INT),
    "--batch-size": ("n_batch", _INT),
    "-ub": ("n_ubatch", _INT),
    "--ubatch-size": ("n_ubatch", _INT),
    "-kvu": ("kv_unified", _FLAG),
    "--kv-unified": ("kv_unified", _FLAG),
    "--swa-full": ("swa_full", _FLAG),
    "-nkvo": ("no_kv_offload", _FLAG),
    "--no-kv-offload": ("no_kv_offload", _FLAG),
    "-ctkd": ("cache_type_k_draft", _STR),
    "-ctvd": ("cache_type_v_draft", _STR),
}

ENVIRONMENT: dict[str, str] = {
    "LLAMA_ARG_CTX_SIZE": "-c",
    "LLAMA_ARG_CACHE_TYPE_K": "-ctk",
    "LLAMA_ARG_CACHE_TYPE_V": "-ctv",
    "LLAMA_ARG_FLASH_ATTN": "-fa",
    "LLAMA_ARG_N_PARALLEL": "-np",
    "LLAMA_ARG_N_GPU_LAYERS": "-ngl",
    "LLAMA_ARG_BATCH": "-b",
    "LLAMA_ARG_UBATCH": "-ub",
    "LLAMA_ARG_KV_UNIFIED": "-kvu",
}

PROGRAM = re.compile(
    r"(?:^|[\s/\\\"'])(?:llama-(?:server|cli|bench|sweep-bench|perplexity|batched-bench|completion|run|parallel)"
    r"|llama_server|ollama_llama_server|llama\.cpp:(?:server|full|light)[\w.-]*|\./(?:build/bin/)?(?:server|main)|\./(?:server|main))"
    r"(?:\.exe)?[\"']?\s+(?:[\"']?-|\\$|`$)"
)
_TOKEN = re.compile(r"\"((?:[^\"\\]|\\.)*)\"|'([^']*)'|(\S+)")
_FLASH = {"on": "on", "off": "off", "auto": "auto", "1": "on", "0": "off", "true": "on", "false": "off"}


def tokens(text: str) -> list[str]:
    """The words of a command line; quotes group, a Windows path keeps its backslashes."""
    return [next(g for g in m.groups() if g is not None) for m in _TOKEN.finditer(text)]


def requested(words: Sequence[str]) -> dict[str, Any]:
    """What the options among `words` ask for; options that mean nothing to the KV cache are passed over.

    A value that is no number where one is due (`$CTX`, `all`) is left out.
    """
    found: dict[str, Any] = {}
    for option, value in _pairs(words):
        name, kind = OPTIONS[option]
        parsed = _parse(kind, value)
        if parsed is not None:
            found[name] = parsed
    return found


def _pairs(words: Sequence[str]) -> Iterator[tuple[str, str | None]]:
    for at, word in enumerate(words):
        option, equals, value = word.partition("=")
        if option not in OPTIONS:
            continue
        following = words[at + 1] if at + 1 < len(words) else None
        yield option, value if equals else following


def _parse(kind: str, value: str | None) -> Any:
    text = (value or "").rstrip(",;\\")
    if kind == _FLAG:
        return True
    if kind == "flash":
        return _FLASH.get(text.lower(), "on")
    if kind == _INT:
        return int(text) if re.fullmatch(r"-?\d{1,9}", text) else None
    return text if re.fullmatch(r"\w+", text) else None


def environment(text: str) -> dict[str, Any]:
    """The same from `LLAMA_ARG_*=value` assignments in `text`."""
    words: list[str] = []
    for name, value in re.findall(r"\b(LLAMA_ARG_[A-Z_]+)[=:]\s*\"?([\w.-]+)", text):
        if name in ENVIRONMENT:
            words += [ENVIRONMENT[name], value]
    return requested(words)
