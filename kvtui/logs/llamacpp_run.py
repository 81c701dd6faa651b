"""llama.cpp as it prints today: what the server serves with, what failed, and what it warns of."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from kvtui.logs.draft import Draft
from kvtui.logs.facts import FailurePhase
from kvtui.logs.rules import Action, number, rule

_PHASE_OF_STAGE: dict[str, FailurePhase] = {
    "startup": "startup",
    "fit": "startup",
    "weights": "weights",
    "context": "kv",
    "kv": "kv",
    "recurrent": "recurrent",
    "compute": "compute",
    "mmproj": "mmproj",
    "ready": "prefill",
}


def _slots(d: Draft, m: re.Match[str]) -> None:
    found = {k: v for k, v in m.groupdict().items() if v is not None}
    values: dict[str, int | bool] = {k: int(v) for k, v in found.items() if k != "unified"}
    if "unified" in found:
        values["kv_unified"] = found["unified"] == "true"
    d.set_slots(**values)


def _new_slot(d: Draft, m: re.Match[str]) -> None:
    if d.slots.n_ctx_slot is None:
        d.set_slots(n_ctx_slot=int(m[1]))


def ready(d: Draft, m: re.Match[str]) -> None:
    d.stage = "ready"
    d.end("ready")


def _alloc_failed(d: Draft, m: re.Match[str]) -> None:
    if d.stage == "fit":
        return
    d.fail(_PHASE_OF_STAGE[d.stage], "oom", device=_device_name(d, m["device"]), wanted_mib=number(m["mib"]))


def _device_name(d: Draft, index: str) -> str:
    named = [n for n in d.devices if n.endswith(index) and n[: -len(index)].isalpha() and n != "CPU"]
    return named[0] if len(named) == 1 else f"device {index}"


def _buffer_failed(d: Draft, m: re.Match[str]) -> None:
    """`failed to allocate CUDA2 buffer of size N` names the device of the refusal just before it."""
    if d.stage == "fit":
        return
    last = d.failures[-1] if d.failures else None
    if last is not None and last.kind == "oom" and last.line == d.memory.get("oom_line", last.line):
        d.failures[-1] = replace(last, device=m["device"])
    else:
        mib = round(int(m["bytes"]) / (1 << 20), 2)
        d.fail(_PHASE_OF_STAGE[d.stage], "oom", device=m["device"], wanted_mib=mib)


def _phase(phase: FailurePhase) -> Action:
    """The line that says for what the memory was wanted corrects the phase of the refusal before it."""

    def action(d: Draft, m: re.Match[str]) -> None:
        if d.stage == "fit":
            return
        if d.failures and d.failures[-1].kind == "oom":
            d.failures[-1] = replace(d.failures[-1], phase=phase)
        else:
            d.fail(phase, "oom")
        d.here()

    return action


def _failed(phase: FailurePhase, kind: str = "refused") -> Action:
    def action(d: Draft, m: re.Match[str]) -> None:
        if d.stage != "fit":
            d.fail(phase, kind)  # type: ignore[arg-type]

    return action


def _fatal(d: Draft, m: re.Match[str]) -> None:
    if d.stage != "fit" and d.outcome != "ready":
        d.end("failed")


def _arguments(d: Draft, m: re.Match[str]) -> None:
    d.claim("llama.cpp")
    d.fail("arguments", "refused")
    d.end("failed")


def _runtime_crash(d: Draft, m: re.Match[str]) -> None:
    if d.stage == "fit":
        return
    d.fail(_PHASE_OF_STAGE[d.stage], "oom" if "out of memory" in m.string else "crash")
    if d.outcome != "ready":
        d.end("failed")


def _signal(d: Draft, m: re.Match[str]) -> None:
    d.fail(_PHASE_OF_STAGE[d.stage], "crash")
    if d.outcome != "ready":
        d.end("failed")


def _retried(d: Draft, m: re.Match[str]) -> None:
    if d.failures and d.failures[-1].kind == "oom":
        d.failures.pop()
    d.note("retried-without-pipeline")


def _note(kind: str) -> Callable[[Draft, re.Match[str]], None]:
    def action(d: Draft, m: re.Match[str]) -> None:
        if d.stage != "fit":
            d.note(kind, *(g or "" for g in m.groups()))

    return action


RULES = (
    rule(
        "n_slots",
        r"n_slots = (?P<n_slots>\d+)(?:, n_ctx_slot = (?P<n_ctx_slot>\d+))?"
        r"(?:, kv_unified = '(?P<unified>true|false)')?",
        _slots,
    ),
    rule("new slot", r"new slot,? n_ctx(?:_slot)? = (\d+)", _new_slot),
    rule("model loaded", r"(?:llama_server|main): model loaded\b", ready),
    rule("listening on", r"(?:server is )?listening on (?:http|unix)", ready),
    rule("all slots are idle", "", ready),
    rule(
        "out of memory",
        r"allocating (?P<mib>[\d.,]+) MiB on device (?P<device>\d+): .*out of memory",
        _alloc_failed,
    ),
    rule(
        "failed to allocate",
        r"failed to allocate (?P<device>\S+) buffer of size (?P<bytes>\d+)",
        _buffer_failed,
    ),
    rule("failed to allocate", r"failed to allocate (?:buffer for )?kv cache", _phase("kv")),
    rule("failed to allocate", r"failed to allocate (?:buffer for )?rs cache", _phase("recurrent")),
    rule("failed to allocate", r"failed to allocate compute (?:\w+ )?buffers", _phase("compute")),
    rule("unable to allocate", r"unable to allocate \S+ buffer", _phase("weights")),
    rule(
        "requires",
        r"(?:quantized V cache|V cache quantization) (?:requires flash_attn|was requested, but this requires)",
        _failed("context"),
    ),
    rule(
        "does not divide", r"(?:K|V) cache type \S+ with block size \d+ does not divide", _failed("context")
    ),
    rule(
        "cache types", r"does not support different K \(\S+\) and V \(\S+\) cache types", _failed("context")
    ),
    rule("while handling argument", r"error while handling argument", _arguments),
    rule("failed to create", r"failed to create[_ ]context", _fatal),
    rule("to load model", r"(?:failed|unable) to load model", _fatal),
    rule("terminated by signal", "", _signal),
    rule("Segmentation fault", "", _signal),
    rule("Aborted", r"\bAborted\b", _signal),
    rule("exiting due to", "", _fatal),
    rule("CUDA error", r"\bCUDA error: ", _runtime_crash),
    rule("GGML_ASSERT", r"GGML_ASSERT\(.*\) failed", _runtime_crash),
    rule("without pipeline parallelism", "", _retried),
    rule(
        "rounding down", r"n_ctx is not divisible by n_seq_max - rounding down to (\d+)", _note("ctx-rounded")
    ),
    rule(
        "- capping",
        r"slot context \((\d+)\) exceeds the training context of the model \((\d+)\)",
        _note("slot-capped"),
    ),
    rule("full-size SWA", "", _note("swa-full")),
    rule("required for quantized V", "", _note("fa-forced")),
    rule(
        "assigned to device",
        r"layer \d+ is assigned to device (\S+) but Flash Attention is assigned to device (\S+)",
        _note("fa-elsewhere"),
    ),
    rule("verbosity =", r"verbosity = (\d+) \(adjust with", _note("verbosity")),
    rule(
        "set to auto",
        r"n_parallel is set to auto, using n_parallel = (\d+) and kv_unified = (\w+)",
        _note("slots-auto"),
    ),
    rule("context size reduced", r"context size reduced from (\d+) to (\d+)", _note("fit-reduced")),
    rule("set by user", r"n_gpu_layers already set by user to (\S+), abort", _note("fit-aborted-ngl")),
    rule(
        "vector kernel",
        r"no FlashAttention vector kernel compiled for K/V types (\S+)-(\S+),",
        _note("no-vector-kernel"),
    ),
    rule("truncated = 1", r"stop processing: n_tokens = (\d+), truncated = 1", _note("generation-truncated")),
    rule(
        "exceeds the available context",
        r"request \((\d+) tokens\) exceeds the available context size \((\d+) tokens\)",
        _note("request-too-long"),
    ),
    rule("Context size has been exceeded", "", _note("pool-exhausted")),
    rule("find free space in the KV", "", _note("pool-pressure")),
    rule("forcing full prompt", r"forcing full prompt re-?processing", _note("full-reprocessing")),
    rule(
        "does not match expectation",
        r"(\S+)\s+compute buffer size of ([\d.]+) MiB, does not match expectation of\s+([\d.]+) MiB",
        _note("compute-grew"),
    ),
    rule("prompt cache is enabled", r"prompt cache is enabled, size limit: (\d+) MiB", _note("prompt-cache")),
    rule(
        "checkpoints enabled",
        r"context checkpoints enabled, max = (\d+), min spacing = (\d+)",
        _note("checkpoints"),
    ),
)
