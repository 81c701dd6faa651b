"""Which engine a process is, told from its command line alone."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Literal

Kind = Literal["llama-server", "llama-cpp-python", "ollama", "ollama-runner", "vllm", "vllm-worker"]

_LLAMA_SERVER = re.compile(r"^(?:ik[-_])?llama[-_]server(?:[-_.].*)?$")
_OLD_SERVER = frozenset(("server", "llamafile", "main"))
_SUBCOMMANDS: dict[str, Kind] = {"serve": "ollama", "runner": "ollama-runner"}
_MODULES: dict[str, Kind] = {
    "llama_cpp.server": "llama-cpp-python",
    "kvtui.engines.embedded": "llama-server",
    "vllm.entrypoints.openai.api_server": "vllm",
    "vllm.entrypoints.api_server": "vllm",
    "vllm.entrypoints.cli.main": "vllm",
}
_PYTHON = re.compile(r"^(?:python|pypy)[\d.]*$")
_MODEL_FILE = re.compile(r"\.(?:gguf|llamafile)$")
_SHELLS = frozenset(("sh", "bash", "dash", "zsh", "fish", "sudo", "env", "nohup", "timeout", "watch", "ssh"))


def classify(argv: Sequence[str]) -> Kind | None:
    """The engine that `argv` runs; None for everything else, shells and wrappers around an engine included."""
    if not argv or not argv[0]:
        return None
    if argv[0].startswith("VLLM::"):  # the title that its processes give themselves
        return "vllm-worker"
    name = _name(argv[0])
    if name in _SHELLS:
        return None
    if _PYTHON.match(name):
        return _python(argv)
    return _program(name, argv[1:])


def _program(name: str, options: Sequence[str]) -> Kind | None:
    first = next((word for word in options if not word.startswith("-")), "")
    if _LLAMA_SERVER.match(name):
        return "llama-server"
    if name == "llama" and first in ("serve", "server"):
        return "llama-server"
    if name == "ollama":
        return _SUBCOMMANDS.get(first)
    if name == "ollama_llama_server":
        return "ollama-runner"
    if name == "vllm" and first == "serve":
        return "vllm"
    if name in _OLD_SERVER or name.endswith(".llamafile"):
        serves = name == "server" or "--server" in options or name.endswith(".llamafile")
        return "llama-server" if serves and any(map(_MODEL_FILE.search, (name, *options))) else None
    return None


def _python(argv: Sequence[str]) -> Kind | None:
    """`python -m MODULE ..` or `python /path/to/script ..`."""
    for at, word in enumerate(argv[1:], 1):
        if word == "-c":
            return None
        if word in ("-m", "-Pm", "-um", "-Im"):
            module = argv[at + 1] if at + 1 < len(argv) else ""
            return _MODULES.get(module)
        if not word.startswith("-"):
            return _program(_name(word), argv[at + 1 :])
    return None


def _name(word: str) -> str:
    name = PurePosixPath(word).name
    return name[:-4] if name.lower().endswith(".exe") else name
