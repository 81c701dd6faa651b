"""Engines for these tests: the embedded one with a tiny model, and misbehaving ones."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event

import pytest

from kvtui.core.config import RunConfig
from kvtui.engines.base import Engine
from kvtui.engines.find import embedded_engine
from kvtui.engines.llama_server.abilities import read_abilities
from kvtui.engines.llama_server.client import EngineClient
from kvtui.engines.llama_server.server import LlamaServer
from kvtui.engines.process import EngineProcess
from tests.engines import misbehaving

READY_S = 60.0


def ignore(*_: object) -> None:
    """A callback that does nothing."""


@pytest.fixture
def misbehave(tmp_path: Path) -> Iterator[Callable[..., EngineProcess]]:
    """Launch a misbehaving engine; it is ended after the test."""
    started: list[EngineProcess] = []

    def launch(mode: str, **options: object) -> EngineProcess:
        engine = LlamaServer((sys.executable, misbehaving.__file__, mode), "test-server")
        engine._abilities = read_abilities(misbehaving.HELP, "")
        config = RunConfig(model=str(tmp_path / "model"), n_ctx=512)
        process = EngineProcess(
            engine.label,
            lambda port: engine.command(config, port),
            tmp_path / "engine.log",
            ignore,
            **options,  # type: ignore[arg-type]
        )
        started.append(process)
        return process

    yield launch
    for process in started:
        process.stop()


@pytest.fixture(scope="session")
def embedded() -> Engine:
    """The embedded engine, asked for its abilities once."""
    pytest.importorskip("xllamacpp")
    engine = embedded_engine()
    engine.abilities()
    return engine


@pytest.fixture(scope="module")
def running(
    embedded: Engine, tiny_swa_model: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[EngineProcess]:
    """A ready embedded engine with one slot of 2,048 tokens, shared by a module's tests."""
    config = RunConfig(model=str(tiny_swa_model), n_ctx=2048, n_gpu_layers=0, threads=1)
    process = embedded.launch(config, tmp_path_factory.mktemp("run") / "engine.log", ignore)
    try:
        process.wait_ready(READY_S, Event(), ignore)
        yield process  # type: ignore[misc]
    finally:
        process.stop()


@pytest.fixture
def client(running: EngineProcess) -> Iterator[EngineClient]:
    """A client of `running`."""
    with EngineClient(running.base_url) as client:
        yield client
