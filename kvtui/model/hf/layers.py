"""What one layer of a model keeps, as its `config.json` says it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

AttentionKind = Literal["full", "sliding", "chunked", "latent"]


@dataclass(frozen=True, slots=True)
class AttentionLayer:
    """Keys and values per token: `kv_heads` heads of `head_k` + `head_v` values.

    `window` is in tokens (of sliding and chunked layers). A latent layer keeps one vector of `head_k` values.
    """

    kind: AttentionKind
    kv_heads: int
    head_k: int
    head_v: int
    window: int = 0


@dataclass(frozen=True, slots=True)
class StateLayer:
    """State per sequence, whatever its length: values of the convolution and of the recurrence.

    `recurrence_f32`: the recurrence is kept in f32 whatever the model's type is.
    """

    convolution: int
    recurrence: int
    recurrence_f32: bool = False


Layer = AttentionLayer | StateLayer
