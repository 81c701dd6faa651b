"""vLLM, V0 and V1: what the start-up lines prove, and the refusals with their figures."""

from __future__ import annotations

from typing import Any

import pytest

from tests.logs.conftest import read_facts


def record(text: str, who: str = "EngineCore pid=109", level: str = "INFO") -> str:
    return f"({who}) {level} 04-28 11:14:04 [core.py:283] {text}\n"


def actual(text: str) -> dict[str, Any]:
    facts = read_facts(text)
    assert facts.engine == "vllm"
    assert facts.actual is not None
    return facts.actual


BANNER = record("vLLM API server version 0.19.1", "APIServer pid=1")
CONFIG = record(
    "Initializing a V1 LLM engine (v0.19.1) with config: model='m', speculative_config=None, dtype=torch.bfloat16,"
    " max_seq_len=32768, tensor_parallel_size=2, quantization=None, kv_cache_dtype={}, x=Config(block_size=7)"
)
POOL = (
    record("Model loading took 7.12 GiB memory and 3.1 seconds", "Worker_TP0 pid=2")
    + record("Model loading took 7.13 GiB memory and 3.2 seconds", "Worker_TP1 pid=3")
    + record("Using FLASH_ATTN attention backend out of potential backends: ['FLASH_ATTN', 'FLASHINFER'].")
    + record("Using backend AttentionBackendEnum.TRITON_ATTN for vit attention")
    + record("Available KV cache memory: 13.06 GiB")
    + record("GPU KV cache size: 135,648 tokens")
    + record("Maximum concurrency for 32,768 tokens per request: 4.14x")
    + record("Graph capturing finished in 6 secs, took 0.46 GiB")
)
DONE = record("init engine (profile, create kv cache, warmup model) took 14.64 seconds")
UP = "(APIServer pid=1) INFO:     Application startup complete.\n"


def test_a_start_is_read_whole() -> None:
    args = record(
        "non-default args: {'model': 'm', 'max_model_len': 32768, 'gpu_memory_utilization': 0.85,"
        " 'speculative_config': {'max_model_len': 99}, 'max_num_seqs': 32}"
    )
    facts = read_facts(BANNER + args + CONFIG.format("auto") + POOL + DONE + UP)
    assert (facts.build, facts.outcome) == ("0.19.1", "ready")
    assert facts.requested == {
        "max_model_len": 32768,
        "gpu_memory_utilization": 0.85,
        "max_num_seqs": 32,
        "tensor_parallel_size": 2,
        "kv_cache_dtype": "auto",
    }
    assert facts.actual == {
        "weights_gib_per_gpu": 7.12,
        "attn_backend": "FLASH_ATTN",
        "kv_gib": 13.06,
        "kv_tokens": 135648,
        "max_concurrency": 4.14,
        "n_ctx": 32768,
        "graph_gib": 0.46,
    }


def test_one_line_for_size_and_concurrency_is_read_as_two() -> None:
    found = actual(
        record("GPU KV cache size: 767,552 tokens, Maximum concurrency for 32,768 tokens per request: 84.29x")
    )
    assert (found["kv_tokens"], found["max_concurrency"], found["n_ctx"]) == (767552, 84.29, 32768)


@pytest.mark.parametrize(
    ("line", "dtype"),
    [
        ("Using fp8_e5m2 data type to store kv cache. It reduces the GPU memory footprint", "fp8_e5m2"),
        ("Using DeepSeek's fp8_ds_mla KV cache format.", "fp8_ds_mla"),
        (
            "FlashInfer resolved query dtypes: prefill=torch.x, kv_cache_dtype=torch.float8_e4m3fn, a=1",
            "fp8_e4m3",
        ),
        ("nothing of the kind", None),
    ],
)
def test_the_type_in_use_is_named_by_its_own_line(line: str, dtype: str | None) -> None:
    assert actual(CONFIG.format("auto") + record(line)).get("kv_type") == dtype


def test_a_type_that_was_asked_by_name_is_the_type() -> None:
    assert actual(CONFIG.format("fp8"))["kv_type"] == "fp8"


def test_blocks_of_v0_are_tokens_where_the_concurrency_agrees() -> None:
    text = (
        "INFO 10-18 09:59:51 engine.py:23] Initializing an LLM engine (v0.6.3.post1) with config: max_seq_len=32768\n"
        "INFO 10-18 09:59:56 gpu_executor.py:122] # GPU blocks: 2987, # CPU blocks: 4096\n"
    )
    concurrency = (
        "INFO 10-18 09:59:56 gpu_executor.py:126] Maximum concurrency for 32768 tokens per request: {}x\n"
    )
    found = actual(text + concurrency.format("1.46"))
    assert (found["kv_blocks"], found["block_size"], found["kv_tokens"]) == (2987, 16, 47792)
    assert "kv_tokens" not in actual(text + concurrency.format("2.92"))
    assert "kv_tokens" not in actual(text)


REFUSALS = (
    (
        "ValueError: The model's max seq len (131072) is larger than the maximum number of tokens that can be stored"
        " in KV cache (41200). Try increasing"
    ),
    (
        "ValueError: To serve at least one request with the model's max seq len (262144), (18.35 GiB KV cache is"
        " needed, which is larger than the available KV cache memory (8.72 GiB). Try"
    ),
    "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`",
    "ValueError: Free memory on device (16.01/93.0 GiB) on startup is less than desired GPU memory utilization (0.8",
    "RuntimeError: CUDA out of memory occurred when warming up sampler with 1024 dummy requests.",
    "ValueError: No valid attention backend found for cuda with AttentionSelectorConfig(kv_cache_dtype=fp8)",
)


@pytest.mark.parametrize("error", REFUSALS)
def test_a_refusal_is_counted_once_and_fails_the_start(error: str) -> None:
    tagged = record(error, level="ERROR")
    facts = read_facts(CONFIG.format("auto") + tagged + f"(EngineCore pid=109) {error}\n")
    assert facts.outcome == "failed"
    assert len(facts.failures) == 1


def test_a_crash_after_the_start_was_complete_leaves_it_ready() -> None:
    oom = record("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 594.00 MiB.", level="ERROR")
    assert read_facts(CONFIG.format("auto") + POOL + DONE + UP + oom).outcome == "ready"
    assert read_facts(CONFIG.format("auto") + POOL + oom).outcome == "failed"


def test_the_good_line_that_begins_like_a_refusal_is_none() -> None:
    line = (
        "Free memory on device (14.66/15.99 GiB) on startup. Desired GPU memory utilization is (0.85, 13.59 GiB)."
        " Actual usage is 4.25 GiB for weight, 0.34 GiB for peak activation, 0.02 GiB for non-torch memory"
    )
    facts = read_facts(CONFIG.format("auto") + record(line))
    assert facts.failures == ()
    assert facts.actual is not None
    assert (facts.actual["peak_activation_gib"], facts.actual["non_torch_gib"]) == (0.34, 0.02)


def test_a_draft_models_length_is_not_the_targets() -> None:
    text = record("Using max model len 65536") + record("Using max model len 1048576")
    assert actual(text)["n_ctx"] == 65536


def test_a_pool_may_be_negative() -> None:
    assert actual(CONFIG.format("auto") + record("Available KV cache memory: -14.28 GiB"))["kv_gib"] == -14.28


def test_two_starts_in_one_log_are_kept_apart() -> None:
    second = POOL.replace("13.06", "10.00").replace("135,648", "99,999")
    found = actual(
        BANNER + CONFIG.format("fp8") + POOL + DONE + UP + BANNER + CONFIG.format("auto") + second + DONE
    )
    assert (found["kv_gib"], found["kv_tokens"]) == (10.0, 99999)
    assert "kv_type" not in found


def test_another_services_start_is_not_vllms() -> None:
    assert read_facts("app-1     | INFO:     Application startup complete.\n").engine == "unknown"
