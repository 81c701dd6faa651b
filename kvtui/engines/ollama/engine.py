"""Ollama as an engine: what its program can do, and the exact command of its private daemon."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

from kvtui.core.config import RunConfig
from kvtui.core.errors import InputError, StartError
from kvtui.core.text import clean
from kvtui.engines.base import Abilities, Command, DryRun, Missing, Traits
from kvtui.engines.environment import counting_variables
from kvtui.engines.ollama.process import OllamaProcess
from kvtui.engines.ollama.settings import (
    left_out,
    load_request,
    own_variables,
    private_variables,
    tuning_variables,
)
from kvtui.engines.ollama.traits import TRAITS
from kvtui.engines.process import EngineProcess
from kvtui.engines.program import ask_program
from kvtui.sources import ollama as store

_VARIABLE = re.compile(r"^\s+((?:OLLAMA|LLAMA)_[A-Z_]+)\s", re.MULTILINE)
_VERSION = re.compile(r"\b(?:client )?version is (\d\S*)")
_LLAMA_SERVER = "LLAMA_ARG_FIT"
"""Listed since the runner is a llama-server, whose own variables then count."""
_LOST = {
    "OLLAMA_KV_CACHE_TYPE": "the type of the KV cache",
    "OLLAMA_FLASH_ATTENTION": "flash attention",
    "OLLAMA_NUM_PARALLEL": "the number of slots",
}


class OllamaEngine:
    """Implements `Engine` for the Ollama program at `program`."""

    def __init__(self, program: str) -> None:
        self._program = program
        self._abilities: Abilities | None = None

    @property
    def label(self) -> str:
        """`Ollama 0.33.0`; without the version before `abilities` was asked."""
        version = self._abilities.version if self._abilities else ""
        return f"Ollama {version}".rstrip()

    @property
    def traits(self) -> Traits:
        """Those of every Ollama."""
        return TRAITS

    def abilities(self) -> Abilities:
        """The variables that `serve --help` lists, and the program's version. Raises StartError (missing).

        The daemon takes types that it does not list: `cache_types` is empty.
        """
        if self._abilities is None:
            listed = _VARIABLE.findall(ask_program((self._program, "serve", "--help")))
            if "OLLAMA_HOST" not in listed:
                raise StartError(
                    "missing",
                    f"{clean(self._program)} does not answer serve --help as Ollama does",
                    hint="--engine-bin takes the path of an ollama program",
                )
            # Next to a daemon that runs, the last line is the program's own.
            versions = _VERSION.findall(ask_program((self._program, "--version")))
            version = clean(versions[-1], 60) if versions else ""
            self._abilities = Abilities(frozenset(listed), version=version, build=version or None)
        return self._abilities

    def command(self, config: RunConfig, port: int) -> Command:
        """The daemon with everything that `config` decides in its environment, and the request that loads the model."""
        listed = self.abilities().options
        settings = tuning_variables(config, probes=_LLAMA_SERVER in listed)
        unknown = tuple(
            Missing(name, _LOST[name]) for name, _ in settings if name in _LOST and name not in listed
        )
        env = (
            dict(counting_variables("OLLAMA_"))
            | dict(private_variables(config, port, _store_of(config.model)))
            | dict(settings)
            | dict(own_variables(config))
            | dict(config.env)
        )
        return Command(
            (self._program, "serve"),
            tuple(env.items()),
            (*unknown, *left_out(config)),
            follow=(load_request(config, f"http://127.0.0.1:{port}"),),
        )

    def dry_run(self, config: RunConfig) -> DryRun | None:
        """It has none."""
        return None

    def launch(self, config: RunConfig, log_path: Path, on_log: Callable[[list[str]], None]) -> OllamaProcess:
        """Start a daemon of our own on a free port; the model is loaded by `wait_ready`."""
        self.abilities()
        daemon = EngineProcess(
            self.label, lambda port: self.command(config, port), log_path, on_log, health_path="/api/version"
        )
        return OllamaProcess(self.label, config, daemon)


def _store_of(model: str) -> str:
    """The folder of the store that has `model`. Raises InputError where it is a file, or in no store."""
    path = os.path.expanduser(model)
    if os.path.lexists(path) and not os.path.isdir(path):
        raise InputError(
            f"{clean(path)}: Ollama loads models of its own store, not files", hint=importing(path)
        )
    tag = store.parse_tag(model)
    if tag is None:
        raise InputError(f"{clean(model, 200)}: not a name that Ollama could have", hint="ollama list")
    found = store.find(tag)
    if found is None:
        raise store.missing(tag)
    return found.store


def importing(path: str) -> str:
    """How a GGUF file gets into Ollama's store: the lines to paste."""
    from kvtui.core.shell import quote

    name = re.sub(r"[^a-z0-9._-]+", "-", os.path.basename(path).lower().removesuffix(".gguf")).strip("-._")
    name = name or "model"
    source = quote(f"FROM {os.path.abspath(path)}")
    return f"echo {source} > Modelfile && ollama create {name} -f Modelfile, then -m {name}"
