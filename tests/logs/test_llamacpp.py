"""llama.cpp as it prints today: what a recorded start proves, line by line."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kvtui.logs.facts import BufferFacts
from tests.logs.conftest import read_facts

Recorded = Callable[[str], bytes]


def ids(text: str | bytes, **requested: object) -> list[str]:
    return [f.id for f in read_facts(text, **requested).findings]


def test_a_start_with_quantized_kv_is_read_whole(recorded: Recorded) -> None:
    facts = read_facts(recorded("llamacpp-q8"))
    assert (facts.engine, facts.outcome) == ("llama.cpp", "ready")
    assert len(facts.contexts) == 1
    main = facts.main
    assert main is not None
    assert (main.n_ctx, main.n_ctx_seq, main.n_seq_max, main.n_batch, main.n_ubatch) == (
        4096,
        4096,
        1,
        2048,
        512,
    )
    assert (main.kv_unified, main.flash_attn, main.flash_attn_requested) == (False, "enabled", "enabled")
    assert (main.n_ctx_train, main.graph_splits) == (32768, 1)
    full, window = main.caches
    assert (full.kind, full.cells, full.layers, full.streams) == ("non-SWA", 4096, 3, 1)
    assert (full.type_k, full.type_v, full.k_mib, full.v_mib, full.size_mib) == (
        "q8_0",
        "q8_0",
        3.19,
        3.19,
        6.38,
    )
    assert (window.kind, window.cells, window.layers, window.size_mib) == ("SWA", 1024, 15, 7.97)
    assert [(b.device, b.mib) for b in main.kv_buffers] == [("CPU", 6.38), ("CPU", 7.97)]
    assert [b.device for b in facts.model_buffers] == ["CPU_Mapped", "CPU_REPACK"]
    assert facts.slots is not None
    assert (facts.slots.n_slots, facts.slots.n_ctx_slot, facts.slots.kv_unified) == (1, 4096, False)


def test_each_fact_names_the_line_that_proves_it(recorded: Recorded) -> None:
    log = recorded("llamacpp-q8")
    facts = read_facts(log)
    lines = log.decode().splitlines()
    assert facts.n_lines == len(lines)
    main = facts.main
    assert main is not None
    for name, expected in (
        ("n_ctx", "n_ctx                 = 4096"),
        ("flash_attn", "flash_attn            = enabled"),
    ):
        assert expected in lines[main.lines[name] - 1]
    for cache in main.caches:
        assert cache.line is not None
        assert f"{cache.cells} cells" in lines[cache.line - 1]
        assert facts.texts[cache.line] in lines[cache.line - 1]


def test_a_start_that_is_still_being_written_proves_what_it_has(recorded: Recorded) -> None:
    log = recorded("llamacpp-q8")
    facts = read_facts(log[: log.index(b"creating     SWA KV cache")])
    assert facts.outcome == "unknown"
    assert facts.main is not None
    assert [c.kind for c in facts.main.caches] == ["non-SWA"]
    assert facts.slots is None


def test_a_context_divided_by_slots_is_rounded_and_told(recorded: Recorded) -> None:
    log = recorded("llamacpp-split")
    facts = read_facts(log)
    assert facts.main is not None
    assert (facts.main.n_ctx, facts.main.n_ctx_seq, facts.main.caches[0].streams) == (1536, 512, 3)
    assert {"ctx-rounded", "ctx-divided"} <= set(ids(log))


def test_cells_above_the_trained_length_are_wasted(recorded: Recorded) -> None:
    log = recorded("llamacpp-above")
    found = {f.id: f for f in read_facts(log).findings}
    assert {"ctx-above-trained", "swa-full", "slots-share-pool"} <= set(found)
    assert "8,192 tokens are allocated and never used" in found["ctx-above-trained"].why


def test_a_refused_configuration_fails_with_the_line(recorded: Recorded) -> None:
    facts = read_facts(recorded("llamacpp-refused"))
    assert facts.outcome == "failed"
    assert facts.contexts == ()
    (failure,) = facts.failures
    assert (failure.phase, failure.kind) == ("context", "refused")
    assert "requires flash_attn" in failure.text
    assert facts.findings[0].id == "v-quant-needs-fa"


def test_the_default_verbosity_hides_the_cache_and_that_is_said(recorded: Recorded) -> None:
    facts = read_facts(recorded("llamacpp-quiet"))
    assert facts.outcome == "ready"
    assert facts.main is None
    assert [f.id for f in facts.findings] == ["kv-unproven"]
    assert "-lv 4" in facts.findings[0].next


HEADER = """0.00.165.479 I llama_context: constructing llama_context
0.00.165.484 I llama_context: n_seq_max             = 1
0.00.165.484 I llama_context: n_ctx                 = 8192
0.00.165.487 I llama_context: flash_attn            = {flash}
"""
CACHE = """0.00.165.728 I llama_kv_cache:      CUDA0 KV buffer size = {mib:8.2f} MiB
0.00.175.835 I llama_kv_cache: size =   12.75 MiB (  8192 cells,   6 layers,  1/1 seqs), \
K ({k}):    6.38 MiB, V ({v}):    6.38 MiB
"""


@pytest.mark.parametrize(
    ("line", "outcome"),
    [
        ("I resolve_fused_ops: Flash Attention enabled", "enabled"),
        ("W resolve_fused_ops: Flash Attention not supported, set to disabled", "disabled"),
        ("I resolve_fused_ops: fused Gated Delta Net (chunked) enabled", None),
        ("I warmup: flash attention is enabled", None),
    ],
)
def test_flash_attention_auto_is_a_request_until_it_is_resolved(line: str, outcome: str | None) -> None:
    facts = read_facts(HEADER.format(flash="auto") + f"0.00.170.000 {line}\n")
    assert facts.main is not None
    assert (facts.main.flash_attn, facts.main.flash_attn_requested) == (outcome, "auto")


def test_flash_attention_refused_by_the_device_names_it() -> None:
    text = HEADER.format(flash="auto") + (
        "0.1 W resolve_fused_ops: layer 3 is assigned to device CUDA0 but Flash Attention is assigned to device CPU"
        " (usually due to missing support)\n"
        "0.1 W resolve_fused_ops: Flash Attention not supported, set to disabled\n"
    )
    (found,) = [f for f in read_facts(text).findings if f.id == "fa-disabled"]
    assert "CPU has no kernel" in found.why
    assert [e.line for e in found.evidence] == [6, 5]


def test_fits_dry_runs_are_no_contexts() -> None:
    probe = HEADER.format(flash="enabled") + CACHE.format(mib=0, k="q8_0", v="q8_0")
    begin = "0.00.009.641 I common_params_fit_impl: getting device memory data for initial parameters:\n"
    end = "0.00.960.262 I common_fit_params: successfully fit params to free device memory\n"
    real = HEADER.format(flash="enabled") + CACHE.format(mib=12.75, k="q8_0", v="q8_0")
    facts = read_facts(begin + probe + end + real)
    assert [c.lines["n_ctx"] for c in facts.contexts] == [11]
    assert read_facts(probe).contexts == ()


def test_contexts_of_one_launch_are_kept_apart_by_their_role() -> None:
    main = HEADER.format(flash="enabled") + CACHE.format(mib=12.75, k="q8_0", v="q8_0")
    mtp = "0.1 I srv    load_model: creating MTP draft context against the target model 'm.gguf'\n"
    draft = HEADER.format(flash="enabled") + CACHE.format(mib=12.75, k="f16", v="f16")
    facts = read_facts(main + mtp + draft)
    assert [(c.role, c.caches[0].type_k) for c in facts.contexts] == [("main", "q8_0"), ("mtp", "f16")]
    assert "draft-kv-f16" in [f.id for f in facts.findings]


def test_a_draft_model_is_kept_out_of_the_weights(recorded: Recorded) -> None:
    facts = read_facts(recorded("llamacpp-draft"))
    assert [(c.role, c.n_ctx_seq, len(c.caches)) for c in facts.contexts] == [
        ("main", 1024, 2),
        ("draft", 1024, 2),
    ]
    assert [(b.device, b.mib) for b in facts.model_buffers] == [("CPU_Mapped", 235.16), ("CPU_REPACK", 12.66)]
    assert facts.main is not None
    assert facts.main.role == "main"


def test_a_second_start_in_the_same_log_begins_anew() -> None:
    start = (
        "0.00.002.180 I srv  llama_server: initializing ...\n"
        "0.00.034.880 I load_tensors: offloaded {n}/33 layers to GPU\n"
        "0.00.034.880 I load_tensors:        CUDA0 model buffer size = {mib} MiB\n"
        + HEADER.format(flash="enabled")
        + CACHE.format(mib=12.75, k="{k}", v="f16")
    )
    facts = read_facts(start.format(n=20, mib="100.00", k="f16") + start.format(n=33, mib="200.00", k="q8_0"))
    assert facts.offloaded == (33, 33)
    assert [(b.device, b.mib) for b in facts.model_buffers] == [("CUDA0", 200.0)]
    assert [c.launch for c in facts.contexts] == [1, 2]
    assert facts.main is not None
    assert facts.main.caches[0].type_k == "q8_0"


OOM = (
    "0.1 E ggml_backend_cuda_buffer_type_alloc_buffer: allocating 201.00 MiB on device 0:"
    " cudaMalloc failed: out of memory\n"
)


@pytest.mark.parametrize(
    ("before", "after", "phase"),
    [
        (
            "0.1 I load_tensors: offloaded 33/33 layers to GPU\n0.1 I llama_model_loader: loaded meta data with 3\n",
            "0.1 E llama_model_load: error loading model: unable to allocate CUDA0 buffer\n",
            "weights",
        ),
        (
            HEADER.format(flash="auto"),
            "0.1 E llama_init_from_model: failed to initialize the context: failed to allocate buffer for kv cache\n",
            "kv",
        ),
        (
            HEADER.format(flash="auto") + CACHE.format(mib=12.75, k="f16", v="f16"),
            "0.1 E llama_init_from_model: failed to initialize the context: failed to allocate buffer for rs cache\n",
            "recurrent",
        ),
        (
            HEADER.format(flash="auto")
            + CACHE.format(mib=12.75, k="f16", v="f16")
            + "0.1 I sched_reserve: reserving ...\n",
            "0.1 E ggml_gallocr_reserve_n_impl: failed to allocate CUDA0 buffer of size 210763776\n",
            "compute",
        ),
        ("0.1 I srv  llama_server: model loaded\n", "", "prefill"),
    ],
)
def test_out_of_memory_is_told_by_what_was_wanted(before: str, after: str, phase: str) -> None:
    facts = read_facts(before + OOM + after)
    (failure,) = facts.failures
    assert (failure.phase, failure.kind, failure.wanted_mib) == (phase, "oom", 201.0)
    assert f"oom-{phase}" in [f.id for f in facts.findings]


def test_a_refusal_that_was_retried_is_no_failure() -> None:
    text = (
        HEADER.format(flash="auto")
        + OOM
        + ("0.1 W sched_reserve: compute buffer allocation failed, retrying without pipeline parallelism\n")
    )
    assert read_facts(text).failures == ()


def test_a_wrong_type_name_ends_before_anything_was_loaded() -> None:
    facts = read_facts('error while handling argument "-ctk": Unsupported cache type: q3_0\n')
    assert facts.outcome == "failed"
    assert facts.failures[0].phase == "arguments"


def test_devices_and_build_are_named() -> None:
    facts = read_facts(
        "I cmn  common_param: common_params_print_info: build 11434 (abc1234) with GNU 12.2.0 for Linux x86_64\n"
        "I cmn  common_param:   - CUDA0   : NVIDIA GeForce RTX 4060 Ti (15949 MiB, 15000 MiB free)\n"
        "I llama_prepare_model_devices: using device CUDA0 (NVIDIA GeForce RTX 4060 Ti) - 14900 MiB free\n"
    )
    assert (facts.build, facts.commit, facts.compiler) == ("b11434", "abc1234", "GNU 12.2.0")
    (device,) = facts.devices
    assert (device.name, device.total_mib, device.free_mib) == ("CUDA0", 15949, 14900)


def test_asked_and_proven_types_that_differ_are_an_error() -> None:
    text = HEADER.format(flash="enabled") + CACHE.format(mib=12.75, k="f16", v="f16")
    assert ids(text, cache_type_k="q8_0") == ["kv-type-differs"]
    assert ids(text, cache_type_k="f16") == []


def test_host_memory_beside_a_gpu_is_told() -> None:
    text = (
        "0.1 I load_tensors: offloaded 30/33 layers to GPU\n"
        "0.1 I load_tensors:        CUDA0 model buffer size =   100.00 MiB\n"
        + HEADER.format(flash="enabled")
        + "0.1 I llama_kv_cache:        CPU KV buffer size =     4.00 MiB\n"
    )
    assert {"layers-on-cpu", "kv-on-cpu"} <= set(ids(text))


def test_buffers_of_a_remote_device_keep_its_name() -> None:
    text = HEADER.format(flash="enabled") + (
        "0.1 I llama_kv_cache: RPC0[192.168.1.5:50052] KV buffer size =    64.00 MiB\n"
    )
    main = read_facts(text).main
    assert main is not None
    assert main.kv_buffers == (BufferFacts("RPC0[192.168.1.5:50052]", 64.0, 5),)
