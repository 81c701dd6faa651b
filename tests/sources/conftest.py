"""Stores and caches as the programs lay them out, in a home of the test's own."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from tests.model.gguf_bytes import gguf, model, tensor

SMALL = gguf(
    model("llama", block_count=2, attention__head_count=4), [tensor("token_embd.weight", (32, 4), 0, 0)]
)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home without models, and none of the service's."""
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    for name in ("OLLAMA_MODELS", "HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    monkeypatch.setattr("kvtui.sources.ollama.SERVICE_STORE", str(tmp_path / "service"))
    return folder


class Store:
    """A store of Ollama that tests fill."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "manifests").mkdir(parents=True)
        (root / "blobs").mkdir()

    def blob(self, data: bytes) -> str:
        digest = hashlib.sha256(data).hexdigest()
        (self.root / "blobs" / f"sha256-{digest}").write_bytes(data)
        return f"sha256:{digest}"

    def layer(self, kind: str, data: bytes) -> dict[str, Any]:
        media = f"application/vnd.ollama.image.{kind}"
        return {"mediaType": media, "digest": self.blob(data), "size": len(data)}

    def tag(self, name: str, *layers: dict[str, Any]) -> Path:
        path = self.root / "manifests" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"schemaVersion": 2, "layers": list(layers)}))
        return path


@pytest.fixture
def store(home: Path) -> Store:
    return Store(home / ".ollama" / "models")


def hub_model(
    cache: Path, repo: str, files: dict[str, bytes], commit: str = "a" * 40, ref: bool = True
) -> Path:
    """A model of the Hugging Face cache: files are links into its blobs."""
    folder = cache / ("models--" + repo.replace("/", "--"))
    snapshot = folder / "snapshots" / commit
    snapshot.mkdir(parents=True)
    (folder / "blobs").mkdir(exist_ok=True)
    for name, data in files.items():
        blob = folder / "blobs" / hashlib.sha256(data).hexdigest()
        blob.write_bytes(data)
        (snapshot / name).symlink_to(blob)
    if ref:
        (folder / "refs").mkdir()
        (folder / "refs" / "main").write_text(commit)
    return snapshot


LLAMA = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096, "num_attention_heads": 32,
    "num_key_value_heads": 8, "num_hidden_layers": 32, "max_position_embeddings": 131072, "torch_dtype": "bfloat16",
}  # fmt: skip
CONFIG = json.dumps(LLAMA).encode()


def safetensors(n_bytes: int) -> bytes:
    """A file of one tensor, its data included."""
    head = json.dumps(
        {"w": {"dtype": "U8", "shape": [n_bytes], "data_offsets": [0, n_bytes]}, "__metadata__": {}}
    )
    return len(head).to_bytes(8, "little") + head.encode() + b"\1" * n_bytes
