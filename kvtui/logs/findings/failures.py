"""Failures by phase: what was wanted, where, and the one variable that gives room."""

from __future__ import annotations

from collections.abc import Iterator

from kvtui.logs.facts import FailureFacts, FailurePhase
from kvtui.logs.findings.entry import Entry, Hit, View

_OOM_NEXT: dict[FailurePhase, tuple[str, str]] = {
    "weights": ("the weights", "-ngl: fewer layers on the GPU, or a smaller quantization of the model"),
    "kv": ("the KV cache", "-c: a shorter context, then -ctk/-ctv q8_0"),
    "recurrent": ("the recurrent state", "-np 1: the state exists once per sequence"),
    "compute": ("the compute buffer", "-ub: half of it; the buffer grows with the micro-batch"),
    "mmproj": ("the vision projector", "--no-mmproj-offload: fit and budget do not count the projector"),
    "prefill": ("work while running", "-ub: half of it; prefill needs more than start-up reserved"),
    "decode": ("work while running", "-c: a shorter context"),
}


def _oom(view: View) -> Iterator[Hit]:
    for failure in view.facts.failures:
        if failure.kind == "oom":
            what, change = _OOM_NEXT.get(failure.phase, ("memory", "-c: a shorter context"))
            yield Hit(_wanted(failure, what), change, (failure.line,) if failure.line else ())


def _wanted(failure: FailureFacts, what: str) -> str:
    size = f"{failure.wanted_mib:,.2f} MiB " if failure.wanted_mib is not None else ""
    where = f" on {failure.device}" if failure.device else ""
    return f"{size}for {what} was refused{where}."


def _refused(view: View) -> Iterator[Hit]:
    for failure in view.facts.failures:
        line = (failure.line,) if failure.line else ()
        if failure.kind != "refused":
            continue
        if "flash_attn" in failure.text or "Flash Attention" in failure.text:
            yield Hit("A quantized V cache needs flash attention, which is off.", "-fa on (or auto)", line)
        elif "does not divide" in failure.text:
            yield Hit("The head size of a layer is no multiple of the type's block.", "-ctk/-ctv: f16", line)
        elif "does not support different" in failure.text:
            yield Hit(
                "This model keeps V inside K: both types must be equal.", "-ctv: the same type as -ctk", line
            )
        elif failure.phase == "arguments":
            yield Hit(failure.text, "the option named in the line", line)
        else:
            yield Hit(failure.text, "", line)


def _crash(view: View) -> Iterator[Hit]:
    for failure in view.facts.failures:
        if failure.kind == "crash":
            yield Hit(
                f"The engine ended in the phase {failure.phase}.", "", (failure.line,) if failure.line else ()
            )


ENTRIES = (
    Entry(
        "out-of-memory",
        "error",
        "An allocation was refused",
        "`allocating N MiB on device D: ... out of memory`, told by the lines around it",
        "The phase says what to change: weights, KV, recurrent state, compute buffer, projector or work at run time.",
        "the variable that belongs to the phase",
        "llama.cpp ggml-cuda.cu, ggml-alloc.c, llama-context.cpp (b11434)",
        _oom,
    ),
    Entry(
        "engine-refused",
        "error",
        "The engine refused the configuration",
        "an ERROR line of the argument parser or of the context's creation",
        "Nothing was measured: the engine did not start.",
        "the setting that the line names",
        "llama.cpp common/arg.cpp, src/llama-context.cpp (b11434)",
        _refused,
    ),
    Entry(
        "engine-crashed",
        "error",
        "The engine ended abnormally",
        "an assertion, a signal or a CUDA error that is not out of memory",
        "What ran before the crash is no evidence that the configuration works.",
        "",
        "llama.cpp ggml.c (b11434)",
        _crash,
    ),
)
