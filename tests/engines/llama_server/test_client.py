"""The HTTP client against a server that answers what it is told, byte for byte, and against the real engine."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Event, Timer

import pytest

from kvtui.core.errors import Cancelled, EngineGone, RequestError
from kvtui.engines import http as module
from kvtui.engines.llama_server.client import EngineClient
from kvtui.engines.refusals import ContextSizeError
from kvtui.probes.asking import Completion

Answer = Callable[[socket.socket], None]


def http(body: bytes, status: str = "200 OK", *headers: str) -> bytes:
    head = "".join(f"{line}\r\n" for line in (f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers))
    return head.encode() + b"\r\n" + body


@contextmanager
def server(answer: bytes | Answer) -> Iterator[EngineClient]:
    """One server that reads a request's head and body and then sends `answer`."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return
                with connection:
                    try:
                        _read_request(connection)
                        if callable(answer):
                            answer(connection)
                        else:
                            connection.sendall(answer)
                    except OSError:
                        pass

        thread = threading.Thread(target=serve)
        thread.start()
        port = listening.getsockname()[1]
        try:
            with EngineClient(f"http://127.0.0.1:{port}", timeout_s=5, stall_s=5) as client:
                yield client
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            thread.join(10)


def _read_request(connection: socket.socket) -> None:
    data = b""
    while b"\r\n\r\n" not in data:
        data += connection.recv(65536)
    head, _, body = data.partition(b"\r\n\r\n")
    length = next(
        (int(h.split(b":")[1]) for h in head.lower().split(b"\r\n") if h.startswith(b"content-length")), 0
    )
    while len(body) < length:
        body += connection.recv(65536)


def until_closed(connection: socket.socket) -> None:
    """An answer that never comes."""
    connection.recv(1)


def ask(client: EngineClient, cancel: Event | None = None) -> object:
    return client.complete([1, 2], 4, cache_prompt=False, cancel=cancel)


@pytest.mark.parametrize(
    ("answer", "health"),
    [
        (http(b'{"status":"ok"}'), "ready"),
        (http(b"{}", "503 Service Unavailable"), "loading"),
        (http(b"", "404 Not Found"), "failing"),
        (http(b"", "302 Found", "Location: http://127.0.0.1:1/"), "failing"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "silent"),
        (b"", "silent"),
    ],
)
def test_health(answer: bytes, health: str) -> None:
    with server(answer) as client:
        assert client.health() == health


def test_health_of_a_server_that_never_answers_takes_its_time_limit() -> None:
    with server(until_closed) as client:
        began = time.monotonic()
        assert client.health(timeout_s=0.1) == "silent"
        assert time.monotonic() - began < 4, "not the client's own limit of 5 s"


def test_a_refusal_carries_status_and_kind() -> None:
    body = (
        b'{"error":{"code":501,"message":"This server does not support slots","type":"not_supported_error"}}'
    )
    with (
        server(http(body, "501 Not Implemented")) as client,
        pytest.raises(RequestError, match="does not support slots") as caught,
    ):
        client.slots()
    assert (caught.value.status, caught.value.kind) == (501, "not_supported_error")


@pytest.mark.parametrize(
    "answer",
    [
        http(b"<html>hello</html>"),
        http(b"[1,2]"),
        http(b'{"tokens": "many"}'),
        http(b'{"tokens": [1, 2.5]}'),
        http(b"[" * 200_000),
        http(b'{"tokens": [1]}', "302 Found"),
        http(b'{"tokens": [1]}', "200 OK", "Content-Encoding: gzip")[:-4] + b"\x1f\x8b\x08\x00",
        b"220 mail.example.org ESMTP\r\n\r\n",
    ],
)
def test_rubbish_is_a_request_error(answer: bytes) -> None:
    with server(answer) as client, pytest.raises(RequestError):
        client.tokenize("x", add_special=True, parse_special=False)


@pytest.mark.parametrize("answer", [b"", http(b'{"tokens": [1]}')[:-3], http(b"data: {}\n\n")])
def test_a_connection_that_breaks_off_means_the_engine_is_gone(answer: bytes) -> None:
    with server(answer) as client, pytest.raises((EngineGone, RequestError)) as caught:
        ask(client)
    assert caught.type is EngineGone


def test_nobody_listening_means_the_engine_is_gone() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        with EngineClient(f"http://127.0.0.1:{unused.getsockname()[1]}") as client, pytest.raises(EngineGone):
            client.props()


def test_silence_is_a_request_error_after_the_limit() -> None:
    with (
        server(until_closed) as client,
        EngineClient(client.base_url, timeout_s=0.2) as hasty,
        pytest.raises(RequestError) as caught,
    ):
        hasty.props()
    assert caught.value.kind == "timeout"


def test_a_body_without_end_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_BODY_LIMIT", 1 << 20)

    def endless(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        while True:
            connection.sendall(b"1000\r\n" + b"x" * 4096 + b"\r\n")

    with server(endless) as client, pytest.raises(RequestError, match="larger than"):
        client.props()


def test_a_stream_without_end_is_cut_off() -> None:
    def endless(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        for number in range(10_000_000):
            event = {"content": "x", "tokens": [1], "stop": False, "tokens_predicted": number + 1}
            connection.sendall(b"data: " + json.dumps(event).encode() + b"\n\n")

    with server(endless) as client, pytest.raises(RequestError, match="more tokens") as caught:
        ask(client)
    assert caught.value.kind == "endless"


@pytest.mark.parametrize("headers_first", [True, False])
def test_cancel_is_prompt_before_and_after_the_first_byte(headers_first: bool) -> None:
    closed = Event()

    def slow(connection: socket.socket) -> None:
        if headers_first:
            connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        connection.settimeout(10)
        assert connection.recv(1) == b""
        closed.set()

    with server(slow) as client:
        cancel = Event()
        Timer(0.1, cancel.set).start()
        began = time.monotonic()
        with pytest.raises(Cancelled):
            ask(client, cancel)
        assert time.monotonic() - began < 4, "not the limit of 5 s"
        assert closed.wait(5)


def test_cancelled_before_it_began_sends_nothing() -> None:
    asked = Event()
    with server(lambda connection: asked.set()) as client:
        cancel = Event()
        cancel.set()
        with pytest.raises(Cancelled):
            ask(client, cancel)
    assert not asked.is_set()


def test_an_answer_that_is_complete_wins_over_a_late_cancel() -> None:
    end = b'data: {"content":"a","tokens":[5],"stop":true,"stop_type":"eos","tokens_predicted":1}\n\n'
    with server(http(end)) as client:
        cancel = Event()
        answer = client.complete([1], 4, cache_prompt=False, on_token=lambda n: cancel.set(), cancel=cancel)
    assert (answer.tokens, answer.stop_type) == ((5,), "eos")


def test_no_proxy_gets_to_see_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    with server(http(b'{"status":"ok"}')) as client:
        assert client.health() == "ready"


def test_what_is_for_showing_is_cleaned_and_what_goes_back_is_exact() -> None:
    with server(http(json.dumps({"model_path": "a\x1b[2Jb", "n\x07": ["\u202ex"]}).encode())) as client:
        assert client.props() == {"model_path": "ab", "n": ["x"]}
    with server(http(json.dumps({"prompt": "<|im_start|>\tx\x1b\n"}).encode())) as client:
        assert client.apply_template([]) == "<|im_start|>\tx\x1b\n"


@pytest.mark.engine
class TestRealEngine:
    """The same client and the real engine."""

    def test_what_it_tells_of_itself(self, client: EngineClient) -> None:
        assert client.props()["default_generation_settings"]["n_ctx"] == 2048
        assert [slot["n_ctx"] for slot in client.slots()] == [2048]

    def test_tokens_there_and_back(self, client: EngineClient) -> None:
        text = "the value of {x}\n\tHéllo 日本 🙂"
        tokens = client.tokenize(text, add_special=False, parse_special=False)
        assert client.detokenize(tokens) == text
        with_bos = client.tokenize(text, add_special=True, parse_special=False)
        assert with_bos == [1, *tokens]

    def test_a_chat_template(self, client: EngineClient) -> None:
        assert "hello" in client.apply_template([{"role": "user", "content": "hello"}])

    def test_a_completion_is_counted_exactly(self, client: EngineClient) -> None:
        prompt = client.tokenize("the code of the file is " * 40, add_special=True, parse_special=False)
        seen: list[tuple[int, int, float]] = []
        answer = client.complete(
            prompt, 12, cache_prompt=False, ignore_eos=True, on_progress=lambda *a: seen.append(a)
        )
        assert answer.timing.prompt_tokens == len(prompt)
        assert answer.timing.cached_tokens == 0
        assert len(answer.tokens) == answer.timing.generated_tokens == 12
        assert answer.stop_type == "limit"
        assert seen[-1][:2] == (len(prompt), len(prompt))
        timing = answer.timing
        assert timing.prompt_tps
        assert timing.decode_tps
        assert timing.first_token_s is not None
        assert timing.prompt_s <= timing.first_token_s <= timing.wall_s

    @pytest.mark.parametrize("seed", range(6))
    def test_the_streamed_ids_are_the_ids_of_an_unstreamed_answer(
        self, client: EngineClient, seed: int
    ) -> None:
        """The model's nonsense is full of characters in pieces, which the engine leaves out of its stream."""
        import httpx

        prompt = client.tokenize("日本 é 🙂 " * (seed + 1), add_special=True, parse_special=False)
        streamed = client.complete(
            prompt, 40, cache_prompt=False, ignore_eos=True, seed=seed, temperature=3.0
        )
        body = {"prompt": prompt, "n_predict": 40, "ignore_eos": True, "seed": seed, "temperature": 3.0}
        body |= {"cache_prompt": False, "return_tokens": True}
        whole = httpx.post(f"{client.base_url}/completion", json=body, timeout=60, trust_env=False).json()
        assert len(streamed.tokens) == len(whole["tokens"])
        proven = [
            (ours, theirs) for ours, theirs in zip(streamed.tokens, whole["tokens"], strict=True) if ours >= 0
        ]
        assert all(ours == theirs for ours, theirs in proven)

    def test_the_same_prompt_twice_gives_the_same_tokens(self, client: EngineClient) -> None:
        prompt = client.tokenize("is it that", add_special=True, parse_special=False)
        first, second = (client.complete(prompt, 8, cache_prompt=False, ignore_eos=True) for _ in range(2))
        assert first.tokens == second.tokens

    def test_a_stop_word_ends_it(self, client: EngineClient) -> None:
        prompt = client.tokenize("is it that", add_special=True, parse_special=False)

        def answer(*stop: str) -> Completion:
            return client.complete(
                prompt, 40, cache_prompt=False, ignore_eos=True, temperature=2.0, seed=1, stop=stop
            )

        free = answer()
        word = next(character for character in free.text if character.isascii() and character.isalnum())
        stopped = answer(word)
        assert stopped.stop_type == "word"
        assert stopped.text == free.text[: free.text.index(word)]

    def test_a_prompt_from_the_cache_is_told_apart(self, client: EngineClient) -> None:
        prompt = client.tokenize("for was on with as " * 30, add_special=True, parse_special=False)
        client.complete(prompt, 1, cache_prompt=True)
        again = client.complete([*prompt, 300, 301], 1, cache_prompt=True)
        assert again.timing.cached_tokens > 0
        assert again.timing.cached_tokens + 2 <= again.timing.prompt_tokens

    def test_a_prompt_that_does_not_fit_is_refused_with_its_figures(self, client: EngineClient) -> None:
        with pytest.raises(ContextSizeError) as caught:
            client.complete([300] * 3000, 4, cache_prompt=False)
        assert (caught.value.status, caught.value.n_prompt_tokens, caught.value.n_ctx) == (400, 3000, 2048)

    def test_running_out_of_context_is_told(self, client: EngineClient) -> None:
        answer = client.complete([300] * 2040, 100, cache_prompt=False, ignore_eos=True)
        assert answer.truncated
        assert answer.timing.truncated
        assert len(answer.tokens) < 100

    def test_cancel_frees_the_slot(self, client: EngineClient) -> None:
        cancel = Event()
        with pytest.raises(Cancelled):
            client.complete(
                [300] * 50,
                1900,
                cache_prompt=False,
                ignore_eos=True,
                on_token=lambda n: cancel.set(),
                cancel=cancel,
            )
        deadline = time.monotonic() + 5
        while client.slots()[0]["is_processing"] and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not client.slots()[0]["is_processing"]


def trickle(connection: socket.socket, head: bytes) -> None:
    connection.sendall(head)
    with suppress(OSError):
        while True:
            connection.sendall(b"X: y\r\n")
            time.sleep(0.02)


@pytest.mark.parametrize("head", [b"HTTP/1.1 200 OK\r\n\r\n", b"HTTP/1.1 200 OK\r\n"], ids=["body", "head"])
def test_an_answer_that_trickles_in_is_too_late(head: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_TRICKLE", 1)
    with server(lambda connection: trickle(connection, head)) as client:
        began = time.monotonic()
        with (
            EngineClient(client.base_url, timeout_s=0.3) as hasty,
            pytest.raises(RequestError, match="did not answer /tokenize in time"),
        ):
            hasty.tokenize("x", add_special=False, parse_special=False)
        assert time.monotonic() - began < 5


def test_health_that_trickles_in_is_no_health(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_TRICKLE", 1)
    with server(lambda connection: trickle(connection, b"HTTP/1.1 200 OK\r\n")) as client:
        assert client.health(timeout_s=0.3) == "silent"
