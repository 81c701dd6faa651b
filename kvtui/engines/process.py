"""One engine process: launched under the guard, watched until it answers, ended with everything it started."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from threading import Event

from kvtui.core.errors import Cancelled, StartError
from kvtui.engines import guard
from kvtui.engines.base import Client, Command, StartProgress
from kvtui.engines.environment import engine_environment
from kvtui.engines.failure import describe_exit, is_port_clash, last_words
from kvtui.engines.invocation import Invocation
from kvtui.engines.logsize import LogSize
from kvtui.engines.logtail import LogTail
from kvtui.engines.program import ask_program
from kvtui.engines.reach import Reach
from kvtui.engines.watch import Quiet, Stopwatch
from kvtui.gpu import host
from kvtui.logs.facts import EngineFacts

_HOST = "127.0.0.1"
_POLL_S = 0.1
_TERM_S = 3.0
_KILL_S = 10.0
_GUARD_S = 10.0
_INSPECT_S = 5.0
_LONGEST_TICK_S = 10.0  # a question to an engine that does not answer takes its time
_FOREIGN_S = 5.0  # who answers is not ours, or the system does not tell


def free_port() -> int:
    """A port of the loopback interface that nobody listens on at this moment."""
    with socket.socket() as probe:
        probe.bind((_HOST, 0))
        port: int = probe.getsockname()[1]
        return port


class EngineProcess:
    """A started engine; implements `Running`.

    `command` makes the command line for a port. If somebody takes the port before the engine does, it is
    started once more on another one in `wait_ready`: `pid`, `base_url` and `command` then change.

    The engine ends with kvtui's process, whatever ends it (see guard).
    """

    def __init__(
        self,
        label: str,
        make_command: Callable[[int], Command],
        log_path: Path,
        on_log: Callable[[list[str]], None],
        *,
        connect: Callable[[str], AbstractContextManager[Client]] | None = None,
        pick_port: Callable[[], int] = free_port,
        quiet_limit_s: float = 120.0,
        health_path: str = "/health",
        reach: Reach | None = None,
        invocation: Invocation | None = None,
    ) -> None:
        self._label = label
        self._make_command = make_command
        self._log_path = log_path
        self._on_log = on_log
        self._connect = connect
        self._pick_port = pick_port
        self._quiet_limit_s = quiet_limit_s
        self._health_path = health_path
        self._reach = reach or Reach()
        self._invocation = invocation
        self._start()

    @property
    def pid(self) -> int:
        """The engine's process id, that of the guard where it could not start one.

        Once it is ready it is the process that answers, which differs where the program is a wrapper.
        """
        return self._engine_pid if self._listener is None else self._listener

    @property
    def base_url(self) -> str:
        """Where it answers HTTP."""
        return self._reach.base_url(self._port)

    @property
    def log_path(self) -> Path:
        """The file with everything it printed."""
        return self._log_path

    @property
    def command(self) -> Command:
        """The exact command line that runs."""
        return self._command

    def facts(self) -> EngineFacts:
        """What its log proves up to now."""
        return self._log.facts()

    def connect(self) -> AbstractContextManager[Client]:
        """Requests in llama-server's own API, unless another kind of client was given."""
        if self._connect is not None:
            return self._connect(self.base_url)
        return self._reach.client(self._port)

    def exit_code(self) -> int | None:
        """None while it runs; negative for a signal. What it started has ended too, then: the guard sees to it."""
        return self._guard.poll()

    def wait_ready(self, timeout_s: float, cancel: Event, progress: Callable[[StartProgress], None]) -> float:
        """Wait until it answers; returns the load time in seconds.

        Raises StartError (crashed, hung, port, missing) or Cancelled. The process is not ended by either.
        """
        try:
            return self._wait(timeout_s, cancel, progress)
        except _PortTaken:
            self.stop()
            self._start()
        try:
            return self._wait(timeout_s, cancel, progress)
        except _PortTaken as error:
            raise StartError(
                "port",
                f"{self._label} could not listen on {self.base_url}: {error}",
                hint="another program takes every port it is given",
                exit_code=self.exit_code(),
            ) from None

    def stop(self) -> int | None:
        """End it and everything that it started: TERM, then KILL. Safe to call twice."""
        code = self.exit_code()
        if code is None:
            self._guard.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._guard.wait(_TERM_S)
            self._lifeline.close()  # the guard kills what is left
            with suppress(subprocess.TimeoutExpired):  # a process in uninterruptible sleep cannot be reaped
                code = self._guard.wait(_KILL_S)
        self._lifeline.close()
        self._log.close()
        return code

    def _start(self) -> None:
        self._listener: int | None = None
        self._port = self._pick_port()
        self._command = self._make_command(self._port)
        self._launched = time.monotonic()
        self._lifeline, guards_end = socket.socketpair()
        descriptor = guards_end.fileno()
        then = self._invocation.kill_command(self._port) if self._invocation is not None else ()
        last = ("--then", json.dumps(then)) if then else ()
        argv = (sys.executable, "-I", "-S", guard.__file__, str(descriptor), *last, "--", *self._command.argv)
        try:
            with self._log_path.open("wb") as log:
                self._guard = subprocess.Popen(
                    argv,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env=engine_environment(self._command.env, self._command.unset)
                    | self._reach.environment(),
                    start_new_session=True,
                    pass_fds=(descriptor,),
                )
        except (OSError, ValueError) as error:  # no log, no process, too long a command line, a NUL in it
            self._lifeline.close()
            reason = error.strerror if isinstance(error, OSError) else str(error)
            raise StartError(
                "missing",
                f"{self._label} could not be started: {reason}",
                hint=f"its log would be {self._log_path}",
            ) from error
        finally:
            guards_end.close()
        self._engine_pid = self._told_pid()
        self._log = LogTail(self._log_path, self._on_log, bound=LogSize(self._log_path))

    def _told_pid(self) -> int:
        """What the guard says: the process that it started."""
        self._lifeline.settimeout(_GUARD_S)
        try:
            told = self._lifeline.recv(32).strip()
        except OSError:
            told = b""
        return int(told) if told.isdigit() else self._guard.pid

    def _wait(self, timeout_s: float, cancel: Event, progress: Callable[[StartProgress], None]) -> float:
        quiet, waited = Quiet(self._quiet_limit_s), Stopwatch(_LONGEST_TICK_S)
        answered: float | None = None
        with self._reach.client(self._port) as client:
            while True:
                if self.exit_code() is not None:
                    raise self._crash()
                now = time.monotonic()
                seconds = now - self._launched
                health = client.health(path=self._health_path) if self._reach.is_there() else "silent"
                if health == "ready":
                    answered = now if answered is None else answered
                    self._listener = self._answering()
                    sure = self._listener is not None or self._reach.unix_socket is not None
                    if sure or now - answered > _FOREIGN_S:
                        return time.monotonic() - self._launched
                stage = {"loading": "loading the model", "ready": "ready"}.get(health, "starting")
                progress(StartProgress(seconds, stage, self._log.size))
                own_s = waited.seconds()
                if own_s > timeout_s:
                    raise self._hung(f"was not ready after {timeout_s:.0f} s")
                pid = self._engine_pid
                activity = (self._log.size, host.cpu_seconds(pid), host.resident_bytes(pid))
                if quiet.too_long(own_s, activity):
                    raise self._hung(f"did nothing for {self._quiet_limit_s:.0f} s while loading")
                if cancel.wait(_POLL_S):
                    raise Cancelled

    def _answering(self) -> int | None:
        """The process that listens: a descendant, or what the container's runtime says it is."""
        ask = self._invocation.pid_command(self._port) if self._invocation is not None else ()
        if not ask:
            return host.listener(self._engine_pid, self._port)
        try:
            told = ask_program(ask, _INSPECT_S).strip()
        except StartError:
            return None
        return int(told) if told.isdecimal() and 0 < len(told) < 10 and int(told) > 0 else None

    def _crash(self) -> Exception:
        code = self.exit_code()
        assert code is not None
        self._log.close()
        text = self._log_text()
        if is_port_clash(text):
            return _PortTaken(last_words(text, self.facts()))
        words = last_words(text, self.facts())
        what = f"{self._label} {describe_exit(code)} before it was ready"
        return StartError(
            "missing" if code == guard.CANNOT_RUN and "cannot run" in words else "crashed",
            f"{what}: {words}" if words else f"{what} and said nothing",
            hint=f"its log is {self._log_path}",
            exit_code=code,
        )

    def _hung(self, what: str) -> StartError:
        words = last_words(self._log_text(), self.facts())
        return StartError(
            "hung",
            f"{self._label} {what}" + (f"; its last words: {words}" if words else ""),
            hint=f"its log is {self._log_path}",
        )

    def _log_text(self) -> str:
        try:
            with self._log_path.open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size - (1 << 16)))
                return file.read().decode("utf-8", "replace")
        except OSError:  # somebody removed it
            return ""


class _PortTaken(Exception):
    """The engine died because somebody else listens on its port."""
