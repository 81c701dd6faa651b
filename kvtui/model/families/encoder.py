"""Architectures that keep nothing between batches: encoders and diffusion models."""

from __future__ import annotations

from kvtui.model.families.arch import Arch
from kvtui.model.layout import Layout
from kvtui.model.memory import nothing

_ENCODERS = (
    "bert clef eurobert jina-bert-v2 jina-bert-v3 modern-bert neo-bert nomic-bert nomic-bert-moe "
    "wavtokenizer-dec "
)

_BIDIRECTIONAL = ("gemma-embedding", "dream", "llada", "llada-moe", "rnd1")


def _bidirectional(layout: Layout) -> None:
    layout.causal = False


ENCODERS = (
    *(Arch(name, "no cache (encoder)", memory=nothing) for name in _ENCODERS.split()),
    *(Arch(name, "no cache (bidirectional)", rule=_bidirectional, memory=nothing) for name in _BIDIRECTIONAL),
)
