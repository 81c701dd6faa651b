"""Finds an engine: the kind the operator names, else llama-server, else the embedded one."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from typing import TYPE_CHECKING

from kvtui.core.errors import InputError
from kvtui.core.text import clean
from kvtui.engines.kinds import KINDS

if TYPE_CHECKING:
    from kvtui.engines.base import Engine

ENV_ENGINE = "LLAMA_SERVER_BIN"
_GET_ONE = "pip install 'kvtui[demo]' brings an embedded one; --engine-bin takes the path of yours"


def engine_of(kind: str | None, engine_bin: str | None) -> Engine:
    """An engine of `kind` (one of `KINDS`; None: llama-server, else the embedded one).

    Raises InputError when there is none, or `engine_bin` is no program.
    """
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
    from kvtui.engines.llama_server import LlamaServer

    given = engine_bin or os.environ.get(ENV_ENGINE)
    if given:
        program = shutil.which(os.path.expanduser(given))
        if program is None:
            where = "--engine-bin" if engine_bin else ENV_ENGINE
            raise InputError(
                f"{clean(given)}: not a program that can be run", hint=f"{where} wants a llama-server"
            )
        return LlamaServer((os.path.abspath(program),))
    if (found := shutil.which("llama-server")) is not None:
        return LlamaServer((os.path.abspath(found),))
    if embedded_is_installed():
        return embedded_engine()
    raise InputError("no engine found", hint=_GET_ONE)


def embedded_engine() -> Engine:
    """llama.cpp in a Python process of its own. Raises InputError when it is not installed."""
    if not embedded_is_installed():
        raise InputError("the embedded engine is not installed", hint="pip install 'kvtui[demo]'")
    from kvtui.engines.llama_server import LlamaServer

    return LlamaServer(
        (sys.executable, "-P", "-m", "kvtui.engines.embedded"), label="embedded llama.cpp", kind="embedded"
    )


def embedded_is_installed() -> bool:
    """Whether the wheel with the engine is there; it is not loaded for the answer."""
    return importlib.util.find_spec("xllamacpp") is not None
