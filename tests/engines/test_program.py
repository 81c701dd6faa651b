"""What a program says of itself, whatever it leaves running or however much it says."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from kvtui.core.errors import StartError
from kvtui.engines.program import ask_program


def script(folder: Path, body: str) -> tuple[str, str]:
    path = folder / "program"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return str(path), "--version"


def test_what_it_leaves_running_is_not_waited_for(tmp_path: Path) -> None:
    """A daemon in a session of its own keeps the output open, and no signal to the group reaches it."""
    leave = f"{sys.executable} -c 'import os,time; os.setsid(); time.sleep(5)' &"
    began = time.monotonic()
    assert ask_program(script(tmp_path, f"echo version 1\n{leave}\nsleep 0.3"), 4) == "version 1\n"
    assert time.monotonic() - began < 3


def test_limits(tmp_path: Path) -> None:
    assert len(ask_program(script(tmp_path, "exec yes"), 20)) == 1 << 20
    began = time.monotonic()
    with pytest.raises(StartError, match="did not answer --version"):
        ask_program(script(tmp_path, "echo begun; exec sleep 60"), 0.3)
    assert time.monotonic() - began < 5
    with pytest.raises(StartError):
        ask_program((str(tmp_path / "nothing"), "--version"))
    assert ask_program(script(tmp_path, "echo said >&2; kill -9 $$"), 20) == "said\n"
