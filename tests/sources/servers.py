"""Web servers that do as they are told, byte by byte, on a port of their own."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

Answer = Callable[["Request", socket.socket], None]


@dataclass(frozen=True)
class Request:
    path: str
    headers: dict[str, str]

    @property
    def range(self) -> tuple[int, int]:
        first, last = self.headers["range"].removeprefix("bytes=").split("-")
        return int(first), int(last)


@dataclass
class Server:
    """`requests` are those that came, in order; `sent` counts the bytes that were taken from us."""

    port: int
    requests: list[Request] = field(default_factory=list)
    sent: int = 0

    def url(self, path: str = "/m.gguf") -> str:
        return f"http://127.0.0.1:{self.port}{path}"


@contextmanager
def serving(answer: Answer, secure: ssl.SSLContext | None = None) -> Iterator[Server]:
    """A server that answers every request with `answer`, one request per connection."""
    listener = socket.create_server(("127.0.0.1", 0))
    server = Server(listener.getsockname()[1])
    threads: list[threading.Thread] = []
    open_sockets: list[socket.socket] = []

    def talk(plain: socket.socket) -> None:
        with plain, suppress(OSError, ValueError):
            connection = secure.wrap_socket(plain, server_side=True) if secure else plain
            data = b""
            while b"\r\n\r\n" not in data:
                more = connection.recv(4096)
                if not more:
                    return
                data += more
            first, *rest = data.decode("latin-1").split("\r\n\r\n")[0].split("\r\n")
            headers = {k.strip().lower(): v.strip() for k, _, v in (line.partition(":") for line in rest)}
            request = Request(first.split(" ")[1], headers)
            server.requests.append(request)
            answer(request, _Counted(connection, server))  # type: ignore[arg-type]
            connection.close()

    def accept() -> None:
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                open_sockets.append(connection)
                threads.append(threading.Thread(target=talk, args=(connection,), daemon=True))
                threads[-1].start()

    main = threading.Thread(target=accept, daemon=True)
    main.start()
    try:
        yield server
    finally:
        for each in (listener, *open_sockets):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        for thread in (main, *threads):
            thread.join(10)


class _Counted:
    def __init__(self, connection: socket.socket, server: Server) -> None:
        self._connection, self._server = connection, server

    def sendall(self, data: bytes) -> None:
        self._connection.sendall(data)
        self._server.sent += len(data)


def head(status: str, **headers: object) -> bytes:
    lines = [
        f"HTTP/1.1 {status}",
        *(f"{k.replace('_', '-')}: {v}" for k, v in headers.items()),
        "Connection: close",
    ]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def ranges(data: bytes, total: int | str | None = None) -> Answer:
    """A server that does ranges as it should; `total` is what it says of the file's size."""

    def answer(request: Request, out: socket.socket) -> None:
        first, last = request.range
        body = data[first : last + 1]
        if not body:
            out.sendall(head("416 Range Not Satisfiable", Content_Length=0))
            return
        said = f"bytes {first}-{first + len(body) - 1}/{len(data) if total is None else total}"
        out.sendall(head("206 Partial Content", Content_Length=len(body), Content_Range=said) + body)

    return answer


def whole(data: bytes, **headers: object) -> Answer:
    """A server that ignores ranges."""

    def answer(_: Request, out: socket.socket) -> None:
        out.sendall(head("200 OK", **({"Content_Length": len(data)} | headers)))
        for start in range(0, len(data), 1 << 16):
            out.sendall(data[start : start + (1 << 16)])

    return answer


def status(line: str, **headers: object) -> Answer:
    """A server with nothing but a status."""
    return lambda _, out: out.sendall(head(line, **({"Content_Length": 0} | headers)))
