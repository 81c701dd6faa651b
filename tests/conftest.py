"""Fixtures for everybody.

Properties try 40 examples each, or `KVTUI_EXAMPLES` of them, except where one example is dear. None has a deadline:
how long an example takes says more about the machine than about the code.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

from tests.tiny_model import write_tiny_model

settings.register_profile("kvtui", deadline=None, max_examples=int(os.environ.get("KVTUI_EXAMPLES", "40")))
settings.load_profile("kvtui")


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real model with full attention in every layer, a few hundred kilobytes."""
    return write_tiny_model(tmp_path_factory.mktemp("models") / "tiny-llama.gguf", "llama")


@pytest.fixture(scope="session")
def tiny_swa_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real model with five sliding-window layers and one of full attention."""
    return write_tiny_model(tmp_path_factory.mktemp("models") / "tiny-gemma3.gguf", "gemma3")
