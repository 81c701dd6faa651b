"""What a context keeps, as shapes: caches, recurrent state and other state per sequence, before any size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

Exactness = Literal["exact", "approximate", "unknown"]


class LayerWidth(NamedTuple):
    """What layer `layer` stores per cell: `k` and `v` values (0: nothing is stored)."""

    layer: int
    k: int
    v: int


@dataclass(frozen=True, slots=True)
class CacheShape:
    """One cache. Its cells follow the context (`ratio` tokens each) or, with `window`, the sliding window.

    `v_padded` is the width that every V row takes when flash attention is off (the widest layer's).
    `per_sequence` caches have one stream per sequence even where the context is unified.
    """

    kind: str
    layers: tuple[LayerWidth, ...]
    window: int = 0
    sliding: bool = False
    ratio: int = 1
    per_sequence: bool = False
    v_padded: int = 0


@dataclass(frozen=True, slots=True)
class RecurrentShape:
    """Recurrent state per sequence: f32 values per layer of the convolution (`r`) and of the state (`s`).

    `layers` are the recurrent ones; `p_layers` also keep `p` values of n-gram history.
    """

    layers: tuple[int, ...]
    r: int
    s: int
    p_layers: int = 0
    p: int = 0


@dataclass(frozen=True, slots=True)
class StateShape:
    """Other state that a context keeps, `n_bytes` per sequence."""

    kind: str
    n_bytes: int


@dataclass(frozen=True, slots=True)
class Memory:
    """All that a context keeps, and what the engine demands of it.

    `equal_types`: K and V must have the same type. `even_batches`: the micro-batch must divide evenly among the
    sequences of a context that is not unified. `one_stream`: several sequences only in a unified context.
    """

    caches: tuple[CacheShape, ...] = ()
    recurrent: RecurrentShape | None = None
    states: tuple[StateShape, ...] = ()
    equal_types: bool = False
    even_batches: bool = False
    one_stream: bool = False
    refused: str | None = None
