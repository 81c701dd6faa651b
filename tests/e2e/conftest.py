"""The command line as a person uses it: real processes, the real embedded engine, a data folder of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

TINY_PRESET = """\
title = "Tiny"
description = "Seconds, not minutes: every step on a model of a few hundred kilobytes."
[floor]
context = 256
[baseline]
context = 1024
depths = [640]
[kv]
type = "q8_0"
[stages]
contexts = [512, 1024, 2048]
target = 2048
recall_positions = [0.1, 0.9]
decode_tokens = 16
repeats = 1
[limits]
min_recall = 0.0
[memory]
margin_gib = 0.1
[server]
n_parallel = 1
kv_unified = false
n_batch = 256
n_ubatch = 256
swa_full = false
prefix_reuse = true
cache_ram_mib = 0
[transients]
run = "always"
"""


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    """Where the sessions of one test go."""
    return tmp_path / "data"


@pytest.fixture
def environment(data_dir: Path) -> dict[str, str]:
    """The environment of one test's kvtui."""
    return {**os.environ, "KVTUI_DATA_DIR": str(data_dir), "TERM": "xterm-256color", "LANG": "C.UTF-8"}


@pytest.fixture
def tiny_preset(tmp_path: Path) -> Path:
    """A preset for the tiny model."""
    path = tmp_path / "tiny.toml"
    path.write_text(TINY_PRESET)
    return path


@pytest.fixture
def kvtui(environment: dict[str, str]) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run `kvtui` with some arguments and wait for it."""

    def run(*argv: str, timeout: float = 240) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "kvtui", *argv],
            env=environment,
            capture_output=True,
            text=True,
            timeout=timeout,
            stdin=subprocess.DEVNULL,
            check=False,
        )

    return run


@pytest.fixture
def engines_of(environment: dict[str, str]) -> Callable[[], list[psutil.Process]]:
    """The engines that this test's kvtui started and that still live."""

    def find() -> list[psutil.Process]:
        found = []
        for process in psutil.process_iter():
            try:
                if "kvtui.engines.embedded" not in process.cmdline():
                    continue
                mine = process.environ().get("KVTUI_DATA_DIR") == environment["KVTUI_DATA_DIR"]
                if mine and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
            except psutil.Error:
                continue
        return found

    return find
