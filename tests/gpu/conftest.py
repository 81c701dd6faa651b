"""NVML without a GPU: the real nvidia-ml-py, and a stand-in library that is compiled here."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pynvml
import pytest

SOURCE = Path(__file__).with_name("fake_nvml.c")
GIB = 1 << 30
Scenario = Callable[[str], None]


@pytest.fixture(scope="session")
def fake_nvml(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The folder of the compiled stand-in, by variant (`new`, `old`)."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("no C compiler")
    folders: dict[str, Path] = {}

    def compiled(variant: str) -> Path:
        if variant not in folders:
            folder = tmp_path_factory.mktemp(f"nvml-{variant}")
            flags = ["-DOLD"] if variant == "old" else []
            library = folder / "libnvidia-ml.so.1"
            subprocess.run(
                [compiler, "-shared", "-fPIC", "-Wall", "-Werror", *flags, "-o", str(library), str(SOURCE)],
                check=True,
            )
            folders[variant] = folder
        return folders[variant]

    return compiled


@pytest.fixture
def scenario(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scenario:
    """Write the scenario file; may be called again while something reads."""
    path = tmp_path / "scenario"
    monkeypatch.setenv("KVTUI_FAKE_NVML", str(path))

    def write(text: str) -> None:
        new = path.with_name("scenario.new")
        new.write_text(text)
        os.replace(new, path)

    return write


@pytest.fixture
def load_nvml(fake_nvml: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Point nvidia-ml-py at the stand-in for the time of a test."""

    def load(variant: str) -> None:
        library = ctypes.CDLL(str(fake_nvml(variant) / "libnvidia-ml.so.1"))
        while library.nvmlShutdown() == 0:
            pass  # what earlier tests have opened
        monkeypatch.setattr(pynvml, "nvmlLib", library)
        monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})

    return load


def one_gpu(used: int, *lines: str) -> str:
    """A scenario: one 24 GiB card, 0.5 GiB of it reserved by the driver."""
    memory = f"memory 0 {24 * GIB} {GIB // 2} {used}"
    return "\n".join(("count 1", "name 0 NVIDIA RTX 4090", memory, "util 0 37", "display 0 1", *lines, ""))
