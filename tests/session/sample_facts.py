"""What the engine of the sample session printed and used: figures that follow from the model's geometry.

The model has 32 layers, 8 KV heads and head size 128: 131,072 bytes of f16 KV a token, 17/32 of that at q8_0.
"""

from __future__ import annotations

from dataclasses import replace

from kvtui.core.findings import Evidence, Finding
from kvtui.core.units import MIB
from kvtui.gpu.samples import DeviceInfo, MemoryRecord, Phase, PhasePeak, Sample
from kvtui.logs.facts import (
    BufferFacts,
    CacheFacts,
    ContextFacts,
    DeviceFacts,
    EngineFacts,
    FailureFacts,
    SlotFacts,
)

WEIGHTS_MIB = 10946.31
RUNTIME_MIB = 412.0
OTHERS_MIB = 611.0
SHARE = {"f16": 1.0, "q8_0": 17 / 32, "q4_0": 9 / 32}

DEVICE = DeviceInfo(
    kind="nvml",
    index=0,
    name="NVIDIA GeForce RTX 4060 Ti",
    total_bytes=16380 * MIB,
    driver="580.95.05",
    cuda="13.0",
    compute_capability="8.9",
    display_attached=True,
)


def kv_mib(n_ctx: int, type_k: str, type_v: str) -> tuple[float, float]:
    """K and V MiB of the whole context."""
    return n_ctx / 16 * SHARE[type_k], n_ctx / 16 * SHARE[type_v]


def compute_mib(n_ubatch: int) -> float:
    """The compute buffer, which grows with the micro-batch."""
    return 564.02 * n_ubatch / 512


def facts(n_ctx: int, type_k: str, type_v: str, n_ubatch: int, flash_attn: str) -> EngineFacts:
    """What the start-up log of one run proves."""
    k, v = kv_mib(n_ctx, type_k, type_v)
    texts = {
        6: "common_params_print_info: build 11434 (d1f1a3c) with GNU 13.3.0 for Linux x86_64",
        8: "common_params_print_info:   - CUDA0   : NVIDIA GeForce RTX 4060 Ti (16380 MiB, 15769 MiB free)",
        61: "load_tensors: offloaded 33/33 layers to GPU",
        62: f"load_tensors:        CUDA0 model buffer size = {WEIGHTS_MIB:8.2f} MiB",
        63: "load_tensors:   CPU_Mapped model buffer size =   512.00 MiB",
        70: "llama_context: n_seq_max     = 1",
        71: f"llama_context: n_ctx         = {n_ctx}",
        72: f"llama_context: n_ctx_seq     = {n_ctx}",
        73: "llama_context: n_batch       = 2048",
        74: f"llama_context: n_ubatch      = {n_ubatch}",
        76: f"llama_context: flash_attn    = {flash_attn}",
        77: "llama_context: kv_unified    = false",
        82: f"llama_kv_cache:      CUDA0 KV buffer size = {k + v:8.2f} MiB",
        83: f"llama_kv_cache: size = {k + v:7.2f} MiB ({n_ctx:6d} cells,  32 layers,  1/1 seqs), "
        f"K ({type_k}): {k:7.2f} MiB, V ({type_v}): {v:7.2f} MiB",
        88: "resolve_fused_ops: Flash Attention enabled",
        89: f"sched_reserve:      CUDA0 compute buffer size = {compute_mib(n_ubatch):8.2f} MiB",
        90: "sched_reserve:  CUDA_Host compute buffer size =    40.01 MiB",
        96: f"srv    load_model: initializing, n_slots = 1, n_ctx_slot = {n_ctx}, kv_unified = 'false'",
    }
    cache = CacheFacts("full", n_ctx, 32, 1, type_k, type_v, k, v, k + v, line=83)
    context = ContextFacts(
        n_ctx=n_ctx,
        n_ctx_seq=n_ctx,
        n_seq_max=1,
        n_batch=2048,
        n_ubatch=n_ubatch,
        kv_unified=False,
        flash_attn="enabled",
        flash_attn_requested=flash_attn,
        n_ctx_train=131072,
        graph_splits=2,
        caches=(cache,),
        kv_buffers=(BufferFacts("CUDA0", k + v, 82),),
        compute_buffers=(
            BufferFacts("CUDA0", compute_mib(n_ubatch), 89),
            BufferFacts("CUDA_Host", 40.01, 90),
        ),
        lines={
            "n_seq_max": 70,
            "n_ctx": 71,
            "n_ctx_seq": 72,
            "n_batch": 73,
            "n_ubatch": 74,
            "kv_unified": 77,
            "flash_attn_requested": 76,
            "flash_attn": 88,
        },
    )
    return EngineFacts(
        engine="llama.cpp",
        build="11434",
        commit="d1f1a3c",
        compiler="GNU 13.3.0",
        outcome="ready",
        requested={"ctx": n_ctx, "cache_type_k": type_k, "cache_type_v": type_v},
        devices=(DeviceFacts("CUDA0", "NVIDIA GeForce RTX 4060 Ti", 16380, 15769, 8),),
        contexts=(context,),
        slots=SlotFacts(1, n_ctx, False, 96),
        model_buffers=(BufferFacts("CUDA0", WEIGHTS_MIB, 62), BufferFacts("CPU_Mapped", 512.0, 63)),
        offloaded=(33, 33),
        n_lines=120,
        lines={"build": 6, "offloaded": 61, "outcome": 118},
        texts=texts,
    )


OOM_TEXT = "CUDA error: out of memory"


def out_of_memory(ready: EngineFacts) -> EngineFacts:
    """`ready`, which then ran out of memory in prefill."""
    failure = FailureFacts("prefill", "oom", OOM_TEXT, line=131, device="CUDA0", wanted_mib=512.0)
    return replace(
        ready,
        outcome="failed",
        failures=(failure,),
        n_lines=134,
        texts={**ready.texts, 131: OOM_TEXT},
    )


OOM_FINDING = Finding(
    "prefill-oom",
    "error",
    "out of memory in prefill",
    "The context was allocated, and the graph of one micro-batch no longer fitted beside it.",
    "micro-batch",
    (Evidence(131, OOM_TEXT), Evidence(None, "15,966 of 16,380 MiB in use 0.2 s before the end")),
)
MARGIN_FINDING = Finding(
    "thin-margin",
    "warning",
    "less than 1 GiB is free at the peak",
    "Anything else that opens on this card can end the server.",
    "context",
    (Evidence(None, "peak 15,600 MiB of 16,380 MiB in prefill"),),
)

_PEAKS: tuple[tuple[Phase, float, float], ...] = (
    # phase, share of KV and compute in use, seconds
    ("load", 1.0, 9.4),
    ("warm-up", 1.0, 0.8),
    ("prefill", 1.3, 61.0),
    ("decode", 1.05, 24.0),
)


def memory(n_ctx: int, type_k: str, type_v: str, n_ubatch: int, *, until: Phase = "decode") -> MemoryRecord:
    """The readings of one run, up to and including phase `until`."""
    k, v = kv_mib(n_ctx, type_k, type_v)
    series = [Sample(0.0, "before", None, round(OTHERS_MIB * MIB), None, None)]
    peaks = [PhasePeak("before", None, round(OTHERS_MIB * MIB), None, 0.0, 20, 2.0)]
    clock = 2.0
    for phase, factor, seconds in _PEAKS:
        engine = round((WEIGHTS_MIB + RUNTIME_MIB + k + v + compute_mib(n_ubatch) * factor) * MIB)
        used = engine + round(OTHERS_MIB * MIB)
        series.append(Sample(clock, phase, engine // 2, used - engine // 2, 900 * MIB, "process", 12))
        clock += seconds
        series.append(Sample(clock, phase, engine, used, 900 * MIB, "process", 97))
        peaks.append(PhasePeak(phase, engine, used, 900 * MIB, clock, round(seconds * 10), seconds))
        if phase == until:
            break
    return MemoryRecord(DEVICE, round(OTHERS_MIB * MIB), tuple(peaks), tuple(series), 0.1)
