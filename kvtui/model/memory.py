"""From a layout to the caches of a context: the arrangements of llama.cpp b11434 (`create_memory`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from kvtui.model.layout import Layout, Rejected
from kvtui.model.shapes import CacheShape, LayerWidth, Memory, RecurrentShape

Keep = Callable[[int], bool]


def cache(layout: Layout, kind: str, keep: Keep, *, window: int = 0, sliding: bool = False) -> CacheShape:
    """The cache of all layers that own one and that `keep` picks."""
    owners = range(
        layout.n_layer_all if layout.kv_layers is None else min(layout.kv_layers, layout.n_layer_all)
    )
    layers = tuple(LayerWidth(i, layout.width_k(i), layout.width_v(i)) for i in owners if keep(i))
    widest = max(layout.width_v(i) for i in range(layout.n_layer_all))
    return CacheShape(kind, layers, window=window, sliding=sliding, v_padded=widest)


def narrow(layout: Layout, kind: str, keep: Keep, k: int, v: int) -> CacheShape:
    """A cache with one head of `k` and `v` values, as indexers have."""
    layers = tuple(LayerWidth(i, k, v) for i in range(layout.n_layer_all) if keep(i))
    return CacheShape(kind, layers, v_padded=v)


def attention_caches(layout: Layout, keep: Keep) -> tuple[CacheShape, ...]:
    """One cache, or two where some layers slide: those that attend to everything, and the sliding ones."""
    if not layout.windowed:
        return (cache(layout, "full", keep),)
    return (
        cache(layout, "non-SWA", lambda i: keep(i) and not layout.swa[i]),
        cache(layout, "SWA", lambda i: keep(i) and layout.swa[i], window=layout.window, sliding=True),
    )


def trunk(layout: Layout) -> Keep:
    """Which layers the main context keeps: next-token-prediction layers are left to their own context."""
    if layout.n_nextn > 0 and layout.n_layer > 0 and layout.filter_nextn:
        return lambda i: i < layout.n_layer
    return lambda _: True


def attention(layout: Layout) -> Memory:
    """Attention alone: the arrangement of all architectures that have no other."""
    if layout.windowed != any(layout.swa):
        raise Rejected("the sliding-window pattern and the window contradict each other, the engine stops")
    return Memory(attention_caches(layout, trunk(layout)), equal_types=layout.latent)


def nothing(_: Layout) -> Memory:
    """Encoders and diffusion models: no cache at all."""
    return Memory()


def recurrent_only(layout: Layout, r: int, s: int) -> Memory:
    """No attention: every layer keeps a state."""
    return Memory(recurrent=RecurrentShape(tuple(range(layout.n_layer)), r, s))


def hybrid(
    layout: Layout,
    r: int,
    s: int,
    *,
    attends: Keep | None = None,
    recurs: Keep | None = None,
    extra: Iterable[CacheShape] = (),
) -> Memory:
    """Attention in some layers, recurrent state in others (or in the same)."""
    attends = attends or (lambda i: not layout.recurrent[i])
    recurs = recurs or (lambda i: layout.recurrent[i])
    states = tuple(i for i in range(layout.n_layer) if recurs(i))
    return Memory(
        attention_caches(layout, attends) + tuple(extra),
        RecurrentShape(states, r, s),
        equal_types=layout.latent,
    )
