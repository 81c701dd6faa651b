"""Engines told from command lines."""

from __future__ import annotations

import pytest

from kvtui.engines.attach.kinds import classify


@pytest.mark.parametrize(
    ("command", "kind"),
    [
        ("/usr/local/bin/llama-server -m a.gguf", "llama-server"),
        ("llama-server-cuda -m a.gguf", "llama-server"),
        ("/opt/ik/llama-server.exe -m a.gguf", "llama-server"),
        ("llama serve -m a.gguf", "llama-server"),
        ("./server -m models/a.gguf -c 2048", "llama-server"),
        ("./mistral.llamafile --server", "llama-server"),
        ("python3.11 -P -m kvtui.engines.embedded -m a.gguf", "llama-server"),
        ("/usr/bin/python3 -m llama_cpp.server --model a.gguf", "llama-cpp-python"),
        ("ollama serve", "ollama"),
        ("/usr/bin/ollama runner --model x --port 4", "ollama-runner"),
        ("/tmp/ollama123/runners/cuda/ollama_llama_server --model x", "ollama-runner"),
        ("/venv/bin/python /venv/bin/vllm serve org/model --port 8000", "vllm"),
        ("python -m vllm.entrypoints.openai.api_server --model m", "vllm"),
        ("VLLM::EngineCore", "vllm-worker"),
        ("VLLM::Worker_TP0", "vllm-worker"),
        ("ollama run gemma3", None),
        ("vllm bench serve", None),
        ("vim llama-server.log", None),
        ("bash -c llama-server -m a.gguf", None),
        ("sudo llama-server -m a.gguf", None),
        ("python -c import llama_cpp.server", None),
        ("python -m pytest llama-server", None),
        ("/usr/bin/server --config nothing", None),
        ("llama-cli -m a.gguf", None),
        ("", None),
    ],
)
def test_which_engine_a_command_line_runs(command: str, kind: str | None) -> None:
    assert classify(command.split()) == kind
