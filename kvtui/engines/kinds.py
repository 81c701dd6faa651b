"""The kinds of engine that can be driven, by the name the operator gives (`--engine`) and sessions record."""

from __future__ import annotations

KINDS: tuple[str, ...] = ("llama-server", "embedded", "vllm", "ollama")
