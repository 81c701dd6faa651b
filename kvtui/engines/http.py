"""HTTP to an engine: bounded, cancellable, every failure one of our errors. The one that knows httpx.

Answers are untrusted: their size is bounded, what is shown is cleaned, and rubbish is a RequestError.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from threading import Event
from types import TracebackType
from typing import Any, Literal, Self

import httpx

from kvtui.core.errors import EngineGone, InputError, RequestError
from kvtui.core.text import clean
from kvtui.engines.cancelling import Cancelling
from kvtui.engines.refusals import refusal
from kvtui.engines.stream import event_data, json_object, plain

Health = Literal["ready", "loading", "silent", "failing"]

_BODY_LIMIT = 64 << 20
_REFUSAL_LIMIT = 1 << 16
_LAST_PORT = 65535
_DEEPEST = 64
_SHORTEST_KEY = 8
_TRICKLE = 4
"""Times the longest silence that a short answer may take as a whole."""


class EngineHttp:
    """One engine at `base_url`. `stall_s`: the longest silence of a working engine before it counts as hung.

    `api_key` goes with every request as a bearer token. `ca_file` (PEM) is trusted in place of the system's
    authorities where `base_url` is https. `unix_socket` is the path of the socket to connect to, `base_url` then
    only names the host. `pinned_certificate` (PEM) is the one certificate that the server may have, whatever name it
    is for: that of a server we started. No proxy of the environment is ever used. `body_limit` bounds an answer, in
    bytes, and `limit_s` the seconds that a short one may take as a whole (else four times `timeout_s`).

    May be used by several threads at once. Every method but `health` raises RequestError (refused, rubbish,
    too late, a certificate that is not trusted), EngineGone (connection refused or lost) or Cancelled.
    Raises InputError when `base_url`, `ca_file`, `pinned_certificate` or `api_key` cannot be used.
    """

    def __init__(
        self,
        base_url: str,
        *,
        timeout_s: float = 30.0,
        stall_s: float = 900.0,
        api_key: str | None = None,
        ca_file: str | None = None,
        pinned_certificate: str | None = None,
        unix_socket: str | None = None,
        body_limit: int = _BODY_LIMIT,
        limit_s: float | None = None,
    ) -> None:
        if not is_address(base_url):
            raise InputError(f"{clean(base_url, 200)}: not an address", hint="http://HOST:PORT is wanted")
        self.base_url = base_url
        self._limit_s = timeout_s * _TRICKLE if limit_s is None else limit_s
        self._body_limit = body_limit
        self._stall = httpx.Timeout(timeout_s, read=stall_s)
        headers = {"Accept-Encoding": "identity"}
        if api_key is not None:
            headers["Authorization"] = f"Bearer {_usable_key(api_key)}"
        self._key = (api_key or "").encode()
        self._http = httpx.Client(
            base_url=base_url,
            timeout=httpx.Timeout(timeout_s, connect=min(timeout_s, 5.0)),
            trust_env=False,
            transport=httpx.HTTPTransport(
                verify=_tls(base_url, ca_file, pinned_certificate),
                trust_env=False,
                uds=unix_socket,
                limits=httpx.Limits(max_keepalive_connections=0),
            ),
            headers=headers,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections."""
        self._http.close()

    def health(self, timeout_s: float = 1.0, path: str = "/health") -> Health:
        """How `path` is answered: `ready`, `loading` (503), `silent` (nobody answers) or `failing` (any other answer).

        Never raises.
        """
        try:
            with (
                Cancelling(None, timeout_s * _TRICKLE) as limited,
                self._http.stream(
                    "GET", path, timeout=timeout_s, extensions={"trace": limited.trace}
                ) as response,
            ):
                status = response.status_code
        except (httpx.HTTPError, httpx.StreamError, UnicodeError):
            return "silent"
        return "ready" if status == 200 else "loading" if status == 503 else "failing"

    def answer(self, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """The JSON object at `path`, cleaned: GET, or POST where there is a `body`."""
        found: dict[str, Any] = cleaned(self.ask("GET" if body is None else "POST", path, body))
        return found

    def text(self, path: str) -> str:
        """The text at `path`, cleaned, its line breaks kept."""
        with self._open("GET", path, None, None, None, self._limit_s) as (response, cancelling):
            read = self._read(response, self._body_limit, path)
            if cancelling.late:
                raise _too_late(path)
        return plain(read.decode("utf-8", "replace"))

    def ask(self, method: str, path: str, body: dict[str, Any] | None = None, *, wanted: type = dict) -> Any:
        """The JSON at `path`, not cleaned; `wanted` is the kind of value it must be."""
        with self._open(method, path, body, None, None, self._limit_s) as (response, cancelling):
            read = self._read(response, self._body_limit, path)
            if cancelling.late:  # a body without a length looks whole when it is cut off
                raise _too_late(path)
            answer = json_object(read, path)
        if not isinstance(answer, wanted):
            raise RequestError(f"the engine's {path} answered with the wrong kind of JSON")
        return answer

    @contextmanager
    def events(
        self,
        path: str,
        body: dict[str, Any],
        cancel: Event | None,
        split: Callable[[Iterable[bytes]], Iterator[bytes]] = event_data,
    ) -> Iterator[Iterator[bytes]]:
        """What a POST to `path` is answered with bit by bit, the payloads taken out of the stream by `split`."""
        with self._open("POST", path, body, cancel, self._stall) as (response, cancelling):
            yield _checked(split(response.iter_raw()), cancelling)

    def _read(self, response: httpx.Response, limit: int, path: str) -> bytes:
        """The body without our key: a server that says it back would have it shown and kept."""
        body = _bounded(response, limit, path)
        return body.replace(self._key, b"***") if len(self._key) >= _SHORTEST_KEY else body

    @contextmanager
    def _open(
        self,
        method: str,
        path: str,
        body: dict[str, Any] | None,
        cancel: Event | None,
        timeout: httpx.Timeout | None,
        limit_s: float | None = None,
    ) -> Iterator[tuple[httpx.Response, Cancelling]]:
        """An answer with status 200, everything else translated to our errors."""
        with Cancelling(cancel, limit_s) as cancelling:
            try:
                with self._http.stream(
                    method,
                    path,
                    json=body,
                    timeout=self._http.timeout if timeout is None else timeout,
                    extensions={"trace": cancelling.trace},
                ) as response:
                    if response.status_code != 200:
                        raise refusal(response.status_code, self._read(response, _REFUSAL_LIMIT, path))
                    yield response, cancelling
            except (httpx.HTTPError, httpx.StreamError) as error:
                cancelling.check()
                if cancelling.late or isinstance(error, httpx.TimeoutException):
                    raise _too_late(path) from error
                if isinstance(error, httpx.ConnectError) and "SSL" in str(error):
                    raise _not_trusted(self.base_url, error) from error
                if isinstance(error, httpx.TransportError) and not _is_rubbish(error):
                    raise EngineGone(f"the connection to the engine broke at {path}") from error
                raise RequestError(f"the engine's answer to {path} cannot be read") from error
            except UnicodeError as error:  # from the resolver, of a name with an empty or endless part
                raise EngineGone(f"{clean(self.base_url, 200)}: no host can be called so") from error


def is_address(url: str) -> bool:
    """Whether `url` is one at which an engine could be asked: http or https, a host, a port that there can be."""
    try:
        parts = httpx.URL(url)
    except (httpx.InvalidURL, ValueError):
        return False
    return parts.scheme in ("http", "https") and bool(parts.host) and (parts.port or 0) <= _LAST_PORT


def _checked(payloads: Iterator[bytes], cancelling: Cancelling) -> Iterator[bytes]:
    """A stream that ends because it was cancelled looks whole."""
    for data in payloads:
        cancelling.check()
        yield data
    cancelling.check()


def _tls(base_url: str, ca_file: str | None, pinned: str | None) -> ssl.SSLContext:
    if not base_url.lower().startswith("https:"):
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # never used: loading certificates takes 40 ms
    try:
        context = ssl.create_default_context(cafile=pinned or ca_file)
        if pinned is not None:
            context.check_hostname = False
            context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # it need not be an authority's
        return context
    except (OSError, ValueError) as error:  # a file that is no PEM is an SSLError, which is an OSError
        reason = getattr(error, "strerror", None) or "holds no certificate"
        raise InputError(
            f"{clean(str(pinned or ca_file))}: {clean(reason, 200)}", hint="a PEM file is wanted"
        ) from error


def _usable_key(key: str) -> str:
    if not key or not key.isascii() or not key.isprintable() or " " in key:
        raise InputError("the API key cannot be sent", hint="printable ASCII without blanks is wanted")
    return key


def _not_trusted(base_url: str, error: Exception) -> RequestError:
    if "CERTIFICATE_VERIFY_FAILED" in str(error):
        reason = clean(str(error).partition("verify failed: ")[2].partition(" (_ssl")[0], 120)
        return RequestError(
            f"{clean(base_url)}: its certificate is not trusted" + (f" ({reason})" if reason else ""),
            kind="tls",
        )
    return RequestError(f"{clean(base_url)}: no TLS connection can be made", kind="tls")


def _too_late(path: str) -> RequestError:
    return RequestError(f"the engine did not answer {path} in time", kind="timeout")


def _is_rubbish(error: httpx.HTTPError) -> bool:
    """An answer that is no HTTP, told apart from a connection that ended before its answer did."""
    return isinstance(error, httpx.RemoteProtocolError) and not (
        "disconnected" in str(error) or "peer closed" in str(error)
    )


def _bounded(response: httpx.Response, limit: int, path: str) -> bytes:
    body = bytearray()
    for chunk in response.iter_raw():
        body += chunk
        if len(body) > limit:
            raise RequestError(f"the engine's answer to {path} is larger than {limit >> 10} KiB")
    return bytes(body)


def cleaned(value: Any, depth: int = 0) -> Any:
    """`value` with every text in it fit to be shown. Raises RequestError where it is nested beyond all answers."""
    if isinstance(value, str):
        return plain(value)
    if depth > _DEEPEST:
        raise RequestError("the engine's answer is nested too deeply")
    if isinstance(value, list):
        return [cleaned(item, depth + 1) for item in value]
    if isinstance(value, dict):
        return {plain(str(key)): cleaned(item, depth + 1) for key, item in value.items()}
    return value
