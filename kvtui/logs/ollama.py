"""Ollama from 2024 to today: the server's own records round its runners.

The runner's lines (llama.cpp's) are read by their own rules; here stand the environment, the start of a
runner, the load request of the newer engine, the memory by device and the refusals. One load is one launch:
`actual` never mixes two. Sizes that Ollama rounds to a tenth of a GiB are kept apart as `*_gib_by_device`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

from kvtui.logs import slog
from kvtui.logs.commandline import requested, tokens
from kvtui.logs.draft import MAX_KEPT, Draft
from kvtui.logs.facts import BufferFacts
from kvtui.logs.rules import Action, rule

_ENV = re.compile(r"\b(OLLAMA_[A-Z_]+):(\[[^\]]*\]|[^\s\]\"]*)")
_ENV_NAMES = {
    "OLLAMA_KV_CACHE_TYPE": "kv_type",
    "OLLAMA_CONTEXT_LENGTH": "num_ctx",
    "OLLAMA_NUM_PARALLEL": "num_parallel",
    "OLLAMA_FLASH_ATTENTION": "flash_attention",
}
_LOAD = re.compile(r"(\w+):(\d*\[.*?\]|[^\s\}]*)")
_LAYERS = re.compile(r"Layers:(\d+)\(")
_SOURCES = (
    "routes|server|sched|runner|images|memory|ggml|device|types|llama_server|gpu|amd_linux|payload|backend"
)
_FLASH = {"true": True, "enabled": True, "on": True, "false": False, "disabled": False, "off": False}
_FAMILY = {"model weights": "weights", "kv cache": "kv", "compute graph": "compute"}


def _claim(d: Draft) -> None:
    d.claim("ollama")
    d.actual_of = actual


def _ask(d: Draft, name: str, value: object, *, by_environment: bool = False) -> None:
    """The environment is what was asked for; without it, what the newest load was started with."""
    if by_environment:
        d.server_fixed.add(name)
    elif name in d.server_fixed:
        return
    d.server_requested[name] = value
    d.server_lines[f"requested.{name}"] = d.here()


def _server_config(d: Draft, m: re.Match[str]) -> None:
    """A daemon starts: what an earlier one was asked in the same log holds no more."""
    _claim(d)
    for name in d.server_requested:
        d.server_lines.pop(f"requested.{name}", None)
    d.server_requested.clear()
    d.server_fixed.clear()
    for name, value in _ENV.findall(m.string):
        key = _ENV_NAMES.get(name)
        if key is None or value == "":
            continue
        if key in ("num_ctx", "num_parallel"):
            if value.isdigit():
                _ask(d, key, int(value), by_environment=True)
        elif key == "flash_attention":
            _ask(d, key, value.lower() not in ("false", "0"), by_environment=True)
        else:
            _ask(d, key, value, by_environment=True)


def _version(d: Draft, m: re.Match[str]) -> None:
    _claim(d)
    d.server_build = m[1]


def _clamped(d: Draft, m: re.Match[str]) -> None:
    found = slog.fields(m.string)
    asked, trained = found.get("num_ctx", ""), found.get("n_ctx_train", "")
    if asked.isdigit() and int(asked) != d.server_default_ctx:
        _ask(d, "num_ctx", int(asked), by_environment=True)  # a request's own num_ctx wins over the variable
    d.server_note("ollama-ctx-clamped", asked, trained)


def _default_context(d: Draft, m: re.Match[str]) -> None:
    _claim(d)
    found = slog.fields(m.string)
    if found.get("default_num_ctx", "").isdigit():
        d.server_default_ctx = int(found["default_num_ctx"])
        d.server_note("ollama-default-context", found.get("total_vram", ""), found["default_num_ctx"])


def _estimate(d: Draft, m: re.Match[str]) -> None:
    found = slog.fields(m.string)
    total, offload = found.get("layers.model", ""), found.get("layers.offload", "")
    if total.isdigit():
        d.memory["estimate"] = (int(offload) if offload == "0" else None, int(total))


def _will_fit(d: Draft, m: re.Match[str]) -> None:
    parallel = slog.fields(m.string).get("parallel", "")
    if parallel.isdigit():
        d.memory["parallel"] = int(parallel)


def _runner_starts(d: Draft, m: re.Match[str]) -> None:
    """A runner with a model is a load; one without is a look for devices."""
    _claim(d)
    command = slog.fields(m.string).get("cmd", "")
    if "--model" not in command:
        return
    carried: dict[str, Any] = {k: d.memory[k] for k in ("estimate", "parallel") if k in d.memory}
    if d.has_begun or d.memory.get("loading"):
        d.new_launch()
    d.memory = {**carried, "loading": True}
    words = tokens(command)
    asked = requested(words)
    d.memory["command"] = asked
    d.lines["command"] = d.here()
    model = words[words.index("--model") + 1] if "--model" in words[:-1] else ""
    if "ctx" in asked:
        d.server_note("ollama-load", model, str(asked["ctx"]), str(asked.get("n_batch", "")))
    if "llama server" in m[0]:
        asked["flash_attn"] = "on" if "--flash-attn" in words else "off"
    for word, value in pairwise(words):
        if word == "--kv-cache-type":
            asked["kv_type"] = value
            _ask(d, "kv_type", value)
    if "cache_type_k" in asked:
        _ask(d, "kv_type", asked["cache_type_k"])


def _model_layers(d: Draft, m: re.Match[str]) -> None:
    total = slog.fields(m.string).get("model layers", "")
    if total.isdigit():
        d.memory["model_layers"] = int(total)


def _load_request(d: Draft, m: re.Match[str]) -> None:
    """The last commit is what was loaded; memory by device that stood before it was an estimate."""
    _claim(d)
    found = dict(_LOAD.findall(slog.fields(m.string).get("request", "")))
    if found.get("Operation") != "commit":
        d.memory.setdefault("request", found)
        return
    if d.memory.get("committed"):
        d.new_launch()
    d.memory["request"] = found
    d.memory["committed"] = True
    d.memory["by_device"] = {}
    d.lines["request"] = d.here()
    if kv_type := found.get("KvCacheType"):
        _ask(d, "kv_type", kv_type)


def _by_device(d: Draft, m: re.Match[str]) -> None:
    found = slog.fields(m.string)
    family, value = _FAMILY[m[1]], slog.size(found.get("size", ""))
    device = found.get("device") or found.get("buffer") or found.get("buffer_type")
    if not device or value is None or len(d.memory.get("by_device", ())) >= MAX_KEPT:
        return
    if "device" not in found:
        d.memory["committed"] = True  # the engine of early 2025: no load request, and only what it allocated
    number, unit = value
    table = d.memory.setdefault("by_device", {})
    table[f"{family}_{unit.lower()}_by_device", device] = (number, d.here())


def _started(d: Draft, m: re.Match[str]) -> None:
    _claim(d)
    d.end("ready")


def _too_large(d: Draft, m: re.Match[str]) -> None:
    _claim(d)
    found = slog.fields(m.string)
    wanted = slog.mib(found.get("requested", ""))
    d.fail("weights", "oom", wanted_mib=round(wanted, 1) if wanted is not None else None)
    d.end("failed")


def _load_failed(d: Draft, m: re.Match[str]) -> None:
    _claim(d)
    text = slog.fields(m.string).get("error", "")
    if sizes := re.search(r"\((\d+(?:\.\d+)?) GiB\) than is available \((\d+(?:\.\d+)?) GiB\)", text):
        d.memory["required_gib"], d.memory["available_gib"] = float(sizes[1]), float(sizes[2])
    if d.outcome != "ready":
        if not d.failures:
            d.fail("startup", "other")
        d.end("failed")


def _warned(kind: str, *names: str) -> Action:
    """A warning of the server, with the values that it carries."""

    def action(d: Draft, m: re.Match[str]) -> None:
        _claim(d)
        found = slog.fields(m.string)
        d.server_note(kind, *(found.get(n, "") for n in names))

    return action


def _kv_type_refused(d: Draft, m: re.Match[str]) -> None:
    """With no type at all the warning is a false alarm of 0.5.0 to 0.11.10."""
    kind = slog.fields(m.string).get("type", "")
    if kind not in ("", "f16"):
        d.server_note("ollama-kv-ignored", kind)


def _record(d: Draft, m: re.Match[str]) -> None:
    """A record from one of the files of Ollama's server and runners is Ollama's."""
    _claim(d)


TRIGGERS = (b'msg="starting ',)
ALWAYS = (b"level=WARN", b"level=ERROR", b"msg=load request")
EARLY = (b"failed", b"started in", b"truncated = 1")

RULES = (
    rule("level=", rf"\blevel=\w+ source=(?:{_SOURCES})\.go:\d+", _record),
    rule("server config", r"server config\"? env=", _server_config),
    rule("(version", r"Listening on \S+ \(version ([^)\s]+)\)", _version),
    rule("default_num_ctx", r"vram-based default context", _default_context),
    rule("requested context", r"requested context (?:size too large|length is greater)", _clamped),
    rule("layers.model=", "", _estimate),
    rule("new model will fit", "", _will_fit),
    rule('msg="starting ', r"msg=\"starting (?:llama server|runner|llama-server)\"", _runner_starts),
    rule("model layers", r"msg=\"loading model\" \"model layers\"=", _model_layers),
    rule("msg=load request", "", _load_request),
    rule("device=", r"msg=\"(model weights|kv cache|compute graph)\"", _by_device),
    rule("started in", r"msg=\"(?:llama runner|llama-server) started in", _started),
    rule(
        "kv cache",
        r"msg=\"(?:quantized kv cache requested but|kv cache type not supported)",
        _kv_type_refused,
    ),
    rule(
        "OLLAMA_KV_CACHE_TYPE",
        r"(?:must be enabled to use a quantized|unsupported) OLLAMA_KV",
        _kv_type_refused,
    ),
    rule("flash attention enabled but", r"not supported by (\w+)", _warned("ollama-fa-refused", "msg")),
    rule("truncating input", "", _warned("ollama-truncated", "limit", "prompt", "new")),
    rule("evicting", r"msg=\"[^\"]*evicting", _warned("ollama-evicted", "loaded layers")),
    rule("reducing automatic", "", _warned("ollama-ctx-retried", "old_num_ctx", "new_num_ctx")),
    rule("dropping", r"msg=\"dropping (?:integrated|ROCm)", _warned("ollama-gpu-dropped", "description")),
    rule("driver", r"driver (?:is )?too old", _warned("ollama-gpu-dropped", "device")),
    rule("parallel requests", r"support parallel requests", _warned("ollama-no-parallel", "architecture")),
    rule("too large for system", r"msg=\"model request too large for system\"", _too_large),
    rule('ailed"', r"msg=\"(?:NewLlamaServer failed|Load failed)\"", _load_failed),
    rule("error loading llama", "", _load_failed),
    rule("terminated", r"msg=\"(?:llama runner|llama-server) terminated\"", _load_failed),
)


def _sum(buffers: Iterable[BufferFacts]) -> dict[str, float]:
    totals: dict[str, float] = {}
    for b in buffers:
        totals[b.device] = round(totals.get(b.device, 0.0) + b.mib, 2)
    return totals


def actual(d: Draft) -> dict[str, Any]:
    """What the newest load proves. Order of trust: the runner's lines, the load request, the command line."""
    found: dict[str, Any] = {}
    _from_command(d, found)
    _from_request(d, found)
    _from_runner(d, found)
    for key in ("required_gib", "available_gib"):
        if key in d.memory:
            found[key] = d.memory[key]
    return {k: v for k, v in found.items() if v is not None and v != {}}


def _from_command(d: Draft, found: dict[str, Any]) -> None:
    command = d.memory.get("command", {})
    found["n_ctx"] = command.get("ctx")
    found["num_parallel"] = command.get("n_parallel", d.memory.get("parallel"))
    found["flash_attn"] = {"on": True, "off": False}.get(command.get("flash_attn", ""))
    found["kv_type"] = command.get("kv_type")
    found["num_batch"] = command.get("n_batch")
    on_gpu, total = d.memory.get("estimate", (None, None))
    found["layers_total"] = d.memory.get("model_layers", total)
    found["layers_gpu"] = 0 if command.get("n_gpu_layers") == 0 else on_gpu


def _from_request(d: Draft, found: dict[str, Any]) -> None:
    request = d.memory.get("request")
    if request is not None:
        size, parallel = request.get("KvSize", ""), request.get("Parallel", "")
        found["n_ctx"] = int(size) if size.isdigit() else found["n_ctx"]
        found["num_parallel"] = int(parallel) if parallel.isdigit() else found["num_parallel"]
        batch = request.get("BatchSize", "")
        found["num_batch"] = int(batch) if batch.isdigit() else found["num_batch"]
        found["flash_attn"] = _FLASH.get(request.get("FlashAttention", "").lower())
        if d.memory.get("committed") and "GPULayers" in request:
            found["layers_gpu"] = sum(int(n) for n in _LAYERS.findall(request.get("GPULayers", "")))
    table = d.memory.get("by_device", {}) if d.memory.get("committed") else {}
    for (name, device), (value, _line) in table.items():
        found.setdefault(name, {})[device] = value
    if request is not None and any(name.startswith("kv_") for name, _ in table):
        found["kv_type"] = request.get("KvCacheType") or "f16"


def _from_runner(d: Draft, found: dict[str, Any]) -> None:
    if d.offloaded is not None:
        found["layers_gpu"], found["layers_total"] = d.offloaded
    if d.model_buffers:
        found["weights_mib_by_device"] = _sum(d.model_buffers)
    mains = [c for c in d.real_contexts() if c.launch == d.launch and c.role == "main"]
    if not mains:
        return
    context = mains[-1]
    found["n_ctx"] = context.values.get("n_ctx", found["n_ctx"])
    found["num_parallel"] = context.values.get("n_seq_max", found["num_parallel"])
    if "flash_attn_requested" in context.values or "flash_attn" in context.values:
        state = context.values.get("flash_attn")
        found["flash_attn"] = None if state is None else state == "enabled"
    if context.kv_buffers:
        found["kv_mib_by_device"] = _sum(context.kv_buffers)
    if context.rs_buffers:
        found["rs_mib_by_device"] = _sum(context.rs_buffers)
    if context.compute:
        found["compute_mib_by_device"] = _sum(context.compute.values())
    for cache in context.caches:
        if cache.type_k is not None:
            found["kv_type_k"], found["kv_type_v"] = cache.type_k, cache.type_v
            found["kv_type"] = cache.type_k if cache.type_k == cache.type_v else None
            break
