"""vLLM, V0 and V1: arguments, KV pool, weights, graphs, backend, and the refusals with the figures they carry.

Figures per GPU are those of the first worker that prints them; tokens and concurrency are the engine's.
"""

from __future__ import annotations

import re
from typing import Any

from kvtui.logs.draft import Draft
from kvtui.logs.facts import FailurePhase
from kvtui.logs.rules import Action, rule

_RECORD = r"\b(?:INFO|WARNING|ERROR|DEBUG) \d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)? \[?[\w./]+\.py:\d+\]"
_ARGUMENTS = (
    "kv_cache_dtype",
    "max_model_len",
    "gpu_memory_utilization",
    "max_num_seqs",
    "tensor_parallel_size",
    "max_num_batched_tokens",
    "enforce_eager",
    "enable_prefix_caching",
    "block_size",
)
_PAIR = re.compile(r"(?:'(\w+)': |\b(\w+)=)('[^']*'|[^,'\s{}()\[\]]+)")
_DTYPES = {
    "float8_e4m3fn": "fp8_e4m3",
    "float8_e5m2": "fp8_e5m2",
    "bfloat16": "bfloat16",
    "float16": "float16",
    "uint8": None,
}


def _claim(d: Draft, m: re.Match[str]) -> None:
    d.claim("vllm")
    d.actual_of = actual


def _server(d: Draft, m: re.Match[str]) -> None:
    """The banner and the server's version line come once each per start, in either order."""
    if d.has_begun or d.memory.get("pool"):
        d.new_launch()
    d.build = m[1]
    d.lines["build"] = d.here()


def _engine(d: Draft, m: re.Match[str]) -> None:
    if d.outcome != "unknown":
        d.new_launch()
    d.build = m[1]
    d.lines["build"] = d.here()
    _arguments(d, m.string[m.end() :], only_new=True)


def _args(d: Draft, m: re.Match[str]) -> None:
    _arguments(d, m.string[m.end() :])


def _arguments(d: Draft, text: str, *, only_new: bool = False) -> None:
    for name, value in _top_level(text).items():
        name = "max_model_len" if name == "max_seq_len" else name
        if name not in _ARGUMENTS or value == "None" or (only_new and name in d.requested):
            continue
        d.requested[name] = _value(value)
        d.lines[f"requested.{name}"] = d.here()


def _top_level(text: str) -> dict[str, str]:
    """The pairs of a dict, a Namespace or a config line, those inside nested objects left out."""
    depth, kept = 0, []
    offset = 1 if text.lstrip().startswith("{") or text.startswith("(") else 0
    for char in text:
        if char in "{([":
            depth += 1
        if depth <= offset:
            kept.append(char)
        if char in "})]":
            depth -= 1
            if depth < offset:
                break
    found: dict[str, str] = {}
    for quoted, bare, value in _PAIR.findall("".join(kept)):
        found.setdefault(quoted or bare, value.strip("'"))
    return found


def _value(text: str) -> Any:
    if re.fullmatch(r"-?\d+", text):
        return int(text)
    if re.fullmatch(r"-?\d+\.\d+", text):
        return float(text)
    return {"True": True, "False": False}.get(text, text)


def _integer(text: str) -> int:
    return int(text.replace(",", ""))


def _keep(name: str, convert: Any = float, *, last: bool = True) -> Action:
    """A figure of `actual`; of several the last or the first holds."""

    def action(d: Draft, m: re.Match[str]) -> None:
        pool = d.memory.setdefault("pool", {})
        if last or name not in pool:
            pool[name] = convert(m[1])
            d.lines[f"actual.{name}"] = d.here()

    return action


def _smallest(name: str, convert: Any = float) -> Action:
    """Each worker of some versions prints its own; the engine goes by the smallest."""

    def action(d: Draft, m: re.Match[str]) -> None:
        pool = d.memory.setdefault("pool", {})
        value = convert(m[1])
        if name not in pool or value < pool[name]:
            pool[name] = value
            d.lines[f"actual.{name}"] = d.here()

    return action


def _backend(d: Draft, m: re.Match[str]) -> None:
    if "vit attention" not in m.string and "MMEncoder" not in m.string:
        _keep("attn_backend", str, last=False)(d, m)


def _forced_backend(d: Draft, m: re.Match[str]) -> None:
    _keep("attn_backend", str)(d, m)
    d.note("vllm-backend-forced", m[1])


def _kv_type(d: Draft, m: re.Match[str]) -> None:
    _keep("kv_type", str)(d, m)


def _flashinfer_type(d: Draft, m: re.Match[str]) -> None:
    name = _DTYPES.get(m[1])
    asked = str(d.requested.get("kv_cache_dtype", "auto"))
    if asked != "auto" and asked.startswith("fp8") and m[1].startswith("float8"):
        return
    if name is not None:
        d.memory.setdefault("pool", {})["kv_type"] = name
        d.lines["actual.kv_type"] = d.here()


def _auto_fit(d: Draft, m: re.Match[str]) -> None:
    d.memory.setdefault("pool", {})["n_ctx"] = int(m[2])
    d.note("vllm-auto-fit", m[1], m[2])


def _max_len(d: Draft, m: re.Match[str]) -> None:
    """The first is the target's; a draft model's comes after it and may be longer."""
    if "max_model_len" not in d.requested:
        d.requested["max_model_len"] = int(m[1])
        d.lines["requested.max_model_len"] = d.here()
    d.memory.setdefault("max_len", int(m[1]))


def _summary(d: Draft, m: re.Match[str]) -> None:
    pool = d.memory.setdefault("pool", {})
    for name, pattern in (
        ("peak_activation_gib", r"([\d.]+) GiB for peak activation"),
        ("non_torch_gib", r"([\d.]+) GiB for non-torch"),
    ):
        if found := re.search(pattern, m.string):
            pool[name] = float(found[1])
    d.here()


def _started(d: Draft, m: re.Match[str]) -> None:
    if d.engine != "vllm":
        return
    d.stage = "ready"
    if d.outcome == "unknown":
        d.end("ready")
    if "startup complete" in m[0]:
        d.memory["complete"] = True


def _broken(phase: FailurePhase, kind: str) -> Action:
    """An error that ends the start; the traceback repeats it, and it counts once."""

    def action(d: Draft, m: re.Match[str]) -> None:
        if d.engine != "vllm":
            return
        text = m.string[m.start() :].strip()
        if all(f.text != text for f in d.failures):
            wanted = m.groupdict().get("gib") if m.groupdict() else None
            d.fail(phase, kind, wanted_mib=float(wanted) * 1024 if wanted else None, text=text)  # type: ignore[arg-type]
        if not d.memory.get("complete"):
            d.end("failed")

    return action


def _out_of_memory(d: Draft, m: re.Match[str]) -> None:
    """Before the pool exists memory is wanted for weights, after it for graphs and warm-up, then for requests."""
    pool = d.memory.get("pool", {})
    phase: FailurePhase = (
        "prefill" if d.memory.get("complete") else "compute" if "kv_gib" in pool else "weights"
    )
    _broken(phase, "oom")(d, m)


def _blocks(d: Draft, m: re.Match[str]) -> None:
    _keep("kv_blocks", _integer)(d, m)


def _oversized(d: Draft, m: re.Match[str]) -> None:
    _broken("kv", "refused")(d, m)
    d.memory.setdefault("pool", {})["kv_tokens"] = int(m["tokens"])


def _noted(kind: str) -> Action:
    def action(d: Draft, m: re.Match[str]) -> None:
        if d.engine == "vllm":
            d.note(kind, *(g or "" for g in m.groups()))

    return action


TRIGGERS = (b"vLLM API server version", b"LLM engine (v")
ALWAYS = (b"Error",)
EARLY = (b"KV cache", b"startup complete", b"failed to start")

RULES = (
    rule(".py:", _RECORD, _claim),
    rule("vLLM API server", r"vLLM API server version (\S+)", _server),
    rule("Initializing a", r"Initializing an? (?:V1 )?LLM engine \(v([^)]+)\) with config:", _engine),
    rule("non-default args", r"non-default args: ", _args),
    rule("args: Namespace", r"args: Namespace", _args),
    rule("Using max model len", r"Using max model len (\d+)", _max_len),
    rule("Auto-fit max_model_len", r"max_model_len: reduced from (\d+) to (\d+)", _auto_fit),
    rule("data type to store kv", r"Using (\w+) data type to store kv cache", _kv_type),
    rule("KV cache format", r"Using DeepSeek's (\w+) KV cache format", _kv_type),
    rule("FlashInfer resolved", r"FlashInfer resolved .*kv_cache_dtype=torch\.(\w+)", _flashinfer_type),
    rule("KV cache memory:", r"Available KV cache memory: (-?[\d.]+) GiB", _keep("kv_gib", last=False)),
    rule("KV cache size:", r"KV cache size: ([\d,]+) tokens", _smallest("kv_tokens", _integer)),
    rule("# GPU blocks", r"# GPU blocks: (\d+)", _blocks),
    rule(
        "Maximum concurrency",
        r"Maximum concurrency for [\d,]+ tokens per request: ([\d.]+)x",
        _smallest("max_concurrency"),
    ),
    rule("Maximum concurrency", r"Maximum concurrency for ([\d,]+) tokens", _keep("n_ctx", _integer)),
    rule(
        "oading",
        r"(?:Model loading|Loading model weights) took ([\d.]+) Gi?B",
        _keep("weights_gib_per_gpu", last=False),
    ),
    rule(
        "Graph capturing", r"Graph capturing finished in .*took ([\d.]+) GiB", _keep("graph_gib", last=False)
    ),
    rule(
        "CUDA graph memory",
        r"Estimated CUDA graph memory: ([\d.]+) GiB",
        _keep("graph_gib_estimated", last=False),
    ),
    rule("attention backend", r"Using (\w+) attention backend out of", _backend),
    rule("backend on V1", r"Using ([\w ]+) backend on V1 engine", _backend),
    rule(
        "backend", r"Using (?:AttentionBackendEnum\.)?([A-Z][A-Z_0-9]+) backend(?:\.| \(selected)", _backend
    ),
    rule("forcing", r"forcing (\w+) backend", _forced_backend),
    rule("Actual usage is", r"Desired GPU memory utilization is .*Actual usage is", _summary),
    rule("startup complete", r"Application startup complete", _started),
    rule("init engine", r"init engine \(.*took [\d.]+", _started),
    rule("Processed prompts", "", _started),
    rule(
        "is larger than the maximum number",
        r"ValueError: .*stored in KV cache \((?P<tokens>\d+)\)",
        _oversized,
    ),
    rule(
        "at least one request",
        r"ValueError: To serve at least one request .*?\((?P<gib>[\d.]+) GiB KV",
        _broken("kv", "refused"),
    ),
    rule(
        "No available memory",
        r"ValueError: No available memory for the cache blocks",
        _broken("kv", "refused"),
    ),
    rule("auto-fit max_model_len", r"ValueError: Cannot auto-fit max_model_len", _broken("kv", "refused")),
    rule(
        "is less than desired",
        r"ValueError: Free memory on device .*is less than desired",
        _broken("startup", "refused"),
    ),
    rule(
        "warming up sampler",
        r"RuntimeError: CUDA out of memory occurred when warming up",
        _broken("compute", "oom"),
    ),
    rule("out of memory. Tried", r"OutOfMemoryError: .*", _out_of_memory),
    rule(
        "kv-cache is not supported",
        r"ValueError: .*kv-cache is not supported",
        _broken("arguments", "refused"),
    ),
    rule(
        "No valid attention backend",
        r"ValueError: No valid attention backend",
        _broken("arguments", "refused"),
    ),
    rule("not valid for this conf", r"ValueError: Selected backend", _broken("arguments", "refused")),
    rule("Invalid kv_cache_dtype", r"ValueError: Invalid kv_cache_dtype", _broken("arguments", "refused")),
    rule("failed to start", r"(?:EngineCore|Engine process) failed to start", _broken("startup", "other")),
    rule("initialization failed", r"Engine core initialization failed", _broken("startup", "other")),
    rule(
        "scaling factor 1.0", r"Using KV cache scaling factor 1\.0 for (\w+)", _noted("vllm-kv-uncalibrated")
    ),
    rule(
        "Unknown vLLM env",
        r"Unknown vLLM environment variable detected: (VLLM_ATTENTION_BACKEND)",
        _noted("vllm-env-ignored"),
    ),
    rule(
        "Hybrid KV cache manager is dis",
        r"Hybrid KV cache manager is disabled for this hybrid model",
        _noted("vllm-hybrid-off"),
    ),
    rule("cannot be unified", r"KV cache page sizes cannot be unified", _noted("vllm-hybrid-off")),
    rule(
        "for FP8 KV cache", r"Cannot use FlashAttention-2 backend for FP8 KV cache", _noted("vllm-fp8-slow")
    ),
    rule("Unknown kv_cache_quant", r"Unknown kv_cache_quant_algo", _noted("vllm-quant-algo-unknown")),
)


def actual(d: Draft) -> dict[str, Any]:
    """What the newest start proves about its pool."""
    found = dict(d.memory.get("pool", {}))
    if "n_ctx" not in found:
        asked = d.requested.get("max_model_len")
        positive = asked if isinstance(asked, int) and asked > 0 else None
        found["n_ctx"] = positive if positive is not None else d.memory.get("max_len")
    dtype = d.requested.get("kv_cache_dtype")
    if "kv_type" not in found and isinstance(dtype, str) and dtype != "auto":
        found["kv_type"] = dtype
    _blocks_to_tokens(d, found)
    return {k: v for k, v in found.items() if v is not None}


def _blocks_to_tokens(d: Draft, found: dict[str, Any]) -> None:
    """V0 prints blocks: 16 tokens each, where the printed concurrency or capacity agrees."""
    blocks, tokens = found.get("kv_blocks"), found.get("kv_tokens")
    if not blocks:
        return
    if tokens is not None:
        if tokens % blocks == 0:
            found["block_size"] = tokens // blocks
        return
    size = d.requested.get("block_size", 16)
    concurrency, length = found.get("max_concurrency"), found.get("n_ctx")
    if concurrency and length and abs(blocks * size / length - concurrency) <= 0.006:
        found["block_size"], found["kv_tokens"] = size, blocks * size
