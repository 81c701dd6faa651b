"""Ollama by era: what was asked by environment, what a runner was started with, what its lines prove."""

from __future__ import annotations

from typing import Any

import pytest

from kvtui.logs import slog
from tests.logs.conftest import read_facts

T = "time=2026-01-23T15:30:37.695-05:00 level={} source={}.go:{} msg="


def record(text: str, level: str = "INFO", source: str = "server") -> str:
    return T.format(level, source, 429) + text + "\n"


def env(**values: object) -> str:
    pairs = " ".join(f"OLLAMA_{k}:{v}" for k, v in sorted(values.items()))
    return record(
        f'"server config" env="map[CUDA_VISIBLE_DEVICES: {pairs} OLLAMA_ORIGINS:[http://localhost a] no_proxy:]"'
    )


def actual(text: str) -> dict[str, Any]:
    facts = read_facts(text)
    assert facts.engine == "ollama"
    assert facts.actual is not None
    return facts.actual


CONTEXT = """llama_context: n_seq_max     = {np}
llama_context: n_ctx         = {n}
llama_context: flash_attn    = {fa}
llama_kv_cache:      CUDA0 KV buffer size =   448.00 MiB
llama_kv_cache: size =  448.00 MiB (  4096 cells,  28 layers,  1/1 seqs), K ({k}):  224.00 MiB, V ({k}):  224.00 MiB
llama_context:      CUDA0 compute buffer size =   256.50 MiB
"""
START = record('"starting runner" cmd="/usr/bin/ollama runner --model /m/sha256-1 --port 42597"')
PROBE = record('"starting runner" cmd="/usr/bin/ollama runner --ollama-engine --port 42597"')
READY = record('"llama runner started in 6.03 seconds"')
COMMIT = record(
    'load request="{{Operation:{op} LoraPath:[] Parallel:1 BatchSize:512 FlashAttention:{fa} KvSize:{n}'
    " KvCacheType:{kv} NumThreads:32 GPULayers:{layers} MultiUserCache:false ProjectorPath: MainGPU:0"
    ' UseMmap:false}}"'
)
TWO_GPUS = "20[ID:GPU-1 Layers:12(0..11) ID:GPU-2 Layers:8(12..19)]"


def test_the_environment_is_what_was_asked() -> None:
    facts = read_facts(
        env(KV_CACHE_TYPE="q8_0", CONTEXT_LENGTH=32768, NUM_PARALLEL=2, FLASH_ATTENTION="true")
    )
    assert facts.requested == {
        "kv_type": "q8_0",
        "num_ctx": 32768,
        "num_parallel": 2,
        "flash_attention": True,
    }
    assert read_facts(env(KV_CACHE_TYPE="", FLASH_ATTENTION="false")).requested == {"flash_attention": False}


def test_a_daemon_that_starts_again_is_asked_anew() -> None:
    twice = env(KV_CACHE_TYPE="q8_0", NUM_PARALLEL=2) + env(KV_CACHE_TYPE="", NUM_PARALLEL=1)
    facts = read_facts(twice)
    assert facts.requested == {"num_parallel": 1}
    assert set(facts.lines) >= {"requested.num_parallel"}
    assert "requested.kv_type" not in facts.lines


def test_a_request_wins_over_the_environment_unless_it_is_the_automatic_default() -> None:
    clamp = record('"requested context size too large for model" num_ctx={} n_ctx_train=2048', "WARN")
    auto = record('"vram-based default context" total_vram="40.0 GiB" default_num_ctx=32768', source="routes")
    asked = env(CONTEXT_LENGTH=0) + auto
    assert read_facts(asked + clamp.format(32768)).requested["num_ctx"] == 0
    assert read_facts(asked + clamp.format(8192)).requested["num_ctx"] == 8192


def test_the_cxx_runner_is_read_with_its_command_line() -> None:
    start = record(
        '"starting llama server" cmd="/tmp/ollama_llama_server --model /m --ctx-size 8192 --batch-size 512'
        ' --n-gpu-layers 33 --parallel 4 --port 37021"'
    )
    found = actual(
        start + CONTEXT.format(np=4, n=8192, fa=0, k="f16").replace("llama_context: n_seq_max     = 4\n", "")
    )
    assert (found["n_ctx"], found["num_parallel"], found["flash_attn"], found["kv_type"]) == (
        8192,
        4,
        False,
        "f16",
    )
    assert found["kv_mib_by_device"] == {"CUDA0": 448.0}
    assert found["compute_mib_by_device"] == {"CUDA0": 256.5}


def test_the_newer_engine_proves_itself_by_its_last_commit() -> None:
    found = actual(
        START
        + COMMIT.format(op="fit", fa="Enabled", n=4096, kv="q8_0", layers="48[ID:GPU-1 Layers:48(0..47)]")
        + COMMIT.format(op="commit", fa="Enabled", n=32768, kv="q8_0", layers=TWO_GPUS)
        + record('"kv cache" device=CUDA0 size="955.2 MiB"', source="device")
        + record('"kv cache" device=CPU size="1.3 GiB"', source="device")
        + READY
    )
    assert (found["n_ctx"], found["flash_attn"], found["kv_type"], found["layers_gpu"]) == (
        32768,
        True,
        "q8_0",
        20,
    )
    assert found["kv_mib_by_device"] == {"CUDA0": 955.2}
    assert found["kv_gib_by_device"] == {"CPU": 1.3}


def test_what_the_older_engine_says_before_its_load_is_an_estimate() -> None:
    found = actual(
        START
        + record('"compute graph" device=CUDA0 size="819.0 MiB"', source="device")
        + COMMIT.format(op="commit", fa="Auto", n=4096, kv="", layers="29[ID:GPU-1 Layers:29(0..28)]")
        + CONTEXT.format(np=1, n=4096, fa="auto", k="f16")
        + "llama_context: Flash Attention was auto, set to enabled\n"
    )
    assert found["compute_mib_by_device"] == {"CUDA0": 256.5}
    assert found["flash_attn"] is True


def test_auto_is_unproven_until_it_is_resolved() -> None:
    assert "flash_attn" not in actual(START + CONTEXT.format(np=1, n=4096, fa="auto", k="f16"))


def test_todays_llama_server_underneath() -> None:
    found = actual(
        record(
            '"starting llama-server" cmd="C:\\\\Users\\\\u\\\\llama-server.exe --model C:\\\\m --port 44067'
            ' -c 8192 -np 2 --flash-attn auto -b 1024"',
            source="llama_server",
        )
        + "common_params_fit_impl: getting device memory data for initial parameters:\n"
        + CONTEXT.format(np=2, n=512, fa="auto", k="f16")
        + "common_fit_params: successfully fit params to free device memory\n"
        + CONTEXT.format(np=2, n=8192, fa="auto", k="f16")
        + "resolve_fused_ops: Flash Attention enabled\n"
    )
    assert (found["n_ctx"], found["num_parallel"], found["flash_attn"]) == (8192, 2, True)


def test_loads_are_never_mixed_and_an_embedding_model_is_no_rival() -> None:
    chat = START + CONTEXT.format(np=1, n=8192, fa="enabled", k="q8_0") + READY
    embedding = (
        START + "llama_context: n_ctx         = 512\nllama_context: flash_attn    = disabled\n" + READY
    )
    for log in (chat + embedding, embedding + chat):
        found = actual(log)
        assert (found["n_ctx"], found["kv_type"], found["flash_attn"]) == (8192, "q8_0", True)


def test_looks_for_devices_and_at_vocabularies_are_no_loads() -> None:
    vocabulary = (
        "llama_model_loader: loaded meta data with 29 key-value pairs\nllama_model_load: vocab only\n"
    )
    found = actual(
        PROBE + START + CONTEXT.format(np=1, n=8192, fa="enabled", k="f16") + READY + PROBE + vocabulary
    )
    assert found["n_ctx"] == 8192
    assert len(read_facts(PROBE + PROBE + START).contexts) == 0


def test_a_refused_load_carries_its_figures() -> None:
    facts = read_facts(
        record('"model request too large for system" requested="996.3 GiB" available=802049822720', "WARN")
        + record(
            '"NewLlamaServer failed" model=/m error="model requires more system memory (996.3 GiB) than is'
            ' available (747.0 GiB)"'
        )
    )
    assert facts.outcome == "failed"
    assert facts.actual == {"required_gib": 996.3, "available_gib": 747.0}


def test_without_a_gpu_no_layer_is_on_one() -> None:
    estimate = record(
        "offload library=cpu layers.requested=-1 layers.model=49 layers.offload=0 layers.split=[]"
    )
    found = actual(estimate + START + CONTEXT.format(np=1, n=4096, fa=0, k="f16"))
    assert (found["layers_gpu"], found["layers_total"]) == (0, 49)


@pytest.mark.parametrize("width", [72, 76, 80])
def test_a_record_broken_by_a_mail_is_whole_again(width: int) -> None:
    import textwrap

    whole = COMMIT.format(op="commit", fa="Enabled", n=32768, kv="q4_0", layers=TWO_GPUS)
    if width == 80:
        broken = "\n".join(whole[i : i + width] for i in range(0, len(whole), width))
    else:
        broken = "\n".join(textwrap.wrap(whole, width, break_long_words=False, break_on_hyphens=False)) + "\n"
    found = actual(broken + READY)
    assert (found["n_ctx"], found["layers_gpu"]) == (32768, 20)


def test_quoted_values_keep_their_escapes() -> None:
    found = slog.fields(r'level=INFO msg="a \"b\"" cmd="C:\\x" "total vram"="15.0 GiB" model=C:\y bad="open')
    assert found == {
        "level": "INFO",
        "msg": 'a "b"',
        "cmd": "C:\\x",
        "total vram": "15.0 GiB",
        "model": "C:\\y",
        "bad": "",
    }
    assert (slog.mib("1.5 GiB"), slog.mib("0 B"), slog.mib("many")) == (1536.0, 0.0, None)
