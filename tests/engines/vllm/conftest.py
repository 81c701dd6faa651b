"""The stand-in for the `vllm` command."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kvtui.engines.vllm.server import Vllm


@pytest.fixture
def vllm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Vllm]:
    """Makes an engine of the stand-in, on a card with the given figures."""
    program = tmp_path / "vllm"
    program.write_text(
        f"#!/bin/sh\nexec '{sys.executable}' '{Path(__file__).with_name('fake_vllm.py')}' \"$@\"\n"
    )
    program.chmod(0o755)

    def make(**card: object) -> Vllm:
        monkeypatch.setenv("FAKE_VLLM", json.dumps(card))
        return Vllm(str(program))

    return make
