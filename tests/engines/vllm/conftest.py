"""The stand-in for the `vllm` command."""

from __future__ import annotations

import json
import struct
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kvtui.engines.vllm.server import Vllm


@pytest.fixture
def hf_model(tmp_path: Path) -> Path:
    """A folder as Hugging Face lays it out: 32 layers, 8 KV heads of 128, 131,072 bytes a token at 16 bits."""
    folder = tmp_path / "model"
    folder.mkdir()
    config = {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "hidden_size": 4096,
        "head_dim": 128,
        "max_position_embeddings": 131072,
        "torch_dtype": "bfloat16",
    }
    (folder / "config.json").write_text(json.dumps(config))
    header = json.dumps({"w": {"dtype": "BF16", "shape": [4], "data_offsets": [0, 8]}}).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(8))
    return folder


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
