"""Finds an engine: the kind the operator names, else llama-server, else the embedded one."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from kvtui.core.errors import InputError
from kvtui.core.text import clean
from kvtui.engines.kinds import KINDS

if TYPE_CHECKING:
    from kvtui.engines.base import Engine

ENV_ENGINE = "LLAMA_SERVER_BIN"
_BY_NAME = ("ollama", "vllm")
"""Kinds whose programs are called as they are; a llama-server may have any name."""
_GET_ONE = "pip install 'kvtui[demo]' brings an embedded one; --engine-bin takes the path of yours"


def engine_of(
    kind: str | None,
    engine_bin: str | None,
    *,
    command: Sequence[str] = (),
    api_key: str | None = None,
) -> Engine:
    """An engine of `kind` (one of `KINDS`); None: what `engine_bin` is called, else llama-server, else embedded.

    `command` is how a llama-server is started in place of `engine_bin`: through a wrapper or in a container (see
    kvtui.engines.invocation). Raises InputError when there is none, or `engine_bin` is no program.
    """
    if command or api_key is not None:
        if kind not in (None, "llama-server"):
            what = "--engine-command" if command else "--api-key"
            raise InputError(f"{what}: {clean(kind)} has none", hint="it is for llama-server")
        return _llama_server(engine_bin, command, api_key)
    if kind is None and engine_bin is not None and os.path.basename(engine_bin) in _BY_NAME:
        kind = os.path.basename(engine_bin)
    if kind == "embedded":
        return embedded_engine()
    if kind is None or kind == "llama-server":
        return find_engine(engine_bin)
    if kind == "vllm":
        from kvtui.engines.vllm.server import Vllm

        return Vllm(_named(engine_bin, "VLLM_BIN", "vllm"))
    if kind == "ollama":
        from kvtui.engines.ollama.engine import OllamaEngine

        return OllamaEngine(_named(engine_bin, "OLLAMA_BIN", "ollama"))
    raise InputError(
        f"{clean(kind)} is not an engine that can be driven", hint=f"there is {', '.join(KINDS)}"
    )


def engine_at(url: str, log: str | None) -> Engine:
    """An Ollama that runs, at `url`, and logs to the file `log` (None: the journal). Raises InputError."""
    from kvtui.engines.ollama.attached import AttachedOllama

    return AttachedOllama(url, log)


def _llama_server(engine_bin: str | None, command: Sequence[str], api_key: str | None) -> Engine:
    from kvtui.engines.invocation import checked
    from kvtui.engines.llama_server.server import LlamaServer

    if command:
        return LlamaServer(checked(command).words, api_key=api_key)
    program = find_llama_server(engine_bin)
    if program is None:
        raise InputError("no llama-server found", hint=_GET_ONE)
    return LlamaServer((program,), api_key=api_key)


def _named(engine_bin: str | None, variable: str, name: str) -> str:
    """The program given, else the one that the environment's `variable` names, else `name` on PATH."""
    given = engine_bin or os.environ.get(variable) or name
    program = shutil.which(os.path.expanduser(given))
    if program is None:
        raise InputError(
            f"{clean(given)}: not a program that can be run",
            hint=f"--engine-bin or {variable} takes the path of {name}",
        )
    return os.path.abspath(program)


def find_engine(engine_bin: str | None) -> Engine:
    """The llama-server at `engine_bin`, else at `LLAMA_SERVER_BIN`, else on PATH, else the embedded one.

    Raises InputError when there is none, or a given path is no program.
    """
    from kvtui.engines.llama_server.server import LlamaServer

    found = find_llama_server(engine_bin)
    if found is not None:
        return LlamaServer((found,))
    if embedded_is_installed():
        return embedded_engine()
    raise InputError("no engine found", hint=_GET_ONE)


def find_llama_server(engine_bin: str | None) -> str | None:
    """The program at `engine_bin`, else at `LLAMA_SERVER_BIN`, else on PATH. Raises InputError: no such program."""
    given = engine_bin or os.environ.get(ENV_ENGINE)
    if given:
        program = shutil.which(os.path.expanduser(given))
        if program is None:
            where = "--engine-bin" if engine_bin else ENV_ENGINE
            raise InputError(
                f"{clean(given)}: not a program that can be run", hint=f"{where} wants a llama-server"
            )
        return os.path.abspath(program)
    found = shutil.which("llama-server")
    return None if found is None else os.path.abspath(found)


def embedded_engine() -> Engine:
    """llama.cpp in a Python process of its own. Raises InputError when it is not installed."""
    if not embedded_is_installed():
        raise InputError("the embedded engine is not installed", hint="pip install 'kvtui[demo]'")
    from kvtui.engines.llama_server.server import LlamaServer

    return LlamaServer(
        (sys.executable, "-P", "-m", "kvtui.engines.embedded"), label="embedded llama.cpp", kind="embedded"
    )


def embedded_is_installed() -> bool:
    """Whether the wheel with the engine is there; it is not loaded for the answer."""
    return importlib.util.find_spec("xllamacpp") is not None
