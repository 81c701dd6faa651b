"""How a launched server is reached: the address it listens on, its key, its certificate."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kvtui.core.errors import InputError
from kvtui.core.text import clean

if TYPE_CHECKING:
    from kvtui.engines.llama_server.client import EngineClient

LOOPBACK = "127.0.0.1"
_ANY = {"0.0.0.0": LOOPBACK, "::": "::1"}  # noqa: S104 - what the operator told the server
_FIELDS = {
    "--host": "host",
    "--api-prefix": "prefix",
    "--ssl-cert-file": "certificate",
    "--ssl-key-file": "certificate_key",
}
_KEY_LIMIT = 1 << 16


@dataclass(frozen=True, slots=True)
class Reach:
    """`host` is what the server is told to listen on: an address, or the path of a unix socket (`.sock`).

    `certificate` and `certificate_key` are the server's own files (PEM). `api_key` is never recorded: the server gets
    it by its environment.
    """

    host: str = LOOPBACK
    prefix: str = ""
    certificate: str | None = None
    certificate_key: str | None = None
    api_key: str | None = None

    @property
    def unix_socket(self) -> str | None:
        """The path of the socket, None where it listens on a port."""
        return self.host if self.host.endswith(".sock") else None

    def is_there(self) -> bool:
        """False while its unix socket does not exist; a port is always there to be tried."""
        return self.unix_socket is None or os.path.exists(self.unix_socket)

    def options(self) -> tuple[str, ...]:
        """What llama-server is told of it, the port left out."""
        given = {field: getattr(self, field) for field in _FIELDS.values()}
        pairs = ((option, given[field]) for option, field in _FIELDS.items() if given[field])
        return tuple(word for pair in pairs for word in pair)

    def environment(self) -> dict[str, str]:
        """What is passed on beside the recorded environment."""
        return {} if self.api_key is None else {"LLAMA_API_KEY": self.api_key}

    def base_url(self, port: int) -> str:
        """Where it answers, from this machine."""
        scheme = "https" if self.certificate else "http"
        if self.unix_socket is not None:
            return f"{scheme}://localhost{self.prefix}"
        host = _ANY.get(self.host, self.host)
        return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}{self.prefix}"

    def client(self, port: int) -> EngineClient:
        """Requests to it. Raises InputError for a certificate or key that cannot be used."""
        from kvtui.engines.llama_server.client import EngineClient

        return EngineClient(
            self.base_url(port),
            api_key=self.api_key,
            pinned_certificate=self.certificate,
            unix_socket=self.unix_socket,
        )


def take_key(extra: Sequence[str]) -> tuple[tuple[str, ...], str | None]:
    """The operator's engine options without the API key, and the key (the first of several).

    Raises InputError: no key behind the option, a file that cannot be read or holds none.
    """
    kept: list[str] = []
    key: str | None = None
    words = iter(extra)
    for word in words:
        if word not in ("--api-key", "--api-key-file"):
            kept.append(word)
            continue
        value = next(words, "")
        given = value.split(",")[0] if word == "--api-key" else _first_line(value)
        if not given:
            raise InputError(f"{word}: no key", hint="give the key behind it")
        key = key or given
    return tuple(kept), key


def take_reach(extra: Sequence[str], api_key: str | None = None) -> tuple[tuple[str, ...], Reach]:
    """The operator's engine options without those that say where the server listens, and what they say.

    Raises InputError for a port (kvtui takes a free one), several hosts, or an option without its value.
    """
    kept: list[str] = []
    given: dict[str, str] = {}
    words = iter(extra)
    for word in words:
        if word == "--port":
            raise InputError("--port: kvtui takes a free one for every run", hint="leave it out")
        if word not in _FIELDS:
            kept.append(word)
            continue
        value = next(words, "")
        if not value or "," in value:
            raise InputError(f"{word}: {clean(value, 80) or 'nothing'} cannot be used", hint="give one value")
        given[_FIELDS[word]] = value
    if ("certificate" in given) != ("certificate_key" in given):
        raise InputError("TLS needs both --ssl-cert-file and --ssl-key-file")
    return tuple(kept), Reach(**given, api_key=api_key)


def _first_line(path: str) -> str:
    try:
        with Path(path).expanduser().open(encoding="utf-8") as file:
            text = file.read(_KEY_LIMIT)
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "is no text"
        raise InputError(f"--api-key-file: {clean(path, 200)}: {reason}") from error
    return next((s for line in text.splitlines() if (s := line.strip()) and not s.startswith("#")), "")
