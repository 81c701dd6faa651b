"""A store with the tiny model in it, and a program that stands in for Ollama."""

from __future__ import annotations

import hashlib
import json
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event

import pytest

from kvtui.core.config import RunConfig
from kvtui.engines.ollama.client import OllamaClient
from kvtui.engines.ollama.engine import OllamaEngine
from kvtui.engines.ollama.process import OllamaProcess
from tests.engines.ollama import fake_ollama
from tests.tiny_model import write_tiny_model

TAG = "tiny:latest"
CONFIG = RunConfig(
    TAG, 1024, "q8_0", "q8_0", flash_attn="on", n_parallel=1, n_batch=256, n_ubatch=256, n_gpu_layers=0
)


def put_in_store(store: Path, model: Path, name: str) -> None:
    """`model` as `name:latest`, laid out as `ollama create` does."""
    about = {
        "model_format": "gguf",
        "model_family": "llama",
        "model_families": ["llama"],
        "model_type": "323K",
        "file_type": "F16",
        "architecture": "amd64",
        "os": "linux",
    }
    (store / "blobs").mkdir(parents=True, exist_ok=True)
    manifest = store / "manifests" / "registry.ollama.ai" / "library" / name / "latest"
    manifest.parent.mkdir(parents=True)
    document = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.docker.distribution.manifest.v2+json",
        "config": blob(store, "application/vnd.docker.container.image.v1+json", json.dumps(about).encode()),
        "layers": [blob(store, "application/vnd.ollama.image.model", model.read_bytes())],
    }
    manifest.write_text(json.dumps(document))


def blob(store: Path, kind: str, data: bytes) -> dict[str, object]:
    """`data` among the blobs, and how a manifest names it."""
    digest = hashlib.sha256(data).hexdigest()
    (store / "blobs" / f"sha256-{digest}").write_bytes(data)
    return {"mediaType": kind, "digest": f"sha256:{digest}", "size": len(data)}


@dataclass(frozen=True)
class Stand:
    """A store that has `tiny`, and a program that stands in for Ollama of an era."""

    folder: Path
    patch: pytest.MonkeyPatch

    @classmethod
    def make(cls, folder: Path, patch: pytest.MonkeyPatch) -> Stand:
        """Everything below `folder`, named by the environment."""
        put_in_store(folder / "models", write_tiny_model(folder / "tiny.gguf"), "tiny")
        patch.setenv("OLLAMA_MODELS", str(folder / "models"))
        patch.setenv("HOME", str(folder))
        return cls(folder, patch)

    def program(self, era: str = "0.33", fault: str = "") -> str:
        """The path of the program; its era and fault hold until the next one is made."""
        self.patch.setenv("FAKE_OLLAMA_ERA", era)
        self.patch.setenv("FAKE_OLLAMA_FAULT", fault)
        path = self.folder / "ollama"
        path.write_text(
            f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -IS {shlex.quote(fake_ollama.__file__)} "$@"\n'
        )
        path.chmod(0o755)
        return str(path)

    @contextmanager
    def started(self, program: str, config: RunConfig) -> Iterator[OllamaProcess]:
        """A daemon that is ended whatever happens."""
        running = OllamaEngine(program).launch(config, self.folder / "engine.log", lambda lines: None)
        try:
            yield running
        finally:
            running.stop()

    @contextmanager
    def asked(self, program: str, config: RunConfig) -> Iterator[tuple[OllamaProcess, OllamaClient]]:
        """A daemon with the model loaded, and a client."""
        with self.started(program, config) as running:
            running.wait_ready(30, Event(), lambda p: None)
            with running.connect() as client:
                assert isinstance(client, OllamaClient)
                yield running, client


@pytest.fixture
def stand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stand:
    """One of a test's own."""
    return Stand.make(tmp_path, monkeypatch)


@pytest.fixture(scope="module", params=["0.33", "0.12"])
def any_era(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, OllamaProcess, OllamaClient]]:
    """A loaded model of each era, shared by the tests that do no harm to it."""
    with pytest.MonkeyPatch.context() as patch:
        stand = Stand.make(tmp_path_factory.mktemp("ollama"), patch)
        with stand.asked(stand.program(request.param), CONFIG) as (running, client):
            yield request.param, running, client
