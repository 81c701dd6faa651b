"""What an Ollama daemon and vLLM were asked for."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from kvtui.core.text import clean
from kvtui.engines.attach.asked import Asked, Setting

_OLLAMA = {
    "OLLAMA_KV_CACHE_TYPE": "kv_type",
    "OLLAMA_CONTEXT_LENGTH": "num_ctx",
    "OLLAMA_NUM_PARALLEL": "num_parallel",
    "OLLAMA_FLASH_ATTENTION": "flash_attention",
    "OLLAMA_GPU_OVERHEAD": "gpu_overhead",
    "OLLAMA_MAX_LOADED_MODELS": "max_loaded_models",
    "OLLAMA_KEEP_ALIVE": "keep_alive",
    "LLAMA_ARG_CACHE_RAM": "cache_ram_mib",
    "LLAMA_ARG_FIT": "fit",
    "LLAMA_ARG_FIT_TARGET": "fit_target",
    "LLAMA_ARG_CPU_MOE": "cpu_moe",
}
_VLLM = {
    "--max-model-len": "max_model_len",
    "--kv-cache-dtype": "kv_cache_dtype",
    "--gpu-memory-utilization": "gpu_memory_utilization",
    "--max-num-seqs": "max_num_seqs",
    "--max-num-batched-tokens": "max_num_batched_tokens",
    "--tensor-parallel-size": "tensor_parallel_size",
    "-tp": "tensor_parallel_size",
    "--pipeline-parallel-size": "pipeline_parallel_size",
    "-pp": "pipeline_parallel_size",
    "--block-size": "block_size",
    "--quantization": "quantization",
    "-q": "quantization",
    "--dtype": "dtype",
    "--kv-cache-memory-bytes": "kv_cache_memory",
    "--kv-cache-memory": "kv_cache_memory",
    "--cpu-offload-gb": "cpu_offload_gb",
    "--swap-space": "swap_space",
    "--attention-backend": "attention_backend",
    "--calculate-kv-scales": "calculate_kv_scales",
    "--enable-prefix-caching": "enable_prefix_caching",
    "--no-enable-prefix-caching": "enable_prefix_caching",
    "--enforce-eager": "enforce_eager",
    "--max-seq-len-to-capture": "max_seq_len_to_capture",
}
_VLLM_FLAGS = frozenset(
    ("--enable-prefix-caching", "--no-enable-prefix-caching", "--enforce-eager", "--calculate-kv-scales")
)
_VLLM_REACH = {
    "--host": "host",
    "--port": "port",
    "--uds": "uds",
    "--model": "model",
    "--served-model-name": "served_model_name",
    "--root-path": "root_path",
    "--ssl-certfile": "tls_cert_file",
}
_VLLM_LENGTH = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,15})?)([kKmMgG])\Z")
_SCALE = {"k": 1000, "K": 1024, "m": 10**6, "M": 1 << 20, "g": 10**9, "G": 1 << 30}
DEFAULT_OLLAMA_PORT = 11434


def ollama_asked(env: Mapping[str, str] | None) -> Asked:
    """What the daemon's environment asks, under the names of its log; `env` None: it may not be read."""
    if env is None:
        return Asked(unread=("the daemon's environment (OLLAMA_*) may not be read",))
    settings = {
        name: Setting(_number(env[variable]), clean(f"{variable}={env[variable]}", 300))
        for variable, name in _OLLAMA.items()
        if env.get(variable)
    }
    if (flash := settings.get("flash_attention")) is not None:
        truth = str(flash.value).lower() not in ("0", "false", "f")  # what it cannot read counts as true
        settings["flash_attention"] = Setting(truth, flash.source)
    host = env.get("OLLAMA_HOST")
    reach = {} if not host else {"host": Setting(host, clean(f"OLLAMA_HOST={host}", 300))}
    return Asked(settings, reach)


def unit_environment(text: str) -> dict[str, str]:
    """The variables in `systemctl show -p Environment` (`Environment=A=1 "B=two words"`)."""
    line = text.partition("Environment=")[2].split("\n", 1)[0]
    found = {}
    for match in re.finditer(r'"((?:[^"\\]|\\.)*)"|(\S+)', line):
        word = re.sub(r"\\(.)", r"\1", match[1]) if match[1] is not None else match[2]
        name, equals, value = word.partition("=")
        if equals:
            found[clean(name, 200)] = clean(value)
    return found


def vllm_asked(argv: Sequence[str]) -> Asked:
    """What vLLM's command line asks, under the engine's own names."""
    settings: dict[str, Setting] = {}
    reach: dict[str, Setting] = {}
    words = list(argv)
    for at, word in enumerate(words):
        name, equals, value = word.partition("=")
        name = name.replace("_", "-") if name.startswith("--") else name
        if name in _VLLM_FLAGS:
            settings[_VLLM[name]] = Setting(not name.startswith("--no-"), name)
            continue
        kept, names = (settings, _VLLM) if name in _VLLM else (reach, _VLLM_REACH)
        if name not in names or not (equals or at + 1 < len(words)):
            continue
        value = value if equals else words[at + 1]
        kept[names[name]] = Setting(_length(value), clean(f"{name} {value}", 300))
    model = reach.get("model")
    positional = _after(words, "serve")
    return Asked(settings, reach, str(model.value) if model is not None else positional)


def _after(words: Sequence[str], command: str) -> str | None:
    if command not in words:
        return None
    following = words[words.index(command) + 1 :]
    return following[0] if following and not following[0].startswith("-") else None


def _length(text: str) -> Any:
    """vLLM's own numbers: `32k` is 32,000, `32K` is 32,768."""
    if match := _VLLM_LENGTH.match(text):
        return int(float(match[1]) * _SCALE[match[2]])
    return _number(text)


def _number(text: str) -> Any:
    if re.fullmatch(r"-?\d{1,15}", text):
        return int(text)
    return float(text) if re.fullmatch(r"\d{1,9}\.\d{1,9}", text) else text
