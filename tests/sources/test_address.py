"""Models at an address: only the header is fetched, and nothing that a server does costs more than that."""

from __future__ import annotations

import gzip
import socket
import ssl
import subprocess
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from kvtui.core.errors import InputError, ModelFileError
from kvtui.core.secrets import shown_address
from kvtui.sources import address, remote
from kvtui.sources.address import open_address
from tests.model.gguf_bytes import gguf, model, tensor
from tests.sources.servers import Answer, Request, head, ranges, serving, status, whole

WORDS = {"tokenizer.ggml.tokens": [f"token-{i}" for i in range(60_000)]}
HEADER = gguf(model("llama", block_count=2) | WORDS, [tensor("blk.0.w", (1 << 20, 8), 0, 0)])
TOTAL = len(HEADER) + -len(HEADER) % 32 + (4 << 23)
FILE = HEADER + bytes(TOTAL - len(HEADER))


def test_only_the_header_is_fetched() -> None:
    assert len(HEADER) > 3 * remote.FIRST_STEP
    with serving(ranges(FILE)) as server:
        source = open_address(server.url("/a/m.gguf?key=secret"))
    assert source.header.n_layer == 2
    assert source.header.file_bytes == TOTAL
    assert source.header.path == server.url("/a/m.gguf")
    assert source.path is None
    fetched = source.fetched_bytes or 0
    assert len(HEADER) <= fetched < 2 * len(HEADER)
    assert source.notes == (f"fetched {fetched / 2**20:.1f} MiB of {TOTAL / 2**20:.1f} MiB",)
    asked = [r.range for r in server.requests]
    assert asked[0] == (0, remote.FIRST_STEP - 1)
    sizes = [last - first + 1 for first, last in asked]
    assert sizes == [remote.FIRST_STEP << i for i in range(len(sizes))]
    assert [first for first, _ in asked[1:]] == [last + 1 for _, last in asked[:-1]]
    assert all(r.headers["accept-encoding"] == "identity" for r in server.requests)


def test_a_server_without_ranges_is_left_when_the_header_is_read() -> None:
    with serving(whole(FILE)) as server:
        source = open_address(server.url())
    assert source.header.file_bytes == TOTAL
    assert "does not serve ranges" in source.notes[1]
    # What fits into the buffers of a connection may be on its way.
    assert server.sent < TOTAL
    assert (source.fetched_bytes or 0) < len(HEADER) + (1 << 20)
    assert len(server.requests) == 1


def test_one_connection_serves_all_ranges() -> None:
    connections = set()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            connections.add(self.client_address)
            first, last = Request("", {"range": self.headers["Range"]}).range
            body = FILE[first : last + 1]
            self.send_response(206)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Content-Range", f"bytes {first}-{first + len(body) - 1}/{TOTAL}")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            assert open_address(f"http://127.0.0.1:{server.server_port}/m.gguf").header.n_layer == 2
        finally:
            server.shutdown()
            thread.join()
    assert len(connections) == 1


def test_a_stream_without_a_length() -> None:
    def answer(_: Request, out: socket.socket) -> None:
        out.sendall(head("200 OK", Transfer_Encoding="chunked"))
        for start in range(0, len(HEADER), 5000):
            piece = HEADER[start : start + 5000]
            out.sendall(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
        out.sendall(b"0\r\n\r\n")

    with serving(answer) as server:
        source = open_address(server.url())
    assert source.header.file_bytes == TOTAL
    assert "does not tell the file's size" in source.notes[0]


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
def test_compressed_although_not_asked_for(encoding: str) -> None:
    packed = gzip.compress(HEADER)
    with serving(whole(packed, Content_Encoding=encoding)) as server:
        assert open_address(server.url()).header.n_layer == 2


def test_redirects_across_hosts() -> None:
    with serving(ranges(FILE)) as last:

        def answer(request: Request, out: socket.socket) -> None:
            target = (
                "/again" if request.path == "/m.gguf" else f"http://localhost:{last.port}/cdn/x?sig=secret"
            )
            out.sendall(head("302 Found", Location=target, Content_Length=0))

        with serving(answer) as first:
            source = open_address(first.url())
    assert source.header.path == first.url()
    assert [r.path for r in first.requests] == ["/m.gguf", "/again"]
    assert {r.path for r in last.requests} == {"/cdn/x?sig=secret"}
    assert "secret" not in repr(source.notes)


def lying(**changes: Any) -> Answer:
    """Ranges, with one thing wrong."""

    def answer(request: Request, out: socket.socket) -> None:
        first, last = request.range
        body = changes.get("body", FILE[first : last + 1])
        said = changes.get("said", "bytes {first}-{last}/{total}").format(first=first, last=last, total=TOTAL)
        headers = {"Content_Length": changes.get("length", len(body)), "Content_Range": said}
        out.sendall(head("206 Partial Content", **(headers | changes.get("headers", {}))) + body)

    return answer


def stops_serving_ranges(request: Request, out: socket.socket) -> None:
    (ranges if request.range[0] == 0 else whole)(FILE)(request, out)


def changes_size(request: Request, out: socket.socket) -> None:
    ranges(FILE, TOTAL + request.range[0])(request, out)


def broken_off(request: Request, out: socket.socket) -> None:
    out.sendall(head("200 OK", Content_Length=TOTAL) + HEADER[:1000])


LIES: dict[str, tuple[Answer, str]] = {
    "other bytes": (lying(said="bytes 7-{last}/{total}"), "other bytes than asked for"),
    "no range": (lying(said=""), "other bytes than asked for"),
    "backwards": (lying(said="bytes 0--1/5"), "other bytes than asked for"),
    "endless number": (lying(said="bytes 0-" + "9" * 5000 + "/*"), "other bytes than asked for"),
    "compressed range": (lying(headers={"Content_Encoding": "gzip"}), "other bytes than asked for"),
    "nothing": (lying(body=b""), "none of the bytes"),
    "too short a file": (ranges(FILE, len(HEADER) + 100), "truncated: .* of tensor data are missing"),
    "shorter than its header": (ranges(FILE, 5000), "absurd number of|truncated"),
    "changes size": (changes_size, "changes what it says"),
    "ranges, then not": (stops_serving_ranges, "stops serving ranges"),
    "broken off": (broken_off, "cannot be read"),
    "damaged compression": (whole(b"no gzip at all", Content_Encoding="gzip"), "compressed data is damaged"),
    "unknown compression": (whole(b"x", Content_Encoding="br"), r"compressed \(br\)"),
    "cut compression": (whole(gzip.compress(HEADER)[:5000], Content_Encoding="gzip"), "ends early"),
    "a page": (whole(b"<html>please log in</html>"), "not a GGUF file"),
    "empty": (whole(b""), "the file is empty"),
    "empty range": (status("416 Range Not Satisfiable"), "the file is empty"),
    "no HTTP": (lambda _, out: out.sendall(b"\0\1\2 what?\r\n\r\n"), "cannot be read"),
    "login": (status("401 Unauthorized"), r"wants a login \(401\)"),
    "forbidden": (status("403 Forbidden"), r"wants a login \(403\)"),
    "absent": (status("404 Not Found"), r"no such file on the server \(404\)"),
    "broken server": (status("503 Service Unavailable"), "status 503"),
    "teapot": (status("418 Teapot"), "status 418"),
    "circle": (status("302 Found", Location="/m.gguf"), "more than 8 redirects"),
    "nowhere": (status("302 Found"), "redirects to nowhere"),
    "no address": (status("302 Found", Location="//[x"), "what is no address"),
    "strange port": (status("302 Found", Location="http://[::1"), "cannot be read"),
    "endless head": (
        lambda _, out: out.sendall(b"HTTP/1.1 200 OK\r\nX: " + b"x" * 200_000),
        "cannot be read",
    ),
    "into files": (status("302 Found", Location="file:///etc/passwd"), "redirects to nowhere"),
}


@pytest.mark.parametrize("name", LIES)
def test_what_servers_do_wrong(name: str) -> None:
    answer, reason = LIES[name]
    with serving(answer) as server, pytest.raises(ModelFileError, match=reason) as caught:
        open_address(server.url("/m.gguf?key=secret"))
    assert caught.value.path == server.url()
    assert "secret" not in caught.value.line()
    assert "\n" not in caught.value.line()


def test_more_than_asked_for_is_not_taken() -> None:
    endless = FILE + bytes(64 << 20)

    def answer(request: Request, out: socket.socket) -> None:
        first, last = request.range
        said = f"bytes {first}-{last}/{TOTAL}"
        out.sendall(head("206 Partial Content", Content_Range=said))
        for start in range(first, len(endless), 1 << 16):
            out.sendall(endless[start : start + (1 << 16)])

    with serving(answer) as server:
        source = open_address(server.url())
    assert (source.fetched_bytes or 0) < 2 * len(HEADER)


def test_a_header_without_end_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "MAX_FETCHED", 1 << 20)
    with serving(ranges(FILE)) as server, pytest.raises(ModelFileError, match="longer than 1 MiB"):
        open_address(server.url())


@pytest.mark.parametrize("part", ["head", "body", "silent"])
def test_a_server_that_trickles_ends_in_time(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote.Connection.__init__, "__defaults__", (0.6, 5.0))

    def answer(_: Request, out: socket.socket) -> None:
        if part == "body":
            out.sendall(head("200 OK", Content_Length=TOTAL))
        line = b"HTTP/1.1 200 OK\r\nX: " if part == "head" else HEADER
        for byte in b"" if part == "silent" else line + b"x" * 1000:
            out.sendall(bytes([byte]))
            time.sleep(0.05)
        time.sleep(0.8)

    started = time.monotonic()
    with serving(answer) as server:
        with pytest.raises(ModelFileError, match="did not answer in time"):
            open_address(server.url())
        assert time.monotonic() - started < 5


def test_split_models_are_summed() -> None:
    metadata = model("llama") | {"split.count": 2}
    parts = {
        "/m-00001-of-00002.gguf": gguf(metadata, [tensor("blk.0.w", (32,), 0, 0)]),
        "/m-00002-of-00002.gguf": gguf({"split.no": 1}, [tensor("blk.1.w", (32, 2), 0, 0)]),
    }

    def answer(request: Request, out: socket.socket) -> None:
        data = parts.get(request.path.partition("?")[0])
        (ranges(data) if data else status("404 Not Found"))(request, out)

    with serving(answer) as server:
        source = open_address(server.url("/m-00002-of-00002.gguf?key=1"))
        assert (source.header.n_parts, source.header.tensor_bytes) == (2, 32 * 4 * 3)
        assert all(r.path.endswith("?key=1") for r in server.requests)
        del parts["/m-00002-of-00002.gguf"]
        with pytest.raises(ModelFileError, match=r"00002-of-00002.gguf: no such file on the server"):
            open_address(server.url("/m-00001-of-00002.gguf"))


def test_addresses_that_are_none() -> None:
    for url in ("ftp://h/x.gguf", "file:///etc/passwd", "http://", "http://[::1", "s3://b/x.gguf"):
        with pytest.raises(InputError, match="address"):
            open_address(url)
    with pytest.raises(InputError, match="99,999 parts"):
        open_address("http://h/m-00001-of-99999.gguf")
    with pytest.raises(ModelFileError, match="no connection to the server"):
        open_address("http://127.0.0.1:1/m.gguf")
    with pytest.raises(ModelFileError):
        open_address("http://127.0.0.1:99999/m.gguf")


def test_a_page_of_the_hub_stands_for_its_file() -> None:
    page = "https://huggingface.co/x/y/blob/main/sub/m.gguf?download=true"
    assert address._direct(page) == "https://huggingface.co/x/y/resolve/main/sub/m.gguf?download=true"
    for other in (
        "https://huggingface.co/x/y/resolve/main/m.gguf",
        "https://example.org/x/y/blob/main/m.gguf",
    ):
        assert address._direct(other) == other


def test_names_and_passwords_are_not_shown() -> None:
    assert shown_address("https://me:pw@h.org:8/a.gguf?t=1#f") == "https://h.org:8/a.gguf"
    with serving(status("404 Not Found")) as server, pytest.raises(ModelFileError) as caught:
        open_address(f"http://me:pw@127.0.0.1:{server.port}/m.gguf")
    assert "pw" not in caught.value.line()


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    path = tmp_path / "self-signed.pem"
    made = subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "1",
         "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-keyout", path, "-out", tmp_path / "c"],
        capture_output=True, check=False,
    )  # fmt: skip
    if made.returncode:
        pytest.skip("openssl makes no certificate here")
    path.write_bytes(path.read_bytes() + (tmp_path / "c").read_bytes())
    return path


def test_secure_connections(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with serving(ranges(FILE), context) as server:
        url = f"https://localhost:{server.port}/m.gguf"
        with pytest.raises(ModelFileError, match=r"no secure connection: .*CERTIFICATE_VERIFY_FAILED"):
            open_address(url)
        monkeypatch.setattr(remote, "_trust", lambda: ssl.create_default_context(cafile=certificate))
        assert open_address(url).header.n_layer == 2
    downgrade = status("302 Found", Location="http://localhost:1/m.gguf")
    with serving(downgrade, context) as server, pytest.raises(ModelFileError, match="from https to http"):
        open_address(f"https://localhost:{server.port}/m.gguf")


@pytest.mark.parametrize(
    "url",
    [
        "http://me:secret@[::1/m.gguf",
        "ftp://me:secret@h/m.gguf?t=secret",
        "http://me:secret@/x",
        "://a:secret@",
    ],
)
def test_what_is_no_address_is_named_without_its_secrets(url: str) -> None:
    with pytest.raises(InputError, match="not an") as caught:
        open_address(url)
    assert "secret" not in caught.value.line()
