"""llama-server's options that decide what a context keeps and where: names, environment variables, values.

As of llama.cpp b11434 (common/arg.cpp), with the names of older builds. Precedence there: the configuration
file, then the environment, then the command line; the last of a repeated option counts.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal["int", "word", "text", "flag", "flash", "switch"]

_TRUE = frozenset(("on", "enabled", "true", "1"))
_FALSE = frozenset(("off", "disabled", "false", "0"))
_FLASH = {"on": "on", "enabled": "on", "off": "off", "disabled": "off", "auto": "auto", "-1": "auto"} | {
    "1": "on",
    "0": "off",
    "true": "on",
    "false": "off",
}


@dataclass(frozen=True, slots=True)
class Option:
    """One setting under its name of the contract. `on` takes the value (a flag: sets it), `off` clears a flag.

    `env` holds the same value as the option; where `flips`, it holds the opposite of a flag (`LLAMA_ARG_KV_OFFLOAD`
    for `no_kv_offload`). `counts` is False for options that say how to reach the server, not what it keeps.
    """

    name: str
    kind: Kind
    on: tuple[str, ...]
    off: tuple[str, ...] = ()
    env: str | None = None
    flips: bool = False
    counts: bool = True

    def value(self, text: str | None) -> Any:
        """What `text` sets; None for nothing. A word that is no number where one is due (`$CTX`, `all`) is none."""
        text = (text or "").rstrip(",;\\")
        match self.kind:
            case "flag":
                return True
            case "flash":
                return _FLASH.get(text.lower(), "on")
            case "switch":
                return text.lower() in _TRUE if text.lower() in _TRUE | _FALSE else None
            case "int":
                return int(text) if re.fullmatch(r"-?\d{1,9}", text) else None
            case "word":
                return text if re.fullmatch(r"\w+", text) else None
            case _:
                return text or None

    def from_word(self, text: str) -> Any:
        """What the environment or a configuration file sets with `text`, where flags carry a value."""
        if self.kind != "flag":
            return self.value(text)
        truth = True if text.lower() in _TRUE else False if text.lower() in _FALSE else None
        return truth if truth is None or not self.flips else not truth

    @property
    def no_env(self) -> str | None:
        """The variable that, set to anything, says no."""
        if self.env is None or self.kind != "flag" or not (self.off or self.flips):
            return None
        return self.env.replace("LLAMA_ARG_", "LLAMA_ARG_NO_")


def _reach(name: str, kind: Kind, on: tuple[str, ...], env: str | None = None) -> Option:
    return Option(name, kind, on, env=env, counts=False)


TABLE: tuple[Option, ...] = (
    Option("ctx", "int", ("-c", "--ctx-size"), env="LLAMA_ARG_CTX_SIZE"),
    Option("cache_type_k", "word", ("-ctk", "--cache-type-k"), env="LLAMA_ARG_CACHE_TYPE_K"),
    Option("cache_type_v", "word", ("-ctv", "--cache-type-v"), env="LLAMA_ARG_CACHE_TYPE_V"),
    Option("flash_attn", "flash", ("-fa", "--flash-attn"), env="LLAMA_ARG_FLASH_ATTN"),
    Option("n_parallel", "int", ("-np", "--parallel"), env="LLAMA_ARG_N_PARALLEL"),
    Option("n_gpu_layers", "int", ("-ngl", "--gpu-layers", "--n-gpu-layers"), env="LLAMA_ARG_N_GPU_LAYERS"),
    Option("n_batch", "int", ("-b", "--batch-size"), env="LLAMA_ARG_BATCH"),
    Option("n_ubatch", "int", ("-ub", "--ubatch-size"), env="LLAMA_ARG_UBATCH"),
    Option(
        "kv_unified",
        "flag",
        ("-kvu", "--kv-unified"),
        ("-no-kvu", "--no-kv-unified"),
        env="LLAMA_ARG_KV_UNIFIED",
    ),
    Option("kv_unified_per_slot", "int", ("--kv-unified-per-slot",), env="LLAMA_ARG_KV_UNIFIED_PER_SLOT"),
    Option("swa_full", "flag", ("--swa-full",), env="LLAMA_ARG_SWA_FULL"),
    Option(
        "no_kv_offload",
        "flag",
        ("-nkvo", "--no-kv-offload"),
        ("-kvo", "--kv-offload"),
        env="LLAMA_ARG_KV_OFFLOAD",
        flips=True,
    ),
    Option("n_cpu_moe", "int", ("-ncmoe", "--n-cpu-moe"), env="LLAMA_ARG_N_CPU_MOE"),
    Option("cpu_moe", "flag", ("-cmoe", "--cpu-moe"), env="LLAMA_ARG_CPU_MOE"),
    Option("override_tensor", "text", ("-ot", "--override-tensor"), env="LLAMA_ARG_OVERRIDE_TENSOR"),
    Option("cache_ram_mib", "int", ("-cram", "--cache-ram"), env="LLAMA_ARG_CACHE_RAM"),
    Option("fit", "switch", ("-fit", "--fit"), env="LLAMA_ARG_FIT"),
    Option("fit_ctx", "int", ("-fitc", "--fit-ctx"), env="LLAMA_ARG_FIT_CTX"),
    Option("split_mode", "word", ("-sm", "--split-mode"), env="LLAMA_ARG_SPLIT_MODE"),
    Option("tensor_split", "text", ("-ts", "--tensor-split"), env="LLAMA_ARG_TENSOR_SPLIT"),
    Option("device", "text", ("-dev", "--device"), env="LLAMA_ARG_DEVICE"),
    Option(
        "cache_type_k_draft",
        "word",
        ("-ctkd", "--cache-type-k-draft", "--spec-draft-type-k"),
        env="LLAMA_ARG_SPEC_DRAFT_CACHE_TYPE_K",
    ),
    Option(
        "cache_type_v_draft",
        "word",
        ("-ctvd", "--cache-type-v-draft", "--spec-draft-type-v"),
        env="LLAMA_ARG_SPEC_DRAFT_CACHE_TYPE_V",
    ),
    Option(
        "draft_model",
        "text",
        ("-md", "--model-draft", "--spec-draft-model"),
        env="LLAMA_ARG_SPEC_DRAFT_MODEL",
    ),
    Option("spec_type", "text", ("--spec-type",), env="LLAMA_ARG_SPEC_TYPE"),
    Option("rope_scaling", "word", ("--rope-scaling",), env="LLAMA_ARG_ROPE_SCALING_TYPE"),
    _reach("threads", "int", ("-t", "--threads"), "LLAMA_ARG_THREADS"),
    _reach("model", "text", ("-m", "--model"), "LLAMA_ARG_MODEL"),
    _reach("hf_repo", "text", ("-hf", "-hfr", "--hf-repo"), "LLAMA_ARG_HF_REPO"),
    _reach("mmproj", "text", ("-mm", "--mmproj"), "LLAMA_ARG_MMPROJ"),
    _reach("models_dir", "text", ("--models-dir",), "LLAMA_ARG_MODELS_DIR"),
    _reach("models_preset", "text", ("--models-preset",), "LLAMA_ARG_MODELS_PRESET"),
    _reach("load_mode", "text", ("-lm", "--load-mode"), "LLAMA_ARG_LOAD_MODE"),
    _reach("no_mmap", "flag", ("--no-mmap",)),
    _reach("no_repack", "flag", ("-nr", "--no-repack")),
    _reach("host", "text", ("--host",), "LLAMA_ARG_HOST"),
    _reach("port", "int", ("--port",), "LLAMA_ARG_PORT"),
    _reach("api_prefix", "text", ("--api-prefix",), "LLAMA_ARG_API_PREFIX"),
    _reach("api_key_file", "text", ("--api-key-file",), "LLAMA_ARG_API_KEY_FILE"),
    _reach("tls_cert_file", "text", ("--ssl-cert-file",), "LLAMA_ARG_SSL_CERT_FILE"),
    _reach("log_file", "text", ("--log-file",), "LLAMA_ARG_LOG_FILE"),
    _reach("log_disable", "flag", ("--log-disable",)),
    Option("log_jsonl", "flag", ("--log-jsonl",), ("--no-log-jsonl",), "LLAMA_ARG_LOG_JSONL", counts=False),
    _reach("verbosity", "int", ("-lv", "--verbosity", "--log-verbosity"), "LLAMA_ARG_LOG_VERBOSITY"),
)

BY_WORD: dict[str, tuple[Option, bool]] = {
    word: (option, positive)
    for option in TABLE
    for words, positive in ((option.on, True), (option.off, False))
    for word in words
}
"""Every spelling, with whether it sets or clears a flag."""
