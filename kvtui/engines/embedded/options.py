"""llama-server's option names, as far as the embedded engine takes them: parsing and `--help`, in its words."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

CACHE_TYPES = ("f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1")
_TRUE = frozenset(("on", "enabled", "true", "1"))
_FALSE = frozenset(("off", "disabled", "false", "0"))
_AUTO = frozenset(("auto", "-1"))
_HELP_COLUMN = 40
_HELP_WIDTH = 70


class ArgumentError(Exception):
    """A command line that llama-server would refuse, in one line of its words."""


@dataclass(frozen=True, slots=True)
class Options:
    """What was asked, with llama-server's defaults. `n_gpu_layers`: -1 auto, -2 all. `parallel` -1: auto."""

    model: str = ""
    ctx_size: int = 0
    cache_type_k: str = "f16"
    cache_type_v: str = "f16"
    flash_attn: str = "auto"
    parallel: int = -1
    kv_unified: bool = False
    batch_size: int = 2048
    ubatch_size: int = 512
    gpu_layers: int = -1
    threads: int = -1
    host: str = "127.0.0.1"
    port: int = 8080
    verbosity: int = 3
    fit: bool = True
    swa_full: bool = False
    kv_offload: bool = True
    cache_ram: int = 8192
    ctx_checkpoints: int = 32
    metrics: bool = False
    slots: bool = True
    warmup: bool = True
    cache_prompt: bool = True
    help: bool = False
    version: bool = False


def _integer(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ArgumentError("stoi") from None


def _cache_type(text: str) -> str:
    if text not in CACHE_TYPES:
        raise ArgumentError(f"Unsupported cache type: {text}")
    return text


def _parallel(text: str) -> int:
    if (value := _integer(text)) == 0:
        raise ArgumentError("error: invalid value for n_parallel")
    return value


def _layers(text: str) -> int:
    return {"auto": -1, "all": -2}.get(text) or _integer(text)


def _flash_attn(text: str) -> str:
    for word, spellings in (("on", _TRUE), ("off", _FALSE), ("auto", _AUTO)):
        if text in spellings:
            return word
    raise ArgumentError(f"unknown value for --flash-attn: '{text}'")


def _fit(text: str) -> bool:
    if text not in _TRUE | _FALSE:
        raise ArgumentError(f"unknown value for --fit: '{text}'")
    return text in _TRUE


@dataclass(frozen=True, slots=True)
class _Option:
    """One line of `--help`. `read` turns the value into the field's; without it the option is a switch."""

    field: str
    names: tuple[str, ...]
    help: str
    hint: str = ""
    read: Callable[[str], Any] | None = None
    off: tuple[str, ...] = ()


_KV_HELP = "KV cache data type for {}\nallowed values: " + ", ".join(CACHE_TYPES) + "\n(default: f16)"
_SERVE = (
    _Option("help", ("-h", "--help", "--usage"), "print usage and exit"),
    _Option("version", ("--version",), "show version and build info"),
)
_CONTEXT = (
    _Option(
        "threads",
        ("-t", "--threads"),
        "number of CPU threads to use during generation (default: -1)",
        "N",
        _integer,
    ),
    _Option(
        "ctx_size",
        ("-c", "--ctx-size"),
        "size of the prompt context (default: 0, 0 = loaded from model)",
        "N",
        _integer,
    ),
    _Option(
        "batch_size", ("-b", "--batch-size"), "logical maximum batch size (default: 2048)", "N", _integer
    ),
    _Option(
        "ubatch_size", ("-ub", "--ubatch-size"), "physical maximum batch size (default: 512)", "N", _integer
    ),
    _Option("swa_full", ("--swa-full",), "use full-size SWA cache (default: false)"),
    _Option(
        "flash_attn",
        ("-fa", "--flash-attn"),
        "set Flash Attention use ('on', 'off', or 'auto', default: 'auto')",
        "[on|off|auto]",
        _flash_attn,
    ),
    _Option(
        "kv_offload",
        ("-kvo", "--kv-offload"),
        "whether to enable KV cache offloading (default: enabled)",
        off=("-nkvo", "--no-kv-offload"),
    ),
    _Option("cache_type_k", ("-ctk", "--cache-type-k"), _KV_HELP.format("K"), "TYPE", _cache_type),
    _Option("cache_type_v", ("-ctv", "--cache-type-v"), _KV_HELP.format("V"), "TYPE", _cache_type),
    _Option(
        "gpu_layers",
        ("-ngl", "--gpu-layers", "--n-gpu-layers"),
        "max. number of layers to store in VRAM, either an exact number, 'auto', or 'all' (default: auto)",
        "N",
        _layers,
    ),
    _Option(
        "fit",
        ("-fit", "--fit"),
        "whether to adjust unset arguments to fit in device memory ('on' or 'off', default: 'on')",
        "[on|off]",
        _fit,
    ),
    _Option("model", ("-m", "--model"), "model path to load", "FNAME", str),
    _Option(
        "verbosity",
        ("-lv", "--verbosity", "--log-verbosity"),
        "Set the verbosity threshold. Messages with a higher verbosity will be ignored. Values:\n - 0: generic"
        " output\n - 1: error\n - 2: warning\n - 3: info\n - 4: trace (more info)\n - 5: debug\n(default: 3)",
        "N",
        _integer,
    ),
)
_SERVER = (
    _Option(
        "ctx_checkpoints",
        ("-ctxcp", "--ctx-checkpoints", "--swa-checkpoints"),
        "max number of context checkpoints to create per slot (default: 32)",
        "N",
        _integer,
    ),
    _Option(
        "cache_ram",
        ("-cram", "--cache-ram"),
        "set the maximum cache size in MiB (default: 8192, -1 - no limit, 0 - disable)",
        "N",
        _integer,
    ),
    _Option(
        "kv_unified",
        ("-kvu", "--kv-unified"),
        "use single unified KV buffer shared across all sequences (default: enabled if number of slots is auto)",
        off=("-no-kvu", "--no-kv-unified"),
    ),
    _Option(
        "warmup",
        ("--warmup",),
        "whether to perform warmup with an empty run (default: enabled)",
        off=("--no-warmup",),
    ),
    _Option(
        "cache_prompt",
        ("--cache-prompt",),
        "whether to enable prompt caching (default: enabled)",
        off=("--no-cache-prompt",),
    ),
    _Option(
        "parallel", ("-np", "--parallel"), "number of server slots (default: -1, -1 = auto)", "N", _parallel
    ),
    _Option("host", ("--host",), "IP address to listen on (default: 127.0.0.1)", "HOST", str),
    _Option("port", ("--port",), "port to listen (default: 8080)", "PORT", _integer),
    _Option("metrics", ("--metrics",), "enable prometheus compatible metrics endpoint (default: disabled)"),
    _Option(
        "slots",
        ("--slots",),
        "expose slots monitoring endpoint (default: enabled)",
        off=("--no-slots",),
    ),
)
_BY_NAME = {name: option for option in _SERVE + _CONTEXT + _SERVER for name in option.names + option.off}


def parse(argv: list[str]) -> Options:
    """Options from `argv` (without the program). A repeated option: the last one counts.

    Raises ArgumentError with llama-server's sentence.
    """
    given: dict[str, Any] = {}
    words = iter(argv)
    for word in words:
        name = word.replace("_", "-") if word.startswith("--") else word
        option = _BY_NAME.get(name)
        if option is None:
            raise ArgumentError(f"error: invalid argument: {name}")
        if option.read is None:
            given[option.field] = name not in option.off
            continue
        try:
            value = next(words, None)
            if value is None:
                raise ArgumentError("expected value for argument")
            given[option.field] = option.read(value)
        except ArgumentError as error:
            raise ArgumentError(f'error while handling argument "{name}": {error}') from None
    return replace(Options(), **given)


def help_text() -> str:
    """`--help` in llama-server's layout."""
    common = "".join(map(_help_entry, _SERVE + _CONTEXT))
    server = "".join(map(_help_entry, _SERVER))
    return f"----- common params -----\n\n{common}\n\n----- example-specific params -----\n\n{server}"


def _help_entry(option: _Option) -> str:
    names = option.names + option.off
    head = names[0] if len(names) == 1 else f"{names[0]}, ".ljust(7) + ", ".join(names[1:])
    head += f" {option.hint}" if option.hint else ""
    indent = " " * _HELP_COLUMN
    start = f"{head}\n{indent}" if len(head) > _HELP_COLUMN - 3 else head.ljust(_HELP_COLUMN)
    lines = [part for line in option.help.split("\n") for part in textwrap.wrap(line, _HELP_WIDTH) or [""]]
    return start + f"\n{indent}".join(lines) + "\n"
