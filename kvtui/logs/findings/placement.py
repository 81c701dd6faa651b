"""What landed in host memory though offload was asked for."""

from __future__ import annotations

from collections.abc import Iterator

from kvtui.logs.facts import BufferFacts
from kvtui.logs.findings.entry import Entry, Hit, View


def on_host(buffer: BufferFacts) -> bool:
    """True for memory of the host: plain, mapped, repacked or pinned."""
    return (
        buffer.device.startswith("CPU")
        or buffer.device.endswith("_Host")
        or buffer.device in ("Host", "BLAS")
    )


def _has_gpu(view: View) -> bool:
    buffers = list(view.facts.model_buffers)
    for context in view.contexts if view.facts.contexts else ():
        buffers += [*context.kv_buffers, *context.compute_buffers]
    return any(not on_host(b) for b in buffers)


def _layers(view: View) -> Iterator[Hit]:
    offloaded = view.facts.offloaded
    if offloaded is None or offloaded[0] >= offloaded[1]:
        return
    on, of = offloaded
    yield Hit(
        f"{on} of {of} layers are on the GPU; the other {of - on} run on the CPU, with their KV.",
        "-c: a shorter context lets the layers return; then a smaller quantization",
        (view.facts.lines["offloaded"],),
    )


def _kv(view: View) -> Iterator[Hit]:
    if not _has_gpu(view):
        return
    for context in view.contexts if view.facts.contexts else ():
        host = [b for b in (*context.kv_buffers, *context.rs_buffers) if on_host(b) and b.mib > 0]
        if host:
            total = sum(b.mib for b in host)
            yield Hit(
                f"{total:,.2f} MiB of the {context.role} context's KV are in host memory ({host[0].device}).",
                "-ngl (all layers) or without -nkvo; else -c shorter",
                tuple(b.line for b in host if b.line is not None)[:4],
            )


def _experts(view: View) -> Iterator[Hit]:
    offloaded = view.facts.offloaded
    if offloaded is None or offloaded[0] < offloaded[1]:
        return
    host = [b for b in view.facts.model_buffers if on_host(b)]
    gpu = [b for b in view.facts.model_buffers if not on_host(b)]
    if gpu and sum(b.mib for b in host) > sum(b.mib for b in gpu):
        total = sum(b.mib for b in host)
        yield Hit(
            f"All {offloaded[1]} layers count as offloaded, yet {total:,.0f} MiB of the weights stay in host memory:"
            " tensors (most often the experts) were placed there.",
            "-ncmoe (or -ot): fewer layers' experts on the CPU",
            tuple(b.line for b in host if b.line is not None)[:4],
        )


ENTRIES = (
    Entry(
        "layers-on-cpu",
        "warning",
        "Some layers are on the CPU",
        "`offloaded X/Y layers to GPU` with X below Y",
        "Decode speed falls to what the host's memory carries; fit does this silently when -c is given.",
        "-c, then the model's quantization",
        "llama.cpp common/fit.cpp, #22442; unsloth#10058",
        _layers,
    ),
    Entry(
        "kv-on-cpu",
        "warning",
        "Part of the KV cache is in host memory",
        "`CPU KV buffer size` or `*_Host KV buffer size` beside a GPU buffer",
        "Every step then crosses the bus, and flash attention may be computed on the CPU.",
        "-ngl, or no -nkvo",
        "llama.cpp src/llama-kv-cache.cpp (b11434), #14043; koboldcpp#1780",
        _kv,
    ),
    Entry(
        "weights-on-cpu",
        "warning",
        "All layers are offloaded, most of the weights are not",
        "`offloaded Y/Y` while the host's model buffers are larger than the GPU's",
        "Overridden tensors do not count in the offload figure.",
        "-ncmoe or -ot",
        "llama.cpp src/llama-model.cpp (b11434)",
        _experts,
    ),
)
