from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kvtui.model.geometry import Geometry, geometry
from kvtui.model.header import Header, read_header
from tests.model.gguf_bytes import gguf, model, write


@pytest.fixture
def header_of(tmp_path: Path) -> Callable[..., Header]:
    """Reads back a header with the given architecture and keys."""

    def make(arch: str, **keys: Any) -> Header:
        return read_header(write(tmp_path / f"{arch}.gguf", gguf(model(arch, **keys))))

    return make


@pytest.fixture
def geometry_of(header_of: Callable[..., Header]) -> Callable[..., Geometry]:
    def make(arch: str, **keys: Any) -> Geometry:
        return geometry(header_of(arch, **keys))

    return make
