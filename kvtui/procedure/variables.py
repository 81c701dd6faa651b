"""The variables that a run may change, one at a time: how each is named, read, listed and set."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from kvtui.core.config import RunConfig
from kvtui.core.errors import InputError
from kvtui.core.text import clean
from kvtui.model.cache_types import cache_type as size_of

_OWNED: dict[str, str] = {
    option: label
    for label, options in {
        "context": "-c --ctx-size --max-model-len",
        "KV types": "-ctk -ctv --cache-type-k --cache-type-v --kv-cache-dtype",
        "micro-batch": "-ub --ubatch-size",
        "batch": "-b --batch-size --max-num-batched-tokens",
        "parallel slots": "-np --parallel --max-num-seqs",
        "unified KV": "-kvu --kv-unified -no-kvu --no-kv-unified",
        "flash attention": "-fa --flash-attn",
        "layers on GPU": "-ngl --gpu-layers --n-gpu-layers",
        "experts on CPU": "-ncmoe --n-cpu-moe -cmoe --cpu-moe",
        "full-size SWA cache": "--swa-full",
    }.items()
    for option in options.split()
}
"""Options that are a variable of their own, by their names in the engines, with its label."""
_NEVER = frozenset(("-m", "--model", "--host", "--port", "--api-key", "--log-file"))
"""Options by which kvtui reaches the engine and tells its sessions apart."""


@dataclass(frozen=True, slots=True)
class Variable:
    """One variable. `fields` are the RunConfig fields it sets: KV types are one variable though they are two options,
    since the procedure moves the pair."""

    name: str
    option: str
    label: str
    help: str
    fields: tuple[str, ...]
    read: Callable[[RunConfig], str]
    parse: Callable[[RunConfig, str], dict[str, Any]]
    suggest: Callable[[RunConfig], tuple[str, ...]]

    def value(self, config: RunConfig) -> str:
        """Its value in `config`, as it is written on screen."""
        return self.read(config)

    def choices(self, config: RunConfig) -> tuple[str, ...]:
        """Values worth trying next; others may be typed."""
        return tuple(c for c in self.suggest(config) if c != self.read(config))

    def change(self, config: RunConfig, text: str) -> RunConfig:
        """`config` with this variable set from `text`. Raises InputError that says what is allowed."""
        return replace(config, **self.parse(config, text.strip()))


def _count(name: str, field: str, low: int, high: int) -> Callable[[str], dict[str, Any]]:
    def parse(text: str) -> dict[str, Any]:
        digits = text.replace(",", "").replace("_", "")
        scale = 1024 if digits[-1:] in ("K", "k") else 1
        digits = digits.rstrip("Kk")
        if not digits.isascii() or not digits.isdigit() or not low <= int(digits[:12]) * scale <= high:
            raise InputError(
                f"{name}: {clean(text, 40) or 'nothing'} is not a number from {low:,} to {high:,}"
            )
        return {field: int(digits) * scale}

    return parse


def _kv_pair(text: str) -> dict[str, Any]:
    key, _, value = text.partition("/")
    key, value = key.strip().lower(), (value or key).strip().lower()
    for name in (key, value):
        if not name or not all(c.isalnum() or c == "_" for c in name):
            raise InputError(f"KV types: {clean(text, 40) or 'nothing'} is not a pair such as q8_0/q8_0")
    if _known(key) and _known(value) and bits_of(value) > bits_of(key):
        raise InputError(
            f"KV types: {key}/{value} quantizes keys below values",
            hint="keys lose more than values: quantize values first, or both alike",
        )
    return {"type_k": key, "type_v": value}


def bits_of(cache_type: str) -> float:
    """Bits per value of a cache type; 16 for one that is not known (a fork's): it is not taken to save anything."""
    if cache_type.startswith("fp8"):
        return 8.0
    known = size_of(cache_type)
    return 16.0 if known is None else known.bits


def _known(cache_type: str) -> bool:
    return cache_type.startswith("fp8") or size_of(cache_type) is not None


def _flag(text: str) -> dict[str, Any]:
    value = text.lower()
    if value not in ("on", "off", "auto"):
        raise InputError(f"flash attention: {clean(text, 40) or 'nothing'} is not one of on, off, auto")
    return {"flash_attn": value}


def _switch(label: str, field: str) -> Callable[[str], dict[str, Any]]:
    def parse(text: str) -> dict[str, Any]:
        if text.lower() not in ("on", "off"):
            raise InputError(f"{label}: {clean(text, 40) or 'nothing'} is not one of on, off")
        return {field: text.lower() == "on"}

    return parse


def _gpu_layers(text: str) -> dict[str, Any]:
    return {"n_gpu_layers": 999} if text == "all" else _count("GPU layers", "n_gpu_layers", 0, 999)(text)


def _share(text: str) -> dict[str, Any]:
    """Raises InputError for what is no share of a card."""
    if not re.fullmatch(r"0?\.\d{1,4}", text, re.ASCII) or not 0.05 <= float(text) <= 0.99:
        raise InputError(
            f"share of the card: {clean(text, 40) or 'nothing'} is not a number from 0.05 to 0.99"
        )
    return {"gpu_memory_utilization": float(text)}


def _shares(now: float | None) -> tuple[float, ...]:
    return (
        ()
        if now is None
        else tuple(round(s, 4) for s in (now - 0.05, now - 0.02, now + 0.02) if 0.05 <= s <= 0.99)
    )


def _graphs(text: str) -> dict[str, Any]:
    return {"enforce_eager": not _switch("graph capture", "on")(text)["on"]}


def _option_words(text: str) -> tuple[str, ...]:
    """The words of a free-form option. Raises InputError: unclosed quotes, no option, or one with a name of its own."""
    try:
        words = tuple(shlex.split(text))
    except ValueError as error:
        raise InputError(f"engine option: {clean(text, 80)}: {str(error).lower()}") from None
    if not words or not words[0].startswith("-") or any(clean(w, len(w) + 1) != w for w in words):
        raise InputError(f"engine option: {clean(text, 80) or 'nothing'} does not begin with an option")
    for word in words:
        name = word.split("=", 1)[0]
        if name in _OWNED:
            raise InputError(f"engine option: {name} is a variable of its own", hint=f"change {_OWNED[name]}")
        if name in _NEVER:
            raise InputError(f"engine option: {name} stays as it is in a session", hint="start a new session")
    return words


def _appended(config: RunConfig, text: str) -> dict[str, Any]:
    return {"extra": () if text.lower() == "none" else (*config.extra, *_option_words(text))}


def _alone(parse: Callable[[str], dict[str, Any]]) -> Callable[[RunConfig, str], dict[str, Any]]:
    """A value that does not depend on the configuration it is set in."""
    return lambda config, text: parse(text)


def _halves(n: int, low: int) -> tuple[str, ...]:
    steps = (n // 4, n // 2, n * 2)
    return tuple(str(s) for s in steps if s >= low)


VARIABLES: tuple[Variable, ...] = (
    Variable(
        "context",
        "-c",
        "context",
        "tokens of KV cache to allocate",
        ("n_ctx",),
        lambda c: str(c.n_ctx),
        _alone(_count("context", "n_ctx", 256, 1 << 24)),
        lambda c: _halves(c.n_ctx, 256),
    ),
    Variable(
        "kv-types",
        "-ctk/-ctv",
        "KV types",
        "cache types of keys and values",
        ("type_k", "type_v"),
        lambda c: c.kv_types,
        _alone(_kv_pair),
        lambda c: ("f16/f16", "q8_0/q8_0", "q8_0/q4_0", "q4_0/q4_0"),
    ),
    Variable(
        "micro-batch",
        "-ub",
        "micro-batch",
        "tokens of one prefill graph: sets the compute buffer",
        ("n_ubatch",),
        lambda c: str(c.n_ubatch),
        _alone(_count("micro-batch", "n_ubatch", 16, 1 << 16)),
        lambda c: _halves(c.n_ubatch, 32),
    ),
    Variable(
        "batch",
        "-b",
        "batch",
        "tokens of one logical batch",
        ("n_batch",),
        lambda c: str(c.n_batch),
        _alone(_count("batch", "n_batch", 16, 1 << 16)),
        lambda c: _halves(c.n_batch, 32),
    ),
    Variable(
        "slots",
        "-np",
        "parallel slots",
        "sequences served at the same time; they divide the context",
        ("n_parallel",),
        lambda c: str(c.n_parallel),
        _alone(_count("parallel slots", "n_parallel", 1, 256)),
        lambda c: ("1", "2", "4"),
    ),
    Variable(
        "unified",
        "-kvu",
        "unified KV",
        "one pool for all slots instead of a share each",
        ("kv_unified",),
        lambda c: "on" if c.kv_unified else "off",
        _alone(_switch("unified KV", "kv_unified")),
        lambda c: ("on", "off"),
    ),
    Variable(
        "flash-attention",
        "-fa",
        "flash attention",
        "fused attention; quantized values need it",
        ("flash_attn",),
        lambda c: c.flash_attn,
        _alone(_flag),
        lambda c: ("on", "off", "auto"),
    ),
    Variable(
        "gpu-layers",
        "-ngl",
        "layers on GPU",
        "layers whose weights and KV are on the GPU",
        ("n_gpu_layers",),
        lambda c: "all" if c.n_gpu_layers in (None, 999) else str(c.n_gpu_layers),
        _alone(_gpu_layers),
        lambda c: ("all", "0"),
    ),
    Variable(
        "cpu-moe",
        "--n-cpu-moe",
        "experts on CPU",
        "layers whose experts stay on the CPU",
        ("n_cpu_moe",),
        lambda c: str(c.n_cpu_moe or 0),
        _alone(_count("experts on CPU", "n_cpu_moe", 0, 999)),
        lambda c: ("0",),
    ),
    Variable(
        "swa-full",
        "--swa-full",
        "full-size SWA cache",
        "sliding-window layers keep the whole context",
        ("swa_full",),
        lambda c: "on" if c.swa_full else "off",
        _alone(_switch("full-size SWA cache", "swa_full")),
        lambda c: ("on", "off"),
    ),
    Variable(
        "utilization",
        "--gpu-memory-utilization",
        "share of the card",
        "what the engine reserves of the card as a whole: weights, activations and the pool",
        ("gpu_memory_utilization",),
        lambda c: "default" if c.gpu_memory_utilization is None else f"{c.gpu_memory_utilization:.4f}",
        _alone(_share),
        lambda c: tuple(f"{s:.4f}" for s in _shares(c.gpu_memory_utilization)),
    ),
    Variable(
        "graphs",
        "--enforce-eager",
        "graph capture",
        "CUDA graphs: faster decode for memory beside the pool",
        ("enforce_eager",),
        lambda c: "off" if c.enforce_eager else "on",
        _alone(_graphs),
        lambda c: ("on", "off"),
    ),
    Variable(
        "option",
        "any option",
        "engine option",
        "any other option, typed as on a command line; `none` takes them back",
        ("extra",),
        lambda c: shlex.join(c.extra) or "none",
        _appended,
        lambda c: ("none",),
    ),
)

BY_NAME: dict[str, Variable] = {v.name: v for v in VARIABLES}


def changed(before: RunConfig, after: RunConfig) -> tuple[Variable, ...]:
    """The variables in which two configurations differ in what they ask."""
    return tuple(v for v in VARIABLES if v.value(before) != v.value(after))
