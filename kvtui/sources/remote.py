"""The beginning of a file at an http(s) address, as far as somebody reads it. The only module here that knows httpx.

Byte ranges are asked for in growing steps; a server that ignores them is read from the start and left as soon as
the reader has enough. Nothing that a server says is believed without a bound: steps, bytes, redirects and time.
"""

from __future__ import annotations

import functools
import re
import socket
import ssl
import threading
import time
import zlib
from collections.abc import Iterator
from contextlib import suppress
from types import TracebackType
from typing import Any, Self
from urllib.parse import urljoin, urlsplit

import httpx

from kvtui.core.errors import ModelFileError
from kvtui.core.secrets import shown_address
from kvtui.core.text import clean

FIRST_STEP, LAST_STEP = 1 << 18, 1 << 23
MAX_FETCHED = 64 << 20  # headers of the largest vocabularies take about 20 MiB
MAX_REDIRECTS = 8
TIME_LIMIT_S = 60.0
SILENCE_S = 15.0
_REDIRECTS = (301, 302, 303, 307, 308)
_RANGE = re.compile(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18}|\*)")
_POLL_S = 0.1


@functools.cache
def _trust() -> ssl.SSLContext:
    """Which certificates are believed, loaded once: it takes longer than a request."""
    return httpx.create_ssl_context()


class Connection:
    """Requests that share their connections and `limit_s` seconds altogether. Close it, or use it with `with`."""

    def __init__(self, limit_s: float = TIME_LIMIT_S, silence_s: float = SILENCE_S) -> None:
        self._http = httpx.Client(
            timeout=min(silence_s, limit_s),
            follow_redirects=False,
            verify=_trust(),
            headers={"Accept-Encoding": "identity", "User-Agent": "kvtui"},
        )
        self._deadline = time.monotonic() + limit_s
        self._sockets: list[Any] = []
        self._done = threading.Event()
        self._watch = threading.Thread(target=self._end_when_late, name="address-limit", daemon=True)
        self._watch.start()
        self.fetched = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End all connections."""
        self._done.set()
        self._watch.join()
        self._http.close()

    @property
    def late(self) -> bool:
        """Whether the time is up."""
        return time.monotonic() > self._deadline

    def send(self, url: str, headers: dict[str, str]) -> httpx.Response:
        """An answer whose body is not read yet. Raises httpx.HTTPError."""
        request = self._http.build_request("GET", url, headers=headers, extensions={"trace": self._trace})
        return self._http.send(request, stream=True)

    def _trace(self, event: str, info: dict[str, Any]) -> None:
        if event.endswith(("connect_tcp.complete", "start_tls.complete")):
            self._sockets.append(info["return_value"].get_extra_info("socket"))

    def _end_when_late(self) -> None:
        # An answer that trickles in, its head above all, never runs into the limit for a silence.
        while not self._done.wait(_POLL_S):
            if self.late:
                for each in self._sockets:
                    with suppress(OSError):  # closed already
                        each.shutdown(socket.SHUT_RDWR)
                return


class RemoteFile:
    """A file at `url`, read forward. `size` is what the server says of it, None where it does not.

    `opened` must be called first. All methods raise ModelFileError, which names the address and the reason.
    """

    def __init__(self, connection: Connection, url: str) -> None:
        self.address = shown_address(url)
        self.size: int | None = None
        self.ranged = True
        self._connection = connection
        self._url = url
        self._at = 0
        self._began = 0
        self._step = FIRST_STEP
        self._buffer = b""
        self._stream: Iterator[bytes] | None = None
        self._response: httpx.Response | None = None

    def opened(self) -> Self:
        """Ask for the first bytes, following redirects."""
        for _ in range(MAX_REDIRECTS + 1):
            response = self._ask()
            if response.status_code not in _REDIRECTS:
                self._begin(response)
                return self
            target = response.headers.get("Location")
            response.close()
            self._follow(target)
        raise self._error(f"more than {MAX_REDIRECTS} redirects")

    def read(self, n: int, /) -> bytes:
        """Up to `n` of the next bytes; empty at the end of the file."""
        while not self._buffer:
            piece = self._next_piece()
            if piece is None:
                return b""
            self._buffer = piece
        taken, self._buffer = self._buffer[:n], self._buffer[n:]
        return taken

    def close(self) -> None:
        """Leave the rest unread."""
        if self._response is not None:
            self._response.close()
            self._response = self._stream = None

    def _next_piece(self) -> bytes | None:
        """More of the file, None at its end."""
        if self._stream is not None:
            piece = self._pull(self._stream)
            if piece is not None:
                return piece
            self.close()
            if not self.ranged:
                return None
            if self._at == self._began:
                raise self._error("the server sends none of the bytes that it promises")
        if not self.ranged or (self.size is not None and self._at >= self.size):
            return None
        response = self._ask()
        if response.status_code == 416:
            response.close()
            return None
        self._begin(response)
        return b""

    def _pull(self, stream: Iterator[bytes]) -> bytes | None:
        try:
            piece = next(stream, None)
        except (httpx.HTTPError, httpx.StreamError) as error:
            raise self._trouble(error) from error
        except zlib.error as error:
            raise self._error("its compressed data is damaged") from error
        if self._connection.late:  # a body without a length looks whole when it is cut off
            raise self._error("did not answer in time")
        if piece:
            self._at += len(piece)
            self._connection.fetched += len(piece)
            if self._connection.fetched > MAX_FETCHED:
                raise self._error(f"its header is longer than {MAX_FETCHED >> 20} MiB")
        return piece

    def _ask(self) -> httpx.Response:
        last = self._at + self._step - 1
        try:
            return self._connection.send(self._url, {"Range": f"bytes={self._at}-{last}"})
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
            raise self._trouble(error) from error

    def _begin(self, response: httpx.Response) -> None:
        """Take the body of an answer as the bytes from here on."""
        self._response = response
        self._began = self._at
        try:
            if response.status_code == 206:
                self._stream = self._range(response)
            elif response.status_code == 200 and self._at == 0:
                self.ranged = False
                self._stream = self._whole(response)
            else:
                raise self._refused(response.status_code)
        except ModelFileError:
            self.close()
            raise

    def _range(self, response: httpx.Response) -> Iterator[bytes]:
        match = _RANGE.fullmatch(response.headers.get("Content-Range", ""))
        encoded = response.headers.get("Content-Encoding", "identity").lower() != "identity"
        if match is None or encoded or int(match[1]) != self._at or int(match[2]) < self._at:
            raise self._error("the server answers with other bytes than asked for")
        told = None if match[3] == "*" else int(match[3])
        if self._at and told != self.size:
            raise self._error("the server changes what it says of the file's size")
        self.size = told
        asked = min(self._step, int(match[2]) - self._at + 1)
        self._step = min(self._step * 2, LAST_STEP)
        if response.headers.get("Content-Length") == str(asked):
            return response.iter_raw()  # to its end, so that the connection serves for the next range too
        return _at_most(response.iter_raw(), asked)

    def _whole(self, response: httpx.Response) -> Iterator[bytes]:
        encoding = response.headers.get("Content-Encoding", "identity").lower()
        if encoding in ("gzip", "deflate"):
            return _inflated(response.iter_raw(), 47)
        if encoding != "identity":
            raise self._error(f"the server sends it compressed ({clean(encoding, 20)})")
        length = response.headers.get("Content-Length", "")
        self.size = int(length) if re.fullmatch(r"\d{1,18}", length, re.ASCII) else None
        return response.iter_raw()

    def _follow(self, target: str | None) -> None:
        try:
            url = urljoin(self._url, target or "")
            scheme = urlsplit(url).scheme
        except ValueError:
            raise self._error("redirects to what is no address") from None
        if not target or scheme not in ("http", "https"):
            raise self._error("redirects to nowhere")
        if scheme == "http" and urlsplit(self._url).scheme == "https":
            raise self._error("redirects from https to http")
        self._url = url

    def _refused(self, status: int) -> ModelFileError:
        if status == 200:
            return self._error("the server stops serving ranges")
        if status in (401, 403):
            return self._error(f"the server wants a login ({status})", "download the file and give its path")
        if status in (404, 410):
            return self._error(f"no such file on the server ({status})", "check the address")
        if status == 416:
            return self._error("the file is empty")
        hint = "try again later" if status >= 500 or status == 429 else ""
        return self._error(f"the server answers with status {status}", hint)

    def _trouble(self, error: Exception) -> ModelFileError:
        if self._connection.late or isinstance(error, httpx.TimeoutException):
            return self._error("did not answer in time", "try again, or download the file and give its path")
        text = clean(str(error), 200)
        if "CERTIFICATE_VERIFY_FAILED" in text or "SSL" in text:
            return self._error(f"no secure connection: {text}")
        if isinstance(error, httpx.ConnectError):
            return self._error(f"no connection to the server: {text}")
        return self._error(f"the answer cannot be read: {text or type(error).__name__}")

    def _error(self, reason: str, hint: str = "") -> ModelFileError:
        return ModelFileError(self.address, reason, hint=hint)


def _at_most(pieces: Iterator[bytes], n: int) -> Iterator[bytes]:
    """The first `n` bytes: a server may send more than it was asked for."""
    for piece in pieces:
        yield piece[:n]
        n -= len(piece)
        if n <= 0:
            return


def _inflated(pieces: Iterator[bytes], wbits: int) -> Iterator[bytes]:
    """Decompressed bytes, at most as many at a time as a step has, whatever a piece unfolds to."""
    inflate = zlib.decompressobj(wbits)
    for piece in pieces:
        left = piece
        while left and not inflate.eof:
            yield inflate.decompress(left, FIRST_STEP)
            left = inflate.unconsumed_tail
