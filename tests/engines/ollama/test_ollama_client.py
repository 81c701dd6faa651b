"""Requests to Ollama: what is counted, what is cut, what is rubbish, in two eras of its API."""

from __future__ import annotations

import pytest

from kvtui.core.errors import RequestError
from kvtui.engines.ollama.client import OllamaClient
from kvtui.engines.ollama.process import OllamaProcess
from kvtui.engines.refusals import ContextSizeError
from kvtui.probes.prompt import build_haystack, raw_style

Loaded = tuple[str, OllamaProcess, OllamaClient]


def test_depths_are_what_the_engine_counts(any_era: Loaded) -> None:
    era, _running, client = any_era
    haystack = build_haystack(client, raw_style(client), 800)
    tokens: list[int] = []
    answer = client.complete(list(haystack.ids), 5, cache_prompt=False, on_token=tokens.append)
    read = answer.timing.prompt_tokens
    assert len(haystack.ids) == 800
    assert read == 800 if era == "0.33" else 740 < read < 800
    assert answer.text == " a b c d e"
    assert tokens == [1, 2, 3, 4, 5]
    assert answer.tokens == ()
    assert answer.stop_type == "limit"
    assert answer.timing.generated_tokens == 5
    assert answer.timing.prompt_tps == pytest.approx(1000, rel=0.02)
    assert answer.timing.decode_tps == pytest.approx(100)


def test_a_prompt_seen_before_is_read_again_only_without_the_cache(any_era: Loaded) -> None:
    _era, _running, client = any_era
    prompt = list(build_haystack(client, raw_style(client), 300).ids)
    first = client.complete(prompt, 1, cache_prompt=False).timing
    again = client.complete(prompt, 1, cache_prompt=True).timing
    fresh = client.complete(prompt, 1, cache_prompt=False).timing
    assert first.cached_tokens <= 1
    assert again.cached_tokens == again.prompt_tokens
    assert fresh.cached_tokens == 0
    assert again.prompt_tps is None
    assert fresh.prompt_tps is not None


def test_a_prompt_that_is_too_long_never_passes(any_era: Loaded) -> None:
    era, _running, client = any_era
    prompt = client.tokenize("far too long\n" * 600, add_special=True, parse_special=False)
    with pytest.raises(RequestError) as caught:
        client.complete(prompt, 1, cache_prompt=False)
    if era == "0.33":
        assert isinstance(caught.value, ContextSizeError)
        assert (caught.value.n_prompt_tokens, caught.value.n_ctx) == (len(prompt), 1024)
    else:
        assert "it was cut" in caught.value.what


def test_the_template_is_ollamas_own(any_era: Loaded) -> None:
    _era, _running, client = any_era
    assert client.apply_template([{"role": "user", "content": "hello"}]) == "<|user|>\nhello\n<|assistant|>\n"
    with pytest.raises(RequestError) as caught:
        client.apply_template([{"role": "user", "content": "fault: answered instead"}])
    assert caught.value.kind == "template"


@pytest.mark.parametrize(
    ("fault", "words"),
    [("garbage", "not JSON"), ("endless", "more tokens than asked for"), ("broken-off", "broke off")],
)
def test_an_answer_that_is_rubbish(any_era: Loaded, fault: str, words: str) -> None:
    _era, _running, client = any_era
    prompt = client.tokenize(f"fault: {fault}", add_special=True, parse_special=False)
    with pytest.raises(RequestError, match=words):
        client.complete(prompt, 4, cache_prompt=True)


def test_an_answer_that_ollama_ends_for_its_repeats_has_no_speeds(any_era: Loaded) -> None:
    _era, _running, client = any_era
    prompt = client.tokenize("fault: repeat", add_special=True, parse_special=False)
    answer = client.complete(prompt, 4, cache_prompt=True)
    assert answer.stop_type == "repeat"
    assert answer.timing.generated_tokens == 4
    assert answer.timing.decode_tps is None
    assert answer.timing.prompt_tps is None
