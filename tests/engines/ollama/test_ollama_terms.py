"""Facts of engines with words of their own, in the terms that checks and reports read."""

from __future__ import annotations

import pytest

from kvtui.engines.ollama.terms import in_llama_terms
from kvtui.logs.facts import EngineFacts
from tests.logs.conftest import read_facts
from tests.logs.test_ollama import COMMIT, START, TWO_GPUS, record

DEVICES = record('"model weights" device=CUDA0 size="19.9 GiB"', source="device") + record(
    '"kv cache" device=CUDA0 size="955.2 MiB"', source="device"
)


def test_a_load_request_makes_a_context() -> None:
    text = (
        START
        + COMMIT.format(op="commit", fa="true", n=8192, kv="q8_0", layers=TWO_GPUS).replace(
            "Parallel:1", "Parallel:2"
        )
        + DEVICES
        + record('"kv cache" device=CPU size="1.3 GiB"', source="device")
        + record('"compute graph" device=CUDA0 size="918.1 MiB"', source="device")
        + record('"offloaded 20/49 layers to GPU"', source="ggml")
    )
    facts = in_llama_terms(read_facts(text))
    main = facts.main
    assert main is not None
    assert (main.n_ctx, main.n_ctx_seq, main.n_seq_max, main.n_batch, main.n_ubatch) == (
        8192,
        4096,
        2,
        512,
        512,
    )
    assert (main.flash_attn, main.kv_unified) == ("enabled", False)
    (cache,) = main.caches
    assert (cache.type_k, cache.type_v) == ("q8_0", "q8_0")
    assert cache.size_mib == pytest.approx(955.2 + 1.3 * 1024)
    assert main.kv_rounding_mib == pytest.approx((0.1 + 0.1 * 1024) / 2)
    assert {(b.device, round(b.mib, 1)) for b in main.kv_buffers} == {("CUDA0", 955.2), ("CPU", 1331.2)}
    assert [b.mib for b in main.compute_buffers] == [918.1]
    assert facts.model_buffers[0].mib == pytest.approx(19.9 * 1024)
    assert facts.slots is not None
    assert (facts.slots.n_slots, facts.slots.n_ctx_slot) == (2, 4096)
    assert facts.offloaded == (20, 49)
    line = main.lines["n_ctx"]
    assert "Operation:commit" in facts.texts[line]
    assert cache.line == line


def test_what_is_not_told_stays_unknown() -> None:
    facts = in_llama_terms(
        read_facts(START + COMMIT.format(op="fit", fa="true", n=4096, kv="q8_0", layers="[]"))
    )
    main = facts.main
    assert main is not None
    assert main.n_ctx == 4096
    assert main.caches == ()
    assert main.kv_mib is None
    assert facts.model_buffers == ()
    assert facts.offloaded is None


def test_facts_that_have_a_context_or_no_words_of_their_own_stay_as_they_are() -> None:
    context = read_facts(START + "llama_context: constructing llama_context\nllama_context: n_ctx = 4096\n")
    assert context.contexts
    assert in_llama_terms(context) is context
    bare = EngineFacts()
    assert in_llama_terms(bare) is bare


def test_the_runners_last_words_are_quoted_and_not_said_twice() -> None:
    words = "llama_init_from_model: quantized V cache requires flash_attn to be enabled"
    quoted = record(f'"llama-server load failed" error="exit status 1: {words}"', "ERROR", "sched")
    facts = read_facts(START + words + "\n" + quoted)
    assert [f.text for f in facts.failures] == [words]
    assert [f.text for f in read_facts(START + quoted).failures] != []
