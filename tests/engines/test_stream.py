"""Reading a streamed completion: every boundary, every kind of rubbish."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvtui.core.errors import EngineGone, RequestError
from kvtui.engines import stream
from kvtui.engines.llama_server.answers import UNKNOWN_TOKEN, AnswerReader
from kvtui.engines.refusals import ContextSizeError, refusal
from kvtui.engines.stream import event_data, plain

TIMINGS = {
    "cache_n": 10,
    "prompt_n": 90,
    "prompt_ms": 450.0,
    "prompt_per_second": 200.0,
    "predicted_n": 3,
    "predicted_ms": 100.0,
    "predicted_per_second": 20.0,
}


def token(text: str, ident: int, predicted: int) -> bytes:
    return json.dumps(
        {"content": text, "tokens": [ident], "stop": False, "tokens_predicted": predicted}
    ).encode()


def last(predicted: int, **fields: Any) -> bytes:
    event = {"content": "", "tokens": [], "stop": True, "stop_type": "limit", "truncated": False}
    event |= {"tokens_predicted": predicted, "tokens_evaluated": 100, "timings": TIMINGS}
    return json.dumps(event | fields).encode()


def progress(processed: int, total: int, ms: float) -> bytes:
    said = {"total": total, "cache": 0, "processed": processed, "time_ms": ms}
    return json.dumps({"content": "", "tokens": [0], "stop": False, "prompt_progress": said}).encode()


def no_tokenizer(text: str) -> list[int]:
    raise AssertionError("nothing was missing")


def test_a_whole_answer() -> None:
    seen: list[tuple[int, int, float]] = []
    counted: list[int] = []
    reader = AnswerReader(3, lambda *a: seen.append(a), counted.append)
    events = [
        progress(0, 100, 0),
        progress(90, 100, 400),
        token("a", 5, 1),
        token("b", 6, 2),
        token("c", 7, 3),
    ]
    assert not any(reader.feed(event) for event in events)
    assert reader.feed(last(3))
    answer = reader.completion(no_tokenizer)
    assert (answer.text, answer.tokens, answer.stop_type, answer.truncated) == (
        "abc",
        (5, 6, 7),
        "limit",
        False,
    )
    assert seen == [(0, 100, 0.0), (90, 100, 0.4)]
    assert counted == [1, 2, 3]
    timing = answer.timing
    assert (timing.prompt_tokens, timing.cached_tokens, timing.generated_tokens) == (100, 10, 3)
    assert (timing.prompt_tps, timing.decode_tps, timing.prompt_s, timing.decode_s) == (
        200.0,
        20.0,
        0.45,
        0.1,
    )
    assert timing.first_token_s is not None
    assert 0 <= timing.first_token_s <= timing.wall_s


def test_one_token_has_no_decode_rate() -> None:
    reader = AnswerReader(1, None, None)
    reader.feed(token("a", 5, 1))
    reader.feed(last(1, timings=TIMINGS | {"predicted_ms": 0.001, "predicted_per_second": 1_000_000.0}))
    assert reader.completion(no_tokenizer).timing.decode_tps is None


def test_a_prompt_from_the_cache_has_no_prompt_rate() -> None:
    reader = AnswerReader(1, None, None)
    reader.feed(last(0, timings=TIMINGS | {"cache_n": 100, "prompt_n": 0}))
    timing = reader.completion(no_tokenizer).timing
    assert (timing.prompt_tps, timing.cached_tokens, timing.first_token_s) == (None, 100, None)


def test_figures_that_are_no_numbers_are_missing() -> None:
    reader = AnswerReader(2, None, None)
    reader.feed(token("a", 1, 1))
    reader.feed(token("b", 2, 2))
    reader.feed(b'{"content":"","stop":true,"tokens_predicted":2,"timings":{"prompt_n":5,"prompt_per_second":NaN,'
                b'"predicted_per_second":"fast","predicted_ms":Infinity}}')  # fmt: skip
    timing = reader.completion(no_tokenizer).timing
    assert (timing.prompt_tps, timing.decode_tps) == (None, None)
    assert timing.decode_s >= 0


def test_tokens_that_the_stream_leaves_out_are_put_in_where_they_are_proven() -> None:
    reader = AnswerReader(4, None, None)
    reader.feed(token("a", 5, 1))
    reader.feed(token("é", 22, 3))
    reader.feed(last(3))
    assert reader.completion(lambda text: {"é": [21, 22]}[text]).tokens == (5, 21, 22)


@pytest.mark.parametrize("ids", [[22], [21, 23], [1, 21, 22]])
def test_tokens_that_cannot_be_proven_are_unknown(ids: list[int]) -> None:
    reader = AnswerReader(4, None, None)
    reader.feed(token("a", 5, 1))
    reader.feed(token("é", 22, 3))
    reader.feed(last(4))
    assert reader.completion(lambda text: ids).tokens == (5, UNKNOWN_TOKEN, 22, UNKNOWN_TOKEN)


def test_an_answer_without_an_end_means_the_engine_is_gone() -> None:
    reader = AnswerReader(4, None, None)
    reader.feed(token("a", 5, 1))
    with pytest.raises(EngineGone):
        reader.completion(no_tokenizer)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"<html>",
        b"[1, 2]",
        b'"text"',
        b"{",
        b"\xff\xfe",
        b'{"content": 5}',
        b'{"content": "a", "tokens": ["x"]}',
        b'{"content": "a", "tokens": [true]}',
        b'{"content": "a", "tokens": {"a": 1}}',
        b"[" * 100_000,
    ],
)
def test_rubbish_is_a_request_error(data: bytes) -> None:
    with pytest.raises(RequestError):
        AnswerReader(4, None, None).feed(data)


def test_an_error_in_mid_stream_is_a_refusal() -> None:
    reader = AnswerReader(4, None, None)
    reader.feed(token("a", 5, 1))
    with pytest.raises(RequestError, match="Context size has been exceeded") as caught:
        reader.feed(
            b'{"error":{"code":500,"message":"Context size has been exceeded.","type":"server_error"}}'
        )
    assert (caught.value.status, caught.value.kind) == (500, "server_error")


def test_more_tokens_than_asked_for_are_cut_off() -> None:
    reader = AnswerReader(4, None, None)
    events = (token("a", 5, number) for number in range(1, 100))
    with pytest.raises(RequestError, match="more tokens"):
        list(map(reader.feed, events))


def test_a_count_out_of_this_world_costs_no_memory() -> None:
    reader = AnswerReader(4, None, None)
    with pytest.raises(RequestError, match="more tokens"):
        reader.feed(token("a", 5, 10**12))
    reader = AnswerReader(4, None, None)
    reader.feed(last(10**12))
    assert len(reader.completion(no_tokenizer).tokens) < 20


EVENTS = (
    b': ping\n\ndata: {"a": 1}\r\n\r\nevent: x\ndata:{"b": "\xc3\xa9"}\n\n'
    b'error: {"c": 2}\n\nid: 3\ndata: [DONE]\n\n'
)


@given(st.lists(st.integers(0, len(EVENTS)), max_size=12))
def test_events_are_the_same_whatever_the_chunks(cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), len(EVENTS)]
    chunks = [EVENTS[a:b] for a, b in pairwise(edges)]
    assert list(event_data(chunks)) == [b'{"a": 1}', b'{"b": "\xc3\xa9"}', b'{"c": 2}', b"[DONE]"]


def endless(chunk: bytes) -> Iterator[bytes]:
    while True:
        yield chunk


@pytest.mark.parametrize("chunk", [b"data: x" * 1000, b": ping\n\n" * 1000])
def test_what_does_not_end_is_cut_off(chunk: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "_STREAM_LIMIT", 1 << 22)
    monkeypatch.setattr(stream, "_LINE_LIMIT", 1 << 20)
    with pytest.raises(RequestError, match="does not end"):
        for _ in event_data(endless(chunk)):
            pass


def test_text_is_made_plain_and_keeps_its_lines() -> None:
    assert plain("a\x1b[31mb\n\n\tc\r\n\x1b]52;c;eA==\x07d\n") == "ab\n\n    c\nd\n"


def test_a_context_size_error_carries_its_figures() -> None:
    error = refusal(
        400,
        b'{"error":{"code":400,"message":"request (1802 tokens) exceeds the available context size (512 tokens),'
        b' try increasing it","type":"exceed_context_size_error","n_prompt_tokens":1802,"n_ctx":512}}',
    )
    assert isinstance(error, ContextSizeError)
    assert (error.status, error.n_prompt_tokens, error.n_ctx) == (400, 1802, 512)
    assert "request (1802 tokens)" in error.what


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "no reason given"),
        (b"<h1>Bad\nGateway</h1>", "<h1>Bad Gateway</h1>"),
        (b'{"error": "busy\\u001b[2J"}', "busy"),
        (b'{"error": {"message": ["x"]}}', "['x']"),
        (b"[1]", "[1]"),
        (b"\xff" * 10_000, "refused with status 502"),
        (b"[" * 100_000, "refused with status 502"),
    ],
)
def test_any_refusal_is_one_short_clean_line(body: bytes, words: str) -> None:
    line = refusal(502, body).line()
    assert words in line
    assert len(line) < 700
    assert line.isprintable()


ABSURD = [b"9" * 4000, b"-1", b"1e308", b"1e999", b"NaN", b"-5.5", b"1099511627776"]


@pytest.mark.parametrize("number", ABSURD)
def test_numbers_that_no_engine_means_are_missing_and_break_nothing(number: bytes) -> None:
    seen: list[tuple[int, int, float]] = []
    reader = AnswerReader(3, lambda *a: seen.append(a), None)
    reader.feed(b'{"prompt_progress":{"processed":%s,"total":%s,"time_ms":%s}}' % ((number,) * 3))
    reader.feed(token("a", 5, 1))
    reader.feed(token("b", 6, 2))
    timings = b",".join(b'"%s":%s' % (name.encode(), number) for name in TIMINGS)
    reader.feed(
        b'{"content":"","tokens":[],"stop":true,"tokens_predicted":%s,"tokens_evaluated":%s,"timings":{%s}}'
        % (number, number, timings)
    )
    timing = reader.completion(no_tokenizer).timing
    assert seen == []
    assert (timing.prompt_tps, timing.decode_tps) == (None, None)
    assert (timing.prompt_tokens, timing.cached_tokens, timing.generated_tokens) == (0, 0, 2)
    assert 0 <= timing.prompt_s <= timing.wall_s
    assert 0 <= timing.decode_s <= timing.wall_s


@pytest.mark.parametrize("ident", [-2, 1 << 31, 10**400])
def test_ids_that_are_none_are_rubbish(ident: int) -> None:
    with pytest.raises(RequestError, match="not what it should be"):
        AnswerReader(3, None, None).feed(token("a", ident, 1))
