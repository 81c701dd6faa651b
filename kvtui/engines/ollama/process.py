"""A private daemon with one model loaded. The daemon is started and ended; the process that counts is its runner."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from threading import Event
from typing import Protocol

from kvtui.core.config import RunConfig
from kvtui.core.errors import Cancelled, EngineGone, RequestError, StartError
from kvtui.engines.base import Client, StartProgress
from kvtui.engines.http import EngineHttp
from kvtui.engines.ollama.answers import Answer, json_lines, refused
from kvtui.engines.ollama.client import connected
from kvtui.engines.ollama.settings import load_options
from kvtui.engines.ollama.terms import in_llama_terms
from kvtui.engines.watch import Quiet
from kvtui.gpu import host
from kvtui.logs.facts import EngineFacts

_POLL_S = 0.1
_LOOK_S = 2.0
_STALL_S = 3600.0
"""A load is one answer that comes at its end; that nothing happens meanwhile is seen otherwise."""
_READ_S = 1.0
_QUIET_S = 120.0
_PORT = re.compile(r"--port[ =](\d{1,5})\b")


class Daemon(Protocol):
    """The daemon that loads the model: one of our own, or the operator's."""

    @property
    def pid(self) -> int:
        """Its process id."""
        ...

    @property
    def base_url(self) -> str:
        """Where it answers HTTP."""
        ...

    @property
    def log_path(self) -> Path:
        """The file that holds what it printed."""
        ...

    def facts(self) -> EngineFacts:
        """What its log proves up to now."""
        ...

    def exit_code(self) -> int | None:
        """None while it runs."""
        ...

    def stop(self) -> int | None:
        """End what was started for it."""
        ...

    def wait_ready(self, timeout_s: float, cancel: Event, progress: Callable[[StartProgress], None]) -> float:
        """Wait until it can be asked to load the model; returns the time in seconds."""
        ...


class OllamaProcess:
    """Implements `Running`. `wait_ready` ends with the model of `config` loaded; `pid` is the runner from then on."""

    def __init__(
        self,
        label: str,
        config: RunConfig,
        daemon: Daemon,
        *,
        keep_alive: int | str = -1,
        quiet_limit_s: float = _QUIET_S,
    ) -> None:
        self._label = label
        self._config = config
        self._daemon = daemon
        self._keep_alive = keep_alive
        self._quiet_limit_s = quiet_limit_s
        self._runner: int | None = None
        self._runner_started: float | None = None

    @property
    def pid(self) -> int:
        """The runner that holds the model; the daemon until one is loaded."""
        return self._daemon.pid if self._runner is None else self._runner

    @property
    def base_url(self) -> str:
        """Where the daemon answers HTTP."""
        return self._daemon.base_url

    @property
    def log_path(self) -> Path:
        """The file with everything that the daemon and its runner printed."""
        return self._daemon.log_path

    def facts(self) -> EngineFacts:
        """What the log proves up to now, in the same terms for every era."""
        return in_llama_terms(self._daemon.facts())

    def exit_code(self) -> int | None:
        """The daemon's; None while it runs."""
        return self._daemon.exit_code()

    def stop(self) -> int | None:
        """End the daemon and its runner. Safe to call twice."""
        return self._daemon.stop()

    def wait_ready(self, timeout_s: float, cancel: Event, progress: Callable[[StartProgress], None]) -> float:
        """Wait for the daemon, then load the model; returns the time of both in seconds.

        Raises StartError (crashed, hung, port, missing) or Cancelled.
        """
        seconds = self._daemon.wait_ready(timeout_s, cancel, progress)
        began = time.monotonic() - seconds
        abandon = Event()
        with ThreadPoolExecutor(1, thread_name_prefix="ollama-load") as pool:
            loading = pool.submit(self._load, abandon)
            try:
                self._watch(loading, began, timeout_s, cancel, progress)
            finally:
                abandon.set()
        self._runner = self._find_runner()
        if self._runner is not None:
            self._runner_started = host.process_started(self._runner)
        seconds = time.monotonic() - began
        self._read_up(cancel)
        return seconds

    def connect(self) -> AbstractContextManager[Client]:
        """Requests by Ollama's API, with the tokenizer of its runner where that answers."""
        return connected(self.base_url, self._config, self._runner_url(), self._same_runner, self._keep_alive)

    def _load(self, abandon: Event) -> None:
        """An empty prompt loads the model and nothing more. It must ask the same as every later request."""
        body = {
            "model": self._config.model,
            "prompt": "",
            "shift": False,
            "keep_alive": self._keep_alive,
            "options": load_options(self._config),
        }
        answer = Answer(1, None)
        with (
            EngineHttp(self.base_url, stall_s=_STALL_S) as http,
            http.events("/api/generate", body, abandon, json_lines) as records,
        ):
            for record in records:
                if answer.feed(record):
                    return
        raise EngineGone("the daemon's answer broke off while it loaded the model")

    def _watch(
        self,
        loading: Future[None],
        began: float,
        timeout_s: float,
        cancel: Event,
        progress: Callable[[StartProgress], None],
    ) -> None:
        quiet, look_at, activity = Quiet(self._quiet_limit_s), 0.0, None
        while not loading.done():
            now = time.monotonic()
            if now >= look_at:
                look_at, activity = now + _LOOK_S, self._activity()
            if self.exit_code() is not None:
                raise StartError(
                    "crashed",
                    f"{self._label} ended while it loaded {self._config.model}",
                    hint=f"its log is {self.log_path}",
                    exit_code=self.exit_code(),
                )
            progress(StartProgress(now - began, "loading the model", self._log_bytes()))
            if now - began > timeout_s:
                raise self._hung(f"did not load the model in {timeout_s:.0f} s")
            if quiet.too_long(now, activity):
                raise self._hung(f"did nothing for {self._quiet_limit_s:.0f} s while loading")
            if cancel.wait(_POLL_S):
                raise Cancelled
        try:
            loading.result()
        except (RequestError, EngineGone) as error:
            raise self._not_loaded(error) from error

    def _not_loaded(self, error: RequestError | EngineGone) -> StartError:
        said = refused(error).what if isinstance(error, RequestError) else error.what
        if isinstance(error, RequestError) and error.status == 404:
            return StartError(
                "missing",
                f"Ollama has no model {self._config.model}",
                hint=f"ollama pull {self._config.model}, or ollama list",
            )
        return StartError(
            "crashed",
            f"{self._label} could not load {self._config.model}: {said}",
            hint=f"its log is {self.log_path}",
        )

    def _read_up(self, cancel: Event) -> None:
        """Wait until the log is read as far as the load: the answer to a request may be faster."""
        deadline = time.monotonic() + _READ_S
        while self.facts().outcome != "ready" and time.monotonic() < deadline:
            if cancel.wait(_POLL_S):
                raise Cancelled

    def _hung(self, what: str) -> StartError:
        return StartError("hung", f"{self._label} {what}", hint=f"its log is {self.log_path}")

    def _log_bytes(self) -> int:
        try:
            return self.log_path.stat().st_size
        except OSError:
            return 0

    def _activity(self) -> Hashable:
        """What changes while anything is done. It looks at every process there is."""
        pids = (self._daemon.pid, *host.descendants(self._daemon.pid))
        return (self._log_bytes(), *((host.cpu_seconds(pid), host.resident_bytes(pid)) for pid in pids))

    def _find_runner(self) -> int | None:
        """The newest process below the daemon that was started with a model: looking for devices starts others."""
        runners = [
            pid for pid in host.descendants(self._daemon.pid) if "--model" in host.command_line_of(pid)
        ]
        return max(runners, key=lambda pid: host.process_started(pid) or 0.0, default=None)

    def _runner_url(self) -> str | None:
        """Where the runner listens: its command line says so."""
        words = " ".join(host.command_line_of(self._runner)) if self._runner is not None else ""
        port = _PORT.search(words)
        return f"http://127.0.0.1:{port[1]}" if port else None

    def _same_runner(self) -> bool:
        if self._runner is None:
            return True
        return host.process_started(self._runner) == self._runner_started
