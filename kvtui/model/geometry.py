"""From a model file's header to what a context keeps, layer by layer."""

from __future__ import annotations

from dataclasses import dataclass

from kvtui.model.families import ARCHITECTURES
from kvtui.model.families.arch import Arch
from kvtui.model.header import Header
from kvtui.model.layout import Layout, Rejected, Undetermined, base_layout
from kvtui.model.memory import attention
from kvtui.model.shapes import CacheShape, Exactness, LayerWidth, Memory, RecurrentShape, StateShape

__all__ = ["CacheShape", "Exactness", "Geometry", "RecurrentShape", "StateShape", "geometry"]


@dataclass(frozen=True, slots=True)
class Geometry:
    """What a context of this model keeps, before any size is known.

    `exactness` is `exact` where the engine's own rule for the architecture was applied, `approximate` where an
    unknown architecture was taken for full attention, `unknown` where nothing can be said; `notes` give the
    reasons. `heads` are the K and V head lengths of each trunk layer; `nextn` are the next-token-prediction layers,
    which a context for speculation keeps beside the main one. `conventional_k`/`_v` are the values per
    token over all layers in the textbook formula. `refused` says why the engine makes no context of the file.
    """

    arch: str
    n_layer: int | None
    n_ctx_train: int | None
    exactness: Exactness
    notes: tuple[str, ...] = ()
    caches: tuple[CacheShape, ...] = ()
    recurrent: RecurrentShape | None = None
    states: tuple[StateShape, ...] = ()
    heads: tuple[tuple[int, int], ...] = ()
    nextn: tuple[LayerWidth, ...] = ()
    equal_types: bool = False
    even_batches: bool = False
    one_stream: bool = False
    flash_attn: bool = True
    causal: bool = True
    refused: str | None = None
    conventional_k: int = 0
    conventional_v: int = 0


def geometry(header: Header) -> Geometry:
    """What a context of this model keeps. Never raises for a header that `read_header` returned."""
    arch = ARCHITECTURES.get(header.arch)
    try:
        if header.arch == "clip" and arch is not None:
            return _unsettled(header, "exact", "", refused=arch.memory(_empty(header)).refused)
        layout = base_layout(header)
        if arch is None:
            return _approximate(header, layout)
        return _apply(header, layout, arch)
    except Rejected as reason:
        if arch is None:
            return _unsettled(header, "unknown", f"the architecture {header.arch} is not known; {reason}")
        return _unsettled(header, "exact", "", refused=str(reason))
    except Undetermined as reason:
        return _unsettled(header, "unknown", str(reason))


def _apply(header: Header, layout: Layout, arch: Arch) -> Geometry:
    conventional = _conventional(layout)
    arch.rule(layout)
    memory = arch.memory(layout)
    return _build(header, layout, memory, "exact", conventional, flash_attn=arch.flash_attn)


def _approximate(header: Header, layout: Layout) -> Geometry:
    layout.notes.append(
        f"the architecture {header.arch} is not known: taken for full attention in every layer"
    )
    prefix = f"{header.arch}."
    hints = {hint for key in header.metadata for start, hint in _HINTS if key.startswith(prefix + start)}
    if hints:
        layout.notes.append(
            f"but its file speaks of {', '.join(sorted(hints))}: what is kept may be far less"
        )
    return _build(header, layout, attention(layout), "approximate", _conventional(layout))


# Keys that show that an unknown architecture does not keep everything in every layer.
_HINTS = (
    ("attention.sliding_window", "sliding windows"),
    ("attention.key_length_mla", "latent attention"),
    ("attention.shared_kv_layers", "shared KV layers"),
    ("attention.compress_ratios", "compressed caches"),
    ("attention.recurrent_layers", "recurrent layers"),
    ("ssm.", "recurrent layers"),
    ("wkv.", "recurrent layers"),
    ("kda.", "recurrent layers"),
    ("shortconv.", "recurrent layers"),
)


def _build(
    header: Header,
    layout: Layout,
    memory: Memory,
    exactness: Exactness,
    conventional: tuple[int, int],
    *,
    flash_attn: bool = True,
) -> Geometry:
    heads = tuple(
        (layout.head_k_swa, layout.head_v_swa) if layout.swa[i] else (layout.head_k, layout.head_v)
        for i in range(layout.n_layer)
    )
    nextn = tuple(
        LayerWidth(i, layout.width_k(i), layout.width_v(i))
        for i in range(layout.n_layer, layout.n_layer_all if layout.filter_nextn else 0)
    )
    return Geometry(
        arch=header.arch,
        n_layer=header.n_layer,
        n_ctx_train=layout.n_ctx_train,
        exactness=exactness,
        notes=tuple(layout.notes),
        caches=memory.caches,
        recurrent=memory.recurrent,
        states=memory.states,
        heads=heads,
        nextn=nextn,
        equal_types=memory.equal_types,
        even_batches=memory.even_batches,
        one_stream=memory.one_stream,
        flash_attn=flash_attn,
        causal=layout.causal,
        refused=memory.refused or _empty_buffer(memory),
        conventional_k=conventional[0],
        conventional_v=conventional[1],
    )


def _empty_buffer(memory: Memory) -> str | None:
    """The engine cannot allocate a buffer of nothing."""
    for cache in memory.caches:
        if cache.layers and not any(layer.k or layer.v for layer in cache.layers):
            return f"the layers of the {cache.kind} cache have no KV heads: the engine fails to allocate it"
    state = memory.recurrent
    if state is not None and state.layers and not (state.r or state.s or state.p * state.p_layers):
        return "the recurrent state is empty: the engine fails to allocate it"
    return None


def _conventional(layout: Layout) -> tuple[int, int]:
    """Values of K and V per token in the textbook formula: every layer, every KV head, the whole context."""
    heads = sum(layout.kv_heads)
    return heads * layout.head_k, heads * layout.head_v


def _empty(header: Header) -> Layout:
    return Layout(header, 0, 0, 0, 0, [], [], [], 0, 0, 0, 0, True)


def _unsettled(header: Header, exactness: Exactness, note: str, refused: str | None = None) -> Geometry:
    return Geometry(
        arch=header.arch,
        n_layer=header.n_layer,
        n_ctx_train=header.n_ctx_train,
        exactness=exactness,
        notes=(note,) if note else (),
        refused=refused,
    )
