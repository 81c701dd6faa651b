"""Ends a blocking HTTP request from outside: when an event is set, or when its time is up.

A read timeout alone does not do it: an answer that trickles in byte by byte never runs into one.
"""

from __future__ import annotations

import socket
from contextlib import suppress
from threading import Event, Thread
from types import TracebackType
from typing import Any, Self

from kvtui.core.errors import Cancelled
from kvtui.engines.watch import Stopwatch

_POLL_S = 0.05
_LONGEST_TICK_S = 1.0
_CONNECTED = frozenset(
    f"connection.{step}.complete" for step in ("connect_tcp", "connect_unix_socket", "start_tls")
)


class Cancelling:
    """Watches the request in its `with` block: it is ended when `cancel` is set or after `limit_s` seconds.

    `late` tells that it was the time. Without an event and a limit it does nothing.
    """

    def __init__(self, cancel: Event | None, limit_s: float | None = None) -> None:
        self.late = False
        self._cancel = cancel
        self._left_s = limit_s
        self._done = Event()
        self._socket: socket.socket | None = None
        self._thread: Thread | None = None

    def __enter__(self) -> Self:
        self.check()
        if self._cancel is not None or self._left_s is not None:
            self._thread = Thread(target=self._watch, name="cancel-request", daemon=True)
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        if self._thread is not None:
            self._thread.join()

    def check(self) -> None:
        """Raise Cancelled if the event is set."""
        if self._cancel is not None and self._cancel.is_set():
            raise Cancelled

    def trace(self, event: str, info: dict[str, Any]) -> None:
        """To be handed to the HTTP library: takes the socket as soon as the connection is made, and the one that
        TLS puts in its place."""
        if event in _CONNECTED:
            self._socket = info["return_value"].get_extra_info("socket")

    def _watch(self) -> None:
        watch = Stopwatch(_LONGEST_TICK_S)
        while not self._done.wait(_POLL_S):
            self.late = self._left_s is not None and watch.seconds() > self._left_s
            cancelled = self._cancel is not None and self._cancel.is_set()
            if (cancelled or self.late) and self._socket is not None:
                with suppress(OSError):  # closed already: the request has ended by itself
                    self._socket.shutdown(socket.SHUT_RDWR)
                return
