"""llama.cpp of 2024 and 2025, ik_llama.cpp, and the ways in which logs reach us."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kvtui.logs.facts import CacheFacts, ContextFacts, EngineFacts
from tests.logs.conftest import read_facts


def main_of(text: str) -> ContextFacts:
    main = read_facts(text).main
    assert main is not None
    return main


def cache_of(text: str) -> CacheFacts:
    (cache,) = main_of(text).caches
    return cache


def sizes(cache: CacheFacts) -> tuple[object, ...]:
    return (cache.type_k, cache.k_mib, cache.type_v, cache.v_mib, cache.size_mib)


SELF_SIZE = (
    "llama_new_context_with_model: KV self size  =  256.00 MiB, K (f16):  128.00 MiB, V (q8_0):  128.00 MiB\n"
)


def test_2024_names_of_the_same_facts() -> None:
    text = (
        "llm_load_tensors: offloaded 33/33 layers to GPU\n"
        "llm_load_tensors:      Metal buffer size =  3820.93 MiB\n"
        "llama_new_context_with_model: n_ctx      = 512\n"
        "llama_new_context_with_model: n_batch    = 512\n"
        "llama_new_context_with_model: flash_attn = 0\n"
        "llama_kv_cache_init:      Metal KV buffer size =   256.00 MiB\n"
        + SELF_SIZE
        + "llama_new_context_with_model:      Metal compute buffer size =    70.50 MiB\n"
        "llama_new_context_with_model: graph splits = 2\n"
        "generate: n_ctx = 512, n_batch = 2048, n_predict = 128, n_keep = 1\n"
    )
    facts = read_facts(text)
    main = main_of(text)
    assert (main.n_ctx, main.n_batch, main.flash_attn, main.graph_splits) == (512, 512, "disabled", 2)
    assert sizes(main.caches[0]) == ("f16", 128.0, "q8_0", 128.0, 256.0)
    assert [(b.device, b.mib) for b in facts.model_buffers] == [("Metal", 3820.93)]
    assert (facts.offloaded, facts.outcome) == ((33, 33), "ready")


def test_cells_and_layers_of_early_2025_stand_on_their_own_line() -> None:
    cache = cache_of(
        "llama_init_from_model: n_ctx_per_seq = 128\n"
        "llama_kv_cache_init: kv_size = 256, offload = 1, type_k = 'f16', type_v = 'f16', n_layer = 5, can_shift = 1\n"
        + SELF_SIZE
    )
    assert (cache.cells, cache.layers) == (256, 5)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            "llama_kv_cache_unified: size = 1536.00 MiB ( 16384 cells,  48 layers,  1 seqs), "
            "K (f16):  768.00 MiB, V (f16):  768.00 MiB",
            (16384, 48, 1),
        ),
        (
            "llama_kv_cache: size = 13824.00 MiB (1048576 cells,  12 layers,  4/1 seqs), "
            "K (q4_0): 6912.00 MiB, V (q4_0): 6912.00 MiB",
            (1048576, 12, 1),
        ),
        (
            "llama_kv_cache: size =    8.75 MiB (   512 cells,  10 layers,  4/4 seqs), "
            "K (turbo3):    4.38 MiB, V (turbo3):    4.38 MiB",
            (512, 10, 4),
        ),
    ],
)
def test_size_lines_by_era_and_fork(line: str, expected: tuple[int, int, int]) -> None:
    cache = cache_of(line)
    assert (cache.cells, cache.layers, cache.streams) == expected


def test_flash_attention_that_was_auto_names_its_outcome() -> None:
    for state in ("enabled", "disabled"):
        text = (
            f"llama_context: flash_attn    = auto\nsched_reserve: Flash Attention was auto, set to {state}\n"
        )
        assert main_of(text).flash_attn == state


IK = "llama_new_context_with_model: KV self size  = 2713,50 MiB, c^KV (q8_KV):  985,50 MiB, kv^T"


def test_ik_keeps_a_latent_and_perhaps_its_transpose() -> None:
    assert sizes(cache_of(f"{IK} (f16): 1728,00 MiB")) == ("q8_KV", 985.5, "f16", 1728.0, 2713.5)
    assert sizes(cache_of(f"{IK}: not used")) == ("q8_KV", 985.5, None, None, 2713.5)
    assert read_facts(IK + ": not used").engine == "ik_llama.cpp"


def test_the_projectors_buffers_and_kernels_are_its_own() -> None:
    text = (
        "llama_context: flash_attn    = auto\n"
        "sched_reserve:       MTL0 compute buffer size =   517.50 MiB\n"
        "clip_ctx: CLIP using MTL0 backend\n"
        "alloc_compute_meta:       MTL0 compute buffer size =   101.27 MiB\n"
        "reserve_compute_meta:        CPU compute buffer size =    64.49 MiB\n"
        "warmup: flash attention is enabled\n"
    )
    main = main_of(text)
    assert [(b.device, b.mib) for b in main.compute_buffers] == [("MTL0", 517.5)]
    assert main.flash_attn is None


def test_a_projector_that_does_not_fit_is_told_apart() -> None:
    facts = read_facts(
        "clip_model_loader: has vision encoder\n"
        "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 1291.40 MiB on device 0:"
        " cudaMalloc failed: out of memory\n"
    )
    assert (facts.failures[0].phase, facts.outcome) == ("mmproj", "failed")


def test_metadata_and_prompts_that_quote_a_log_prove_nothing() -> None:
    for line in (
        "llama_model_loader: - kv   9: general.description str = llama_context: n_ctx = 4096",
        'srv  log_server_r: request: {"messages":[{"role":"user","content":"llama_context: n_ctx = 4096"}]}',
    ):
        assert read_facts(line).contexts == ()


SIZE = (
    "llama_kv_cache: size =  448.00 MiB (  4096 cells,  28 layers,  1/1 seqs), "
    "K (f16):  224.00 MiB, V (f16):  224.00 MiB"
)
PREFIXES = (
    "{}",
    "0.00.175.835 I {}",
    "12.00.175.835 W {}",
    "I {}",
    "[41234] 0.00.175.835 I {}",
    "Apr 21 11:15:51 host llama-server[3473]: {}",
    "2026-04-21T11:15:51+0200 host llama[3473]: {}",
    "2026-05-14 22:14:31.035 | {}",
    "llama-1  | {}",
    "2026-05-14T22:14:31.035123456Z {}",
    "123: {}",
    "   {}",
    "> {}",
    "[2025-03-01 12:00:00][DEBUG] {}",
    "\x1b[36m{}\x1b[0m",
    '{{"type":"log","time":1,"level":"info","msg":"{}\\n"}}',
    'llm-1  | {{"type":"log","time":1,"level":"info","msg":"{}\\n"}}',
    '{{"__CURSOR":"s=1","MESSAGE":"{}","PRIORITY":"6"}}',
    '{{"log":"{}\\n","stream":"stderr","time":"2026-05-14T22:14:31Z"}}',
)


@pytest.mark.parametrize("wrapping", PREFIXES)
def test_the_same_facts_in_every_wrapping(wrapping: str) -> None:
    lines = (
        "llama_context: n_ctx         = 4096",
        "llama_context: flash_attn    = enabled",
        "llama_kv_cache:      CUDA0 KV buffer size =   448.00 MiB",
        SIZE,
        "srv    load_model: initializing, n_slots = 1, n_ctx_slot = 4096, kv_unified = 'false'",
        "srv  llama_server: model loaded",
    )
    facts = read_facts("".join(wrapping.format(line) + "\n" for line in lines))
    main = facts.main
    assert main is not None
    assert (main.n_ctx, main.flash_attn, main.kv_buffers[0].device) == (4096, "enabled", "CUDA0")
    assert sizes(main.caches[0]) == ("f16", 224.0, "f16", 224.0, 448.0)
    assert facts.slots is not None
    assert (facts.slots.n_ctx_slot, facts.outcome) == (4096, "ready")


@pytest.mark.parametrize(
    "text",
    [
        SIZE.replace("224.00 MiB", "2>").replace("K (f16):  2>", "K (f16):  224.00 MiB") + "\n",
        SIZE[:-9] + "…\n",
    ],
)
def test_a_number_cut_by_a_pager_is_no_number(text: str) -> None:
    assert sizes(cache_of(text + "srv  llama_server: model loaded\n")) == ("f16", 224.0, "f16", None, 448.0)


@pytest.mark.parametrize("at", range(40, len(SIZE)))
def test_a_size_line_broken_anywhere_by_a_terminal_is_whole_again(at: int) -> None:
    cache = cache_of(f"{SIZE[:at]}\n{SIZE[at:]}          sched_reserve: reserving ...\n")
    assert sizes(cache) == ("f16", 224.0, "f16", 224.0, 448.0)
    assert (cache.cells, cache.layers, cache.line) == (4096, 28, 1)


def test_a_log_that_went_through_a_narrow_terminal_is_whole_again(recorded: Callable[[str], bytes]) -> None:
    lines = recorded("llamacpp-q8").decode().splitlines()
    narrow = [line[i : i + 80] for line in lines for i in range(0, len(line), 80)]
    wrapped, whole = read_facts("\n".join(narrow)), read_facts("\n".join(lines))
    assert wrapped.outcome == whole.outcome
    assert wrapped.slots is not None
    assert whole.slots is not None
    assert (wrapped.slots.n_ctx_slot, wrapped.slots.kv_unified) == (whole.slots.n_ctx_slot, False)
    assert [sizes(c) for f in (wrapped, whole) for x in f.contexts for c in x.caches[:1]] == [
        ("q8_0", 3.19, "q8_0", 3.19, 6.38)
    ] * 2


def test_one_wide_line_shows_that_no_terminal_broke_the_others() -> None:
    wide, even = "x" * 81, "y" * 80
    facts = read_facts(f"{wide}\n{even}\nllama_context: n_ctx         = 4096\n")
    assert facts.main is not None
    assert facts.main.lines["n_ctx"] == 3


def test_two_records_on_one_line_are_both_read() -> None:
    main = main_of(
        "llama_context: n_ctx         = 4096 llama_context: n_batch       = 512 llama_context: n_ubatch      = 256\n"
    )
    assert (main.n_ctx, main.n_batch, main.n_ubatch) == (4096, 512, 256)


def requested(text: str) -> dict[str, object]:
    facts: EngineFacts = read_facts(text)
    return facts.requested


def test_the_command_line_in_the_log_says_what_was_asked() -> None:
    assert requested(
        "$ ./build/bin/llama-server -m m.gguf -c 65536 -ctk q8_0 -ctv q8_0 -fa -ngl 99 -np 2\n"
    ) == {
        "ctx": 65536,
        "cache_type_k": "q8_0",
        "cache_type_v": "q8_0",
        "flash_attn": "on",
        "n_gpu_layers": 99,
        "n_parallel": 2,
    }
    assert (
        requested("./llama-cli -m m.gguf \\\n   --ctx-size 8192 -fa off\n-ctk f16 is a type\n")["ctx"] == 8192
    )
    assert requested(
        "LLAMA_ARG_CTX_SIZE=4096 LLAMA_ARG_CACHE_TYPE_K=q4_0\nllama_context: n_ctx = 4096\n"
    ) == {
        "ctx": 4096,
        "cache_type_k": "q4_0",
    }


def test_a_variable_in_place_of_a_number_is_not_guessed() -> None:
    assert (
        requested("llama-server -m m.gguf -c $CTX -ngl all -ctk $TYPE\nllama_context: n_ctx = 4096\n") == {}
    )


def test_a_crash_line_that_repeats_the_command_is_no_new_start() -> None:
    facts = read_facts(
        "llama_init_from_model: failed to initialize the context: failed to allocate buffer for kv cache\n"
        "/bin/bash: line 6: 221965 Segmentation fault (core dumped) /opt/llama-server -m /m.gguf -ngl 99 -c 65536\n"
    )
    assert facts.outcome == "failed"
    assert facts.requested == {"ctx": 65536, "n_gpu_layers": 99}
