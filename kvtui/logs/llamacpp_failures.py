"""What failed in llama.cpp, of every era: refused allocations by phase, refused settings, crashes."""

from __future__ import annotations

import re
from dataclasses import replace

from kvtui.logs.draft import Draft
from kvtui.logs.facts import FailurePhase
from kvtui.logs.rules import Action, number, rule, weak

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


def _alloc_failed(d: Draft, m: re.Match[str]) -> None:
    if d.stage == "fit":
        return
    d.fail(_PHASE_OF_STAGE[d.stage], "oom", device=_device_name(d, m["device"]), wanted_mib=number(m["mib"]))


def _bytes_refused(d: Draft, m: re.Match[str]) -> None:
    if d.stage != "fit":
        d.fail(_PHASE_OF_STAGE[d.stage], "oom", wanted_mib=round(int(m["bytes"]) / (1 << 20), 2))


def _mib_refused(d: Draft, m: re.Match[str]) -> None:
    if d.stage != "fit":
        d.fail(_PHASE_OF_STAGE[d.stage], "oom", wanted_mib=number(m["mib"]))


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
    if not d.failures or d.failures[-1].line != d.here():
        d.fail("arguments", "refused")
    d.end("failed")


def _runtime_crash(d: Draft, m: re.Match[str]) -> None:
    if d.stage == "fit":
        return
    d.fail(_PHASE_OF_STAGE[d.stage], "oom" if "out of memory" in m.string else "crash")
    if d.outcome != "ready":
        d.end("failed")


def _signal(d: Draft, m: re.Match[str]) -> None:
    if d.failures and d.failures[-1].line == d.here():
        return
    d.fail(_PHASE_OF_STAGE[d.stage], "crash")
    if d.outcome != "ready":
        d.end("failed")


def _retried(d: Draft, m: re.Match[str]) -> None:
    if d.failures and d.failures[-1].kind == "oom":
        d.failures.pop()
    d.note("retried-without-pipeline")


RULES = (
    rule(
        "out of memory",
        r"allocating (?P<mib>[\d.,]+) MiB on device (?P<device>\d+): .*out of memory",
        _alloc_failed,
    ),
    rule("allocation of size", r"Device memory allocation of size (?P<bytes>\d+) failed", _bytes_refused),
    rule("allocate buffer, size", r"failed to allocate buffer, size =\s*(?P<mib>[\d.,]+) MiB", _mib_refused),
    rule("insufficient memory", r"\(attempted to allocate\s+(?P<mib>[\d.]+) MB\)", _mib_refused),
    rule(
        "failed to allocate",
        r"failed to allocate (?P<device>\S+) buffer of size (?P<bytes>\d+)",
        _buffer_failed,
    ),
    rule("failed to allocate", r"failed to allocate (?:buffer for )?kv cache", _phase("kv")),
    rule("failed for self-attention", r"failed for self-attention cache", _phase("kv")),
    rule("failed to allocate", r"failed to allocate (?:buffer for )?rs cache", _phase("recurrent")),
    rule("failed to allocate", r"failed to allocate compute (?:\w+ )?buffers", _phase("compute")),
    rule("unable to allocate", r"unable to allocate \S+ buffer", _phase("weights")),
    rule(
        "requires",
        r"(?:quantized V cache|V cache quantization) (?:requires flash_attn|was requested, but this requires)",
        _failed("context"),
    ),
    rule("does not divide", r"[KV] cache type \S+ with block size \d+ does not divide", _failed("context")),
    rule(
        "cache types", r"does not support different K \(\S+\) and V \(\S+\) cache types", _failed("context")
    ),
    rule("while handling argument", r"error while handling argument", _arguments),
    rule("Unsupported cache type", "", _arguments),
    weak("error: ", r"^error: (?:unknown|invalid) argument", _failed("arguments")),
    weak("failed to create", r"failed to create[_ ]context", _fatal),
    weak("to load model", r"(?:failed|unable) to load model", _fatal),
    weak("exiting due to", "", _fatal),
    weak("error loading model", r"error loading model: ", _fatal),
    weak("core dumped", "", _signal),
    weak("terminated by signal", "", _signal),
    weak("Segmentation fault", "", _signal),
    weak("Aborted", r"\bAborted\b", _signal),
    weak("terminate called after", "", _signal),
    weak("Main process exited", r"code=(?:dumped|killed), status=(?!15/TERM|2/INT|1/HUP)", _signal),
    weak("Main process exited", r"code=exited, status=[1-9]", _fatal),
    weak(" error", r"\b(?:CUDA|ROCm|HIP|MUSA) error\b", _runtime_crash),
    rule("GGML_ASSERT", r"GGML_ASSERT\(.*\) failed", _runtime_crash),
    rule("without pipeline parallelism", "", _retried),
)
