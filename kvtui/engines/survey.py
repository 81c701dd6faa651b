"""Which engines are on this box, and what each says it can do; nothing is started but `--help` and its like."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from threading import Thread

from kvtui.core.errors import KvtuiError
from kvtui.core.text import clean
from kvtui.engines.base import Abilities
from kvtui.engines.find import ENV_ENGINE, embedded_is_installed
from kvtui.engines.llama_server.abilities import read_abilities
from kvtui.engines.program import ask_program

LIMIT_S = 1.5
_VERSION = re.compile(r"\d+\.\d+[\w.+-]*")


@dataclass(frozen=True, slots=True)
class EngineFound:
    """One kind of engine (kvtui.engines.kinds): where it is, None where it is not, and what it says of itself.

    `source` says how it was found (`PATH`, the variable that names it, a package). `abilities` is None for an engine
    that could not be asked, then `problem` says why, and for one that is not asked because the answer takes longer
    than anybody waits.
    """

    kind: str
    program: str | None
    source: str = ""
    version: str = ""
    abilities: Abilities | None = None
    problem: str = ""


def survey(limit_s: float = LIMIT_S) -> tuple[EngineFound, ...]:
    """Every kind of engine, asked at the same time, each for at most `limit_s` seconds an answer."""
    probes: tuple[tuple[str, Callable[[float], EngineFound]], ...] = (
        ("llama-server", _llama_server),
        ("embedded", _embedded),
        ("ollama", _ollama),
        ("vllm", _vllm),
    )
    found: dict[str, EngineFound] = {}

    def ask(kind: str, probe: Callable[[float], EngineFound]) -> None:
        found[kind] = probe(limit_s)

    threads = [Thread(target=ask, args=pair, daemon=True) for pair in probes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(3 * limit_s + 1)
    return tuple(
        found.get(kind, EngineFound(kind, None, problem="it did not answer in time")) for kind, _ in probes
    )


def _llama_server(limit_s: float) -> EngineFound:
    program, source = _where(ENV_ENGINE, "llama-server")
    if program is None:
        return EngineFound("llama-server", None, problem=source)
    try:
        help_text = ask_program((program, "--help"), limit_s)
        listed = ask_program((program, "--list-devices"), limit_s) if "--list-devices" in help_text else None
        abilities = read_abilities(help_text, ask_program((program, "--version"), limit_s), listed)
    except KvtuiError as error:
        return EngineFound("llama-server", program, source, problem=error.what)
    problem = (
        "" if abilities.options & {"-c", "--ctx-size"} else "it does not answer --help as llama-server does"
    )
    return EngineFound("llama-server", program, source, abilities.version, abilities, problem)


def _embedded(limit_s: float) -> EngineFound:
    if not embedded_is_installed():
        return EngineFound("embedded", None)
    from kvtui.engines.embedded.options import help_text
    from kvtui.engines.embedded.server import PACKAGE, build_number

    version = metadata.version(PACKAGE)
    abilities = read_abilities(help_text(), f"version: {build_number(version)} (unknown)")
    return EngineFound("embedded", sys.executable, f"{PACKAGE} {version}", abilities.version, abilities)


def _ollama(limit_s: float) -> EngineFound:
    program, source = _where("OLLAMA_BIN", "ollama")
    if program is None:
        return EngineFound("ollama", None, problem=source)
    try:
        said = ask_program((program, "--version"), limit_s)
    except KvtuiError as error:
        return EngineFound("ollama", program, source, problem=error.what)
    line = next((text for text in said.splitlines() if "version" in text), "")
    version = _VERSION.search(line)
    return EngineFound("ollama", program, source, version[0] if version else clean(line, 80))


def _vllm(limit_s: float) -> EngineFound:
    """Its `--version` imports torch and takes many seconds: the package beside the program tells it at once."""
    program, source = _where("VLLM_BIN", "vllm")
    if program is None:
        return EngineFound("vllm", None, problem=source)
    root = Path(os.path.realpath(program)).parent.parent
    names = sorted(path.name for path in root.glob("lib/python3*/site-packages/vllm-*.dist-info"))
    version = names[-1].removeprefix("vllm-").removesuffix(".dist-info") if names else ""
    return EngineFound("vllm", program, source, clean(version, 80))


def _where(variable: str, name: str) -> tuple[str | None, str]:
    """The program that `variable` names, else `name` on PATH, and how it was found; without one, what is wrong."""
    given = os.environ.get(variable)
    program = shutil.which(os.path.expanduser(given or name))
    if program is not None:
        return os.path.abspath(program), variable if given else "PATH"
    return None, f"{variable} names {clean(given, 200)}, which is no program that can be run" if given else ""
