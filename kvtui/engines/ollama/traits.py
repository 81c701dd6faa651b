"""What Ollama can be asked for, whoever runs it."""

from __future__ import annotations

from kvtui.engines.base import Traits

TRAITS = Traits(
    "ollama",
    (("f16", "f16"), ("q8_0", "q8_0"), ("q4_0", "q4_0")),
    ("context", "kv-types", "slots", "flash-attention", "micro-batch", "gpu-layers"),
    model_is_tag=True,
    ties=(("n_batch", "n_ubatch"),),
)
"""Keys and values always have one type, batch and micro-batch one number."""
