"""vLLM driven: the command line, the start, the answers, and what goes wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from threading import Event

import pytest

from kvtui.core.config import RunConfig
from kvtui.core.errors import EngineGone, RequestError, StartError
from kvtui.engines.vllm.answers import CompletionReader
from kvtui.engines.vllm.server import Vllm, VllmProcess
from kvtui.probes.results import Choice

Make = Callable[..., Vllm]
CONFIG = RunConfig("org/model", 8192, type_k="fp8", type_v="fp8", n_parallel=4, gpu_memory_utilization=0.85)


def started(engine: Vllm, folder: Path, config: RunConfig = CONFIG) -> VllmProcess:
    running = engine.launch(config, folder / "engine.log", lambda lines: None)
    try:
        running.wait_ready(60, Event(), lambda p: None)
    except BaseException:
        running.stop()
        raise
    return running


def test_abilities_are_asked_of_the_help(vllm: Make) -> None:
    engine = vllm()
    found = engine.abilities()
    assert engine.label == "vLLM 0.11.0"
    assert found.cache_types == ("auto", "bfloat16", "fp8", "fp8_e4m3", "fp8_e5m2", "fp8_inc")
    assert {"--max-model-len", "--enforce-eager", "--no-enable-prefix-caching", "--port"} <= found.options
    assert "--kv-cache-memory-bytes" not in found.options


def test_a_program_that_is_no_vllm_says_so() -> None:
    with pytest.raises(StartError, match="does not answer serve --help as vLLM does"):
        Vllm("/bin/true").abilities()


def test_the_command_line_is_explicit(vllm: Make) -> None:
    argv = vllm().command(CONFIG, 9000).argv[1:]
    assert " ".join(argv) == (
        "serve org/model --max-model-len 8192 --kv-cache-dtype fp8 --max-num-seqs 4 --max-num-batched-tokens 2048 "
        "--gpu-memory-utilization 0.85 --enable-prefix-caching --host 127.0.0.1 --port 9000"
    )
    other = replace(
        CONFIG, enforce_eager=True, prefix_reuse=False, gpu_memory_utilization=None, extra=("--x",)
    )
    argv = vllm().command(other, 9000).argv
    assert "--enforce-eager" in argv
    assert "--no-enable-prefix-caching" in argv
    assert "--gpu-memory-utilization" not in argv
    assert argv[-1] == "--x"


def test_a_start_proves_the_pool_and_a_request_is_answered(vllm: Make, tmp_path: Path) -> None:
    running = started(vllm(), tmp_path)
    try:
        facts = running.facts()
        assert facts.engine == "vllm"
        assert facts.actual is not None
        assert (facts.actual["kv_type"], facts.actual["n_ctx"]) == ("fp8", 8192)
        assert facts.slots is not None
        assert (facts.slots.n_slots, facts.slots.n_ctx_slot, facts.slots.kv_unified) == (4, 8192, True)
        counted: list[int] = []
        with running.connect() as client:
            prompt = client.tokenize("hello", add_special=True, parse_special=False)
            assert client.apply_template([{"role": "user", "content": "hi"}]) == "<user>hi<assistant>"
            answer = client.complete(prompt, 3, cache_prompt=False, n_probs=2, on_token=counted.append)
    finally:
        running.stop()
    assert counted == [1, 2, 3]
    assert (answer.text, answer.tokens, answer.stop_type) == ("bbb", (98, 98, 98), "limit")
    assert (answer.timing.prompt_tokens, answer.timing.generated_tokens) == (5, 3)
    assert answer.timing.decode_tps is not None
    assert answer.choices == tuple(Choice(i, (98, 97), (-0.05, -3.0)) for i in range(3))


def test_a_pool_that_is_too_small_is_a_start_that_failed_with_its_figures(vllm: Make, tmp_path: Path) -> None:
    with pytest.raises(StartError, match="estimated maximum model length"):
        started(vllm(weights_gib=13.0), tmp_path, replace(CONFIG, n_ctx=131072))


@pytest.mark.parametrize(
    ("mode", "error", "says"),
    [
        ("refuses", RequestError, "maximum context length is 64 tokens"),
        ("dies", EngineGone, "broke"),
        ("endless", RequestError, "more tokens than asked for"),
    ],
)
def test_requests_that_fail(vllm: Make, tmp_path: Path, mode: str, error: type[Exception], says: str) -> None:
    running = started(vllm(mode=mode), tmp_path)
    try:
        with running.connect() as client, pytest.raises(error, match=says):
            client.complete([1, 2, 3], 4, cache_prompt=True)
    finally:
        running.stop()


@pytest.mark.parametrize(
    "event",
    [
        b"[1]",
        b"not json",
        b'{"choices": [{"text": 5}]}',
        b'{"choices": [{"text": "a", "token_ids": [1.5]}]}',
        b'{"error": {"message": "boom", "code": 500}}',
        b'{"error": "boom"}',
    ],
)
def test_rubbish_in_a_stream_is_an_error(event: bytes) -> None:
    with pytest.raises(RequestError):
        CompletionReader(4, None).feed(event)


def test_a_stream_without_an_end_is_no_answer() -> None:
    reader = CompletionReader(4, None)
    reader.feed(b'{"choices": [{"text": "a", "token_ids": [1], "finish_reason": null}]}')
    with pytest.raises(EngineGone):
        reader.completion()


def test_servers_that_tell_no_token_ids_are_read_by_their_text() -> None:
    reader = CompletionReader(4, None)
    reader.feed(b'{"choices": [{"text": "ab", "finish_reason": null}]}')
    reader.feed(b'{"choices": [{"text": "c", "finish_reason": "stop", "stop_reason": "\\n"}]}')
    reader.feed(
        b'{"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 3, '
        b'"prompt_tokens_details": {"cached_tokens": 4}}}'
    )
    assert reader.feed(b"[DONE]")
    answer = reader.completion()
    assert (answer.text, answer.tokens, answer.stop_type) == ("abc", (), "word")
    assert (answer.timing.prompt_tokens, answer.timing.cached_tokens, answer.timing.generated_tokens) == (
        9,
        4,
        3,
    )
