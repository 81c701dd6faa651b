"""A daemon of the operator's, driven as it is: where a run needs other settings of it, it is he who restarts it.

Nothing is signalled or reconfigured here. Its log is followed, so that the restart is seen and what it brought proven.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import Any
from urllib.parse import urlsplit

from kvtui.core.config import RunConfig
from kvtui.core.errors import Cancelled, EngineGone, InputError, RequestError, StartError
from kvtui.core.text import clean
from kvtui.engines.base import Abilities, Command, DryRun, StartProgress, Traits
from kvtui.engines.http import EngineHttp
from kvtui.engines.ollama.process import OllamaProcess
from kvtui.engines.ollama.settings import left_out, load_request, tuning_variables
from kvtui.engines.ollama.traits import TRAITS
from kvtui.engines.process import EngineProcess
from kvtui.engines.program import ask_program
from kvtui.engines.recipes import recipes_of
from kvtui.logs.facts import EngineFacts
from kvtui.logs.parser import LogParser

_POLL_S = 0.5
_LOOKED_BACK = 16 << 20
_JOURNAL = ("journalctl", "-u", "ollama", "-o", "cat")
_KEEP_ALIVE = "30m"
_DEFAULTS = {"kv_type": "f16", "flash_attention": False}
_TOLD_AS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "OLLAMA_KV_CACHE_TYPE": ("kv_type", str),
    "OLLAMA_NUM_PARALLEL": ("num_parallel", int),
    "OLLAMA_FLASH_ATTENTION": ("flash_attention", lambda value: value == "1"),
}


class AttachedOllama:
    """Implements `Engine` for the daemon at `url`, which logs to the file `log`, or to the journal of unit `ollama`."""

    def __init__(self, url: str, log: str | None = None) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InputError(
                f"--url: {clean(url, 200)}: not an address", hint="http://127.0.0.1:11434 is one"
            )
        if log is not None and not os.path.isfile(log):
            raise InputError(
                f"--engine-log: {clean(log, 200)}: no such file", hint="the file the daemon logs to"
            )
        self._url = url.rstrip("/")
        self._log = log
        self._abilities: Abilities | None = None

    @property
    def label(self) -> str:
        """`Ollama 0.33.0 at http://127.0.0.1:11434`."""
        version = f" {self._abilities.version}" if self._abilities else ""
        return f"Ollama{version} at {clean(self._url, 200)}"

    @property
    def traits(self) -> Traits:
        """Those of every Ollama."""
        return TRAITS

    def abilities(self) -> Abilities:
        """Its version. Raises StartError (missing) when nobody answers as Ollama does."""
        if self._abilities is None:
            try:
                with EngineHttp(self._url) as http:
                    version = http.answer("/api/version").get("version")
            except (RequestError, EngineGone) as error:
                raise StartError(
                    "missing",
                    f"no Ollama at {clean(self._url, 200)}: {error.what}",
                    hint="start it, or correct --url",
                ) from error
            told = version if isinstance(version, str) else ""
            self._abilities = Abilities(frozenset(), version=told, build=told or None)
        return self._abilities

    def command(self, config: RunConfig, port: int) -> Command:
        """What its service must be started with, and the request that loads the model."""
        follow = (load_request(config, self._url),)
        return Command(("ollama", "serve"), tuning_variables(config), left_out(config), follow)

    def dry_run(self, config: RunConfig) -> DryRun | None:
        """It has none."""
        return None

    def launch(self, config: RunConfig, log_path: Path, on_log: Callable[[list[str]], None]) -> OllamaProcess:
        """Follow its log; `wait_ready` waits for the settings and loads the model."""
        daemon = AttachedDaemon(self.label, self._url, config, self._log, log_path, on_log)
        return OllamaProcess(self.label, config, daemon, keep_alive=_KEEP_ALIVE)


class AttachedDaemon:
    """The daemon at `url`, as `OllamaProcess` needs it. What is started and ended here follows its log, from now on."""

    def __init__(
        self,
        label: str,
        url: str,
        config: RunConfig,
        log: str | None,
        log_path: Path,
        on_log: Callable[[list[str]], None],
    ) -> None:
        self._label = label
        self._config = config
        self._on_log = on_log
        self._follower = EngineProcess(label, lambda port: Command(following(log)), log_path, on_log)
        self._before = asked_before(log)
        self.base_url = url
        self.log_path = log_path
        self._pid: int | None = None

    @property
    def pid(self) -> int:
        """The daemon's; that of the program that reads its log until it is found."""
        return self._follower.pid if self._pid is None else self._pid

    def facts(self) -> EngineFacts:
        """What its log proves up to now."""
        return self._follower.facts()

    def exit_code(self) -> int | None:
        """That of the program that reads its log: without it nothing is proven."""
        return self._follower.exit_code()

    def stop(self) -> int | None:
        """End the reading of its log. The daemon goes on."""
        return self._follower.stop()

    def wait_ready(self, timeout_s: float, cancel: Event, progress: Callable[[StartProgress], None]) -> float:
        """Wait until it answers with the settings of the run; what was loaded is unloaded, so that the load is logged.

        Raises StartError (hung: it was not restarted in time; missing: log or process cannot be seen) or Cancelled.
        """
        began = time.monotonic()
        told = False
        while True:
            seconds = time.monotonic() - began
            if self.exit_code() is not None:
                raise StartError(
                    "missing", f"the log of {self._label} cannot be followed", hint="--engine-log FILE"
                )
            started = bool(self._asked())
            wrong = self.differing() if started else {}
            if started and not wrong and self._answers():
                break
            waits = " ".join(f"{name}={value}" for name, value in wrong.items())
            stage = f"restart Ollama with {waits}" if waits else "waiting for Ollama and its log"
            if waits and not told:
                told = True
                self._on_log(["", f"kvtui waits: {stage}", *recipes_of("ollama", self._config)[0].lines, ""])
            progress(StartProgress(seconds, stage, 0))
            if seconds > timeout_s:
                raise StartError("hung", f"{self._label} was not restarted: {stage}")
            if cancel.wait(_POLL_S):
                raise Cancelled
        self._pid = self._find()
        self._unload()
        return time.monotonic() - began

    def differing(self) -> dict[str, str]:
        """The variables of the run that the daemon was not started with, as its newest start logged them."""
        asked = {**_DEFAULTS, **self._asked()}
        wanted = [(name, value) for name, value in tuning_variables(self._config) if name in _TOLD_AS]
        return {
            name: value for name, value in wanted if asked.get(_TOLD_AS[name][0]) != _TOLD_AS[name][1](value)
        }

    def _asked(self) -> dict[str, Any]:
        """What its newest start was asked; empty where its log shows none. That line always tells the slots."""
        now = self.facts().requested
        return now if "num_parallel" in now else self._before

    def _answers(self) -> bool:
        with EngineHttp(self.base_url) as http:
            return http.health(path="/api/version") == "ready"

    def _find(self) -> int:
        from kvtui.engines.attach.processes import engines, listener_on

        port = urlsplit(self.base_url).port or 11434
        seen = listener_on(port) or next((e for e in engines() if e.kind == "ollama"), None)
        if seen is None:
            raise StartError(
                "missing",
                f"the process of {self._label} cannot be seen, and so neither its memory",
                hint="run kvtui on its machine, as a user who may look at it",
            )
        return seen.pid

    def _unload(self) -> None:
        with EngineHttp(self.base_url) as http:
            http.ask("POST", "/api/generate", {"model": self._config.model, "keep_alive": 0, "stream": False})


def asked_before(log: str | None) -> dict[str, Any]:
    """What the newest start of the daemon in its log was asked, as far back as is looked; empty where none is there."""
    parser = LogParser()
    try:
        if log is None:
            parser.feed(ask_program((*_JOURNAL, "-g", "server config", "-n", "1")).encode())
        else:
            with open(log, "rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - _LOOKED_BACK))
                parser.feed(file.read(_LOOKED_BACK))
    except (OSError, StartError):  # a restart will show
        return {}
    parser.close()
    asked = parser.facts().requested
    return asked if "num_parallel" in asked else {}


def following(log: str | None) -> tuple[str, ...]:
    """A command that prints what is added to the log from now on."""
    return (*_JOURNAL, "-n", "0", "-f") if log is None else ("tail", "-n", "0", "-F", "--", log)
