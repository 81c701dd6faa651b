"""Each kind of finding: a log that triggers it, and that it names one thing to change and its evidence."""

from __future__ import annotations

from typing import Any

import pytest

from kvtui.logs.findings import CATALOGUE
from tests.logs.conftest import read_facts

OOM = "E ggml_backend_cuda_buffer: allocating 201.00 MiB on device 0: cudaMalloc failed: out of memory\n"
READY = "I srv  llama_server: model loaded\n"
T = "time=2026-01-23T15:30:37.695-05:00 level={} source=server.go:429 msg="
V = "(EngineCore pid=1) {} 04-28 11:14:04 [core.py:283] {}\n"


def header(np: int = 1, fa: str = "enabled", unified: str = "false", n_ctx: int = 8192) -> str:
    share = n_ctx if unified == "true" else n_ctx // np
    return (
        "I llama_context: constructing llama_context\n"
        f"I llama_context: n_seq_max             = {np}\n"
        f"I llama_context: n_ctx                 = {n_ctx}\n"
        f"I llama_context: n_ctx_seq             = {share}\n"
        "I llama_context: n_batch               = 2048\n"
        f"I llama_context: flash_attn            = {fa}\n"
        f"I llama_context: kv_unified            = {unified}\n"
    )


def cache(k: str = "f16", v: str = "f16", device: str = "CUDA0", layers: int = 6, kind: str = "") -> str:
    creating = f"I llama_kv_cache_iswa: creating     {kind} KV cache, size = 1024 cells\n" if kind else ""
    return (
        f"{creating}I llama_kv_cache:      {device} KV buffer size =    12.76 MiB\n"
        f"I llama_kv_cache: size =   12.76 MiB (  8192 cells, {layers:3} layers,  1/1 seqs), "
        f"K ({k}):    6.38 MiB, V ({v}):    6.38 MiB\n"
    )


def recurrent(np: int, drafts: int) -> str:
    return (
        f"I llama_memory_recurrent: size =  598.50 MiB ({np:6} cells,  64 layers, {np:2} seqs {drafts:2} rs_seq), "
        "R (f32):   22.50 MiB, S (f32):  576.00 MiB, P (f32):    0.00 MiB\n"
    )


def weights(on: int = 33, gpu: float = 5000, host: float = 100) -> str:
    return (
        f"I load_tensors: offloaded {on}/33 layers to GPU\n"
        f"I load_tensors:        CUDA0 model buffer size = {gpu:8.2f} MiB\n"
        f"I load_tensors:   CPU_Mapped model buffer size = {host:8.2f} MiB\n"
    )


def refused(what: str) -> str:
    return (
        header() + f"E llama_init_from_model: failed to initialize the context: failed to allocate {what}\n"
    )


def slog(text: str, level: str = "INFO") -> str:
    return T.format(level) + text + "\n"


def load(ctx: int, batch: int, np: int = 1) -> str:
    command = f"/llama-server --model /m --port 1 -c {ctx} -np {np} --flash-attn auto -b {batch} -ub {batch}"
    return slog(f'"starting llama-server" cmd="{command}"') + slog('"llama-server started in 3.6 seconds"')


def vllm(text: str, level: str = "INFO") -> str:
    return V.format(level, text)


SLOTS = "I srv    load_model: initializing, n_slots = {}, n_ctx_slot = {}, kv_unified = '{}'\n"

CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "oom-weights": (
        weights() + OOM + "E llama_model_load: error loading model: unable to allocate CUDA0 buffer\n",
        {},
    ),
    "oom-kv": (refused("buffer for kv cache"), {}),
    "oom-recurrent": (refused("buffer for rs cache"), {}),
    "oom-compute": (refused("compute pp buffers"), {}),
    "oom-mmproj": ("clip_model_loader: has vision encoder\n" + OOM, {}),
    "oom-prefill": (header() + cache() + READY + OOM, {}),
    "oom": ("I srv  llama_server: initializing ...\n" + OOM, {}),
    "v-quant-needs-fa": (
        "E llama_init_from_model: quantized V cache requires flash_attn to be enabled\n",
        {},
    ),
    "kv-block-size": ("E llama: K cache type q8_0 with block size 32 does not divide n_embd_head_k=80\n", {}),
    "kv-types-must-match": (
        "E llama: model does not support different K (q8_0) and V (f16) cache types\n",
        {},
    ),
    "argument-refused": ('error while handling argument "-ctk": Unsupported cache type: q3_0\n', {}),
    "engine-crashed": (header() + "/src/ggml-backend.cpp:179: GGML_ASSERT(buffer) failed\n", {}),
    "fa-disabled": (
        header(fa="auto") + "W resolve_fused_ops: Flash Attention not supported, set to disabled\n",
        {},
    ),
    "fa-off": (header(fa="disabled"), {"flash_attn": "on"}),
    "fa-forced": (
        header()
        + "I llama_init_from_model: enabling flash_attn since it is required for quantized V cache\n",
        {},
    ),
    "fa-no-vector-kernel": (
        "W ggml_cuda: no FlashAttention vector kernel compiled for K/V types q8_0-q4_0, converting K and V to f16\n",
        {},
    ),
    "fa-on-cpu": (
        weights()
        + header()
        + cache(layers=32)
        + "I sched_reserve: graph: nodes = 946, splits = 66, input objects = 4\n",
        {},
    ),
    "kv-no-cuda-kernel": (header() + cache("q8_0", "q5_1"), {}),
    "kv-type-differs": (header() + cache(), {"cache_type_k": "q8_0"}),
    "kv-unproven": (SLOTS.format(1, 8192, "false") + READY, {}),
    "draft-kv-f16": (
        header()
        + cache("q8_0", "q8_0")
        + "I srv    load_model: creating MTP draft context\n"
        + header()
        + cache(),
        {},
    ),
    "layers-on-cpu": (weights(on=20), {}),
    "kv-on-cpu": (weights() + header() + cache(device="CPU"), {}),
    "weights-on-cpu": (weights(gpu=500, host=9000), {}),
    "ctx-rounded": ("W llama_context: n_ctx is not divisible by n_seq_max - rounding down to 1536\n", {}),
    "ctx-divided": (header(np=4), {}),
    "slots-share-pool": (header(np=4, unified="true"), {}),
    "ctx-above-trained": (
        "W llama_context: n_ctx_seq (65536) > n_ctx_train (32768) -- possible overflow\n",
        {},
    ),
    "swa-full": ("W llama_kv_cache_iswa: using full-size SWA cache (ref: ..)\n", {}),
    "fit-failed": ("W common_fit_params: failed to fit params to free device memory: no\n", {}),
    "fit-reduced-ctx": (
        "I common_params_fit_impl: context size reduced from 32768 to 4096 -> need 112 MiB less\n",
        {},
    ),
    "ctx-smaller": (SLOTS.format(1, 4096, "false"), {"ctx": 8192}),
    "swa-by-slots": (header(np=4) + cache(kind="SWA"), {}),
    "recurrent-by-slots": (header(np=4) + recurrent(4, 3), {}),
    "setting-differs": (header(), {"n_batch": 512}),
    "setting-unproven": (SLOTS.format(1, 8192, "false") + READY, {"flash_attn": "on"}),
    "request-too-long": (
        "E srv send_error: error: request (8050 tokens) exceeds the available context size (4096 tokens)\n",
        {},
    ),
    "generation-truncated": (
        "I slot release: id  0 | task 0 | stop processing: n_tokens = 511, truncated = 1\n",
        {},
    ),
    "pool-exhausted": (
        "W srv  update: failed to find free space in the KV cache, retrying with smaller batch size\n",
        {},
    ),
    "full-reprocessing": ("I slot update: forcing full prompt re-processing due to lack of cache data\n", {}),
    "compute-grew": (
        "W llama_context:      CUDA0 compute buffer size of 700.0000 MiB, does not match expectation of 500.0000 MiB\n",
        {},
    ),
    "pipeline-dropped": (
        OOM + "W sched_reserve: allocation failed, retrying without pipeline parallelism\n",
        {},
    ),
    "host-prompt-cache": ("I srv    load_model: prompt cache is enabled, size limit: 8192 MiB\n", {}),
    "host-checkpoints": (
        header()
        + cache(kind="SWA")
        + "I srv load_model: context checkpoints enabled, max = 32, min spacing = 8192\n",
        {},
    ),
    "ollama-kv-type-ignored": (
        slog('"quantized kv cache requested but flash attention disabled" type=q8_0', "WARN"),
        {},
    ),
    "ollama-fa-refused": (slog('"flash attention enabled but not supported by gpu"', "WARN"), {}),
    "ollama-default-context": (
        slog('"vram-based default context" total_vram="15.0 GiB" default_num_ctx=4096'),
        {},
    ),
    "ollama-ctx-clamped": (
        slog('"requested context size too large for model" num_ctx=8192 n_ctx_train=2048', "WARN"),
        {},
    ),
    "ollama-parallel": (load(8192, 512, np=2), {}),
    "ollama-no-parallel": (
        slog(
            '"model architecture does not currently support parallel requests" architecture=qwen3vl', "WARN"
        ),
        {},
    ),
    "ollama-prompt-truncated": (
        slog('"truncating input prompt" limit=4096 prompt=9375 keep=5 new=4096', "WARN"),
        {},
    ),
    "ollama-reload": (load(4096, 512) + load(8192, 512), {}),
    "ollama-batch-follows-ctx": (load(4096, 512) + load(8192, 1024), {}),
    "ollama-evicted": (
        slog(
            '"model requires more gpu memory than is currently available, evicting a model to make space" x=1'
        ),
        {},
    ),
    "ollama-ctx-retried": (
        slog(
            '"llama-server load failed; reducing automatic context and retrying once" old_num_ctx=9 new_num_ctx=4',
            "WARN",
        ),
        {},
    ),
    "ollama-gpu-dropped": (slog('"dropping integrated GPU; to enable, set X=1" description="Intel"'), {}),
    "vllm-pool-too-small": (vllm("ValueError: No available memory for the cache blocks. Try", "ERROR"), {}),
    "vllm-memory-taken": (
        vllm(
            "ValueError: Free memory on device (16.01/93.0 GiB) on startup is less than desired GPU memory",
            "ERROR",
        ),
        {},
    ),
    "vllm-kv-dtype-unsupported": (vllm("ValueError: No valid attention backend found for cuda", "ERROR"), {}),
    "vllm-kv-uncalibrated": (vllm("Using KV cache scaling factor 1.0 for fp8_e4m3.", "WARNING"), {}),
    "vllm-fp8-slow-backend": (vllm("Cannot use FlashAttention-2 backend for FP8 KV cache."), {}),
    "vllm-quant-algo-unknown": (
        vllm("WARNING: Unknown kv_cache_quant_algo 'X' in model config.", "WARNING"),
        {},
    ),
    "vllm-hybrid-off": (vllm("Hybrid KV cache manager is disabled for this hybrid model, ..", "WARNING"), {}),
    "vllm-backend-forced": (vllm("Gemma4 has heterogeneous heads, forcing TRITON_ATTN backend."), {}),
    "vllm-env-ignored": (
        vllm("Unknown vLLM environment variable detected: VLLM_ATTENTION_BACKEND", "WARNING"),
        {},
    ),
    "vllm-ctx-auto-fit": (
        vllm(
            "Auto-fit max_model_len: reduced from 262144 to 121840 to fit in available KV cache memory (8 GiB)"
        ),
        {},
    ),
    "vllm-pool-narrow": (vllm("Maximum concurrency for 32,768 tokens per request: 1.00x"), {}),
    "vllm-graphs-large": (
        vllm("Available KV cache memory: 0.34 GiB")
        + vllm("Graph capturing finished in 2 secs, took 4.08 GiB"),
        {},
    ),
}


def test_every_kind_has_a_case() -> None:
    assert set(CASES) == {e.id for e in CATALOGUE}


@pytest.mark.parametrize("entry", CATALOGUE, ids=lambda e: e.id)
def test_its_log_triggers_it_with_evidence(entry: Any) -> None:
    text, asked = CASES[entry.id]
    lines = text.splitlines()
    found = [f for f in read_facts(text, **asked).findings if f.id == entry.id]
    assert found
    for finding in found:
        assert finding.why
        for evidence in finding.evidence:
            assert evidence.line is not None
            assert evidence.text in lines[evidence.line - 1]


def test_a_start_without_trouble_has_no_warning() -> None:
    text = weights() + header() + cache("q8_0", "q8_0") + SLOTS.format(1, 8192, "false") + READY
    assert [f for f in read_facts(text, ctx=8192, cache_type_k="q8_0").findings if f.severity != "info"] == []


def test_errors_come_first() -> None:
    severities = [f.severity for f in read_facts(header(np=4) + OOM).findings]
    assert severities == sorted(severities, key=["error", "warning", "info"].index)


@pytest.mark.parametrize(
    ("device", "info"),
    [
        ("CUDA0", "I system_info: CUDA : FA_ALL_QUANTS = 1 | CPU : X\n"),
        ("CUDA0", "I system_info: FA_QUANTS = q8_0-q5_1\n"),
        ("CPU", ""),
    ],
)
def test_a_pair_that_the_build_has_a_kernel_for_is_no_finding(device: str, info: str) -> None:
    text = info + header() + cache("q8_0", "q5_1", device=device)
    assert "kv-no-cuda-kernel" not in [f.id for f in read_facts(text).findings]
