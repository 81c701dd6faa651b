"""How the client reaches guarded servers: API key, unix socket, TLS with a private authority, no proxies."""

from __future__ import annotations

import shutil
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from kvtui.core.errors import EngineGone, InputError, RequestError
from kvtui.engines import http as module
from kvtui.engines.llama_server.client import EngineClient

BODY = b'{"status":"ok"}'
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(BODY), BODY)


class Heard:
    """What a server was sent."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.requests: list[bytes] = []


@contextmanager
def serving(listening: socket.socket, *, trickle: bool = False) -> Iterator[Heard]:
    """A server that answers every request with an empty success, or never finishes to."""
    address = listening.getsockname()
    heard = Heard(address[1] if isinstance(address, tuple) else 0)

    def serve() -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            with connection, suppress(OSError):
                heard.requests.append(connection.recv(65536))
                if not trickle:
                    connection.sendall(ANSWER)
                while trickle:
                    connection.sendall(b"HTTP/1.1 200 OK\r\n" if len(heard.requests) < 2 else b"X: y\r\n")
                    heard.requests.append(b"")
                    time.sleep(0.02)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield heard
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        thread.join(10)


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    """A certificate for `localhost` that signs itself, and its key."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("no openssl to make a certificate with")
    pem, key = tmp_path / "ca.pem", tmp_path / "key.pem"
    command = [openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    command += ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-days", "2"]
    subprocess.run([*command, "-keyout", str(key), "-out", str(pem)], check=True, capture_output=True)
    return pem, key


@contextmanager
def tls_server(certificate: tuple[Path, Path], *, trickle: bool = False) -> Iterator[Heard]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    plain = socket.create_server(("127.0.0.1", 0))
    with (
        context.wrap_socket(plain, server_side=True) as listening,
        serving(listening, trickle=trickle) as heard,
    ):
        yield heard


def test_the_api_key_goes_with_every_request_and_no_proxy_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    with (
        serving(socket.create_server(("127.0.0.1", 0))) as heard,
        EngineClient(f"http://127.0.0.1:{heard.port}", api_key="s3cret") as client,
    ):
        assert client.health() == "ready"
        assert client.answer("/props") == {"status": "ok"}
    assert len(heard.requests) == 2
    assert all(b"\r\nauthorization: bearer s3cret\r\n" in request.lower() for request in heard.requests)


@pytest.mark.parametrize("key", ["", "two words", "new\nline", "schlüssel"])
def test_a_key_that_cannot_be_a_header_is_refused(key: str) -> None:
    with pytest.raises(InputError, match="the API key cannot be sent"):
        EngineClient("http://127.0.0.1:1", api_key=key)


def test_a_unix_socket(tmp_path: Path) -> None:
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(tmp_path / "engine.sock"))
    listening.listen()
    with (
        serving(listening) as heard,
        EngineClient("http://localhost", unix_socket=str(tmp_path / "engine.sock")) as client,
    ):
        assert client.answer("/props", {"a": 1}) == {"status": "ok"}
    assert heard.requests[0].startswith(b"POST /props ")


@pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning"
)  # httpcore leaves the socket open
def test_no_unix_socket_there_means_the_engine_is_gone(tmp_path: Path) -> None:
    with (
        EngineClient("http://localhost", unix_socket=str(tmp_path / "none.sock")) as client,
        pytest.raises(EngineGone),
    ):
        client.props()


def test_tls_with_a_private_authority(certificate: tuple[Path, Path]) -> None:
    with tls_server(certificate) as heard:
        url = f"https://localhost:{heard.port}"
        with EngineClient(url, ca_file=str(certificate[0])) as client:
            assert client.health() == "ready"
        with EngineClient(url) as client, pytest.raises(RequestError, match="is not trusted") as caught:
            client.props()
        assert caught.value.kind == "tls"


def test_plain_http_behind_an_https_address_is_said() -> None:
    with (
        serving(socket.create_server(("127.0.0.1", 0))) as heard,
        EngineClient(f"https://127.0.0.1:{heard.port}") as client,
        pytest.raises(RequestError, match="no TLS connection can be made"),
    ):
        client.props()


def test_an_answer_over_tls_that_trickles_in_is_too_late(
    certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_TRICKLE", 1)
    with (
        tls_server(certificate, trickle=True) as heard,
        EngineClient(f"https://localhost:{heard.port}", ca_file=str(certificate[0]), timeout_s=0.5) as client,
    ):
        began = time.monotonic()
        with pytest.raises(RequestError, match="in time"):
            client.props()
        assert time.monotonic() - began < 5


def test_an_authority_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("nothing")
    for path, reason in ((tmp_path / "ca.pem", ""), (tmp_path / "none.pem", "No such file")):
        with pytest.raises(InputError, match=f"{path.name}: {reason}"):
            EngineClient("https://127.0.0.1:1", ca_file=str(path))


def test_a_body_beyond_its_limit_is_refused() -> None:
    with (
        serving(socket.create_server(("127.0.0.1", 0))) as heard,
        EngineClient(f"http://127.0.0.1:{heard.port}", body_limit=10) as client,
    ):
        with pytest.raises(RequestError, match="larger than"):
            client.answer("/props")
        with pytest.raises(RequestError, match="larger than"):
            client.text("/metrics")
