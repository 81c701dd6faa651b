"""Fixtures for everybody."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tiny_model import write_tiny_model


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real model with full attention in every layer, a few hundred kilobytes."""
    return write_tiny_model(tmp_path_factory.mktemp("models") / "tiny-llama.gguf", "llama")


@pytest.fixture(scope="session")
def tiny_swa_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real model with five sliding-window layers and one of full attention."""
    return write_tiny_model(tmp_path_factory.mktemp("models") / "tiny-gemma3.gguf", "gemma3")
