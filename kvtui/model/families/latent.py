"""Latent attention (MLA: keys only, one wide head), with and without a sparse-attention indexer."""

from __future__ import annotations

from kvtui.model.families.arch import Arch
from kvtui.model.layout import Layout, Rejected
from kvtui.model.memory import attention, attention_caches, cache, narrow, trunk
from kvtui.model.shapes import CacheShape, LayerWidth, Memory

# GLM-5.2: indexers in layers 0 to 2, then in every 4th; the table of the engine ends with layer 77.
_GLM_5_2_LAYERS = 78
_GLM_5_2_CONTEXT = 1_048_576


def _latent_if_given(layout: Layout) -> None:
    layout.required("attention.kv_lora_rank")
    layout.latent_attention(required=False)
    if not layout.latent:
        layout.notes.append("no latent lengths in the file: full heads are kept")


def _latent_only(layout: Layout) -> None:
    layout.latent_attention(required=False)
    if not layout.latent:
        raise Rejected(f"{layout.header.arch} without latent lengths: the engine will not load this file")


def _deepseek32(layout: Layout) -> None:
    layout.required("attention.kv_lora_rank")
    _latent_only(layout)
    layout.indexer()
    layout.indexer_full = [True] * layout.n_layer_all


def _glm_dsa(layout: Layout) -> None:
    layout.required("attention.kv_lora_rank")
    _latent_only(layout)
    layout.indexer()
    if layout.n_ctx_train < _GLM_5_2_CONTEXT:
        full = [1] * layout.n_layer
    else:
        full = [int(i < 2 or (i < _GLM_5_2_LAYERS and i % 4 == 2)) for i in range(layout.n_layer)]
    _indexer_types(layout, full)


def _indexer_types(layout: Layout, default: list[int]) -> None:
    """Which trunk layers own an indexer; the others share the one before."""
    types = layout.per_layer("attention.indexer.types", default, layout.n_layer)
    layout.indexer_full = [v != 0 for v in types] + [False] * layout.n_nextn


def _sparse(layout: Layout) -> Memory:
    keep = trunk(layout)
    return Memory(
        (cache(layout, "full", keep), _indexer_cache(layout)),
        equal_types=layout.latent,
    )


def _indexer_cache(layout: Layout) -> CacheShape:
    return narrow(
        layout, "indexer", lambda i: i < layout.n_layer and layout.indexer_full[i], layout.indexer_head, 0
    )


def _hy_v4(layout: Layout) -> None:
    _latent_only(layout)
    layout.filter_nextn = False
    if not layout.optional("attention.indexer.top_k"):
        return
    layout.indexer()
    if layout.n_nextn:
        raise Rejected("an indexer together with next-token-prediction layers, the engine stops")
    _indexer_types(layout, [0] * layout.n_layer)
    if not layout.indexer_full[0]:
        raise Rejected("the first layer owns no indexer, the engine will not load this file")


def _hy_v4_memory(layout: Layout) -> Memory:
    return _sparse(layout) if layout.indexer_head else attention(layout)


def _dots3note(layout: Layout) -> None:
    _latent_only(layout)
    layout.slide(layout.required("attention.sliding_window"))
    layout.indexer()
    types = layout.array("attention.indexer.types")
    if types is None:
        raise Rejected("dots3note.attention.indexer.types is missing")
    full = [v != 0 for v in types[: layout.n_layer_all]]
    layout.indexer_full = full + [False] * (layout.n_layer_all - len(full))


def _dots3note_memory(layout: Layout) -> Memory:
    # A sliding layer with an indexer keeps rows of its own key length: the engine sets that of full layers only.
    layers = tuple(
        LayerWidth(i, layout.head_k_swa if layout.swa[i] else layout.indexer_head, 0)
        for i in range(layout.n_layer)
        if layout.indexer_full[i]
    )
    caches = (*attention_caches(layout, trunk(layout)), CacheShape("indexer", layers))
    return Memory(caches, equal_types=layout.latent)


def _minimax_m3(layout: Layout) -> None:
    layout.indexer()
    layout.filter_nextn = False


def _minimax_m3_memory(layout: Layout) -> Memory:
    dense = layout.optional("leading_dense_block_count") or 0
    indexer = narrow(layout, "indexer", lambda i: i >= dense, layout.indexer_head, layout.head_v)
    return Memory((cache(layout, "full", trunk(layout)), indexer))


LATENT = (
    Arch("deepseek2", "latent attention (keys only) where the file has its lengths", _latent_if_given),
    Arch("mistral4", "latent attention (keys only) where the file has its lengths", _latent_if_given),
    Arch("deepseek32", "latent attention and an indexer in every layer", _deepseek32, _sparse),
    Arch(
        "glm-dsa",
        "latent attention and indexers in the layers that the file or GLM-5.2 names",
        _glm_dsa,
        _sparse,
    ),
    Arch("hy_v4", "latent attention, with indexers where the file has them", _hy_v4, _hy_v4_memory),
    Arch("dots3note", "latent attention, sliding and full layers, indexers", _dots3note, _dots3note_memory),
    Arch(
        "minimax-m3",
        "full attention and an indexer after the leading dense layers",
        _minimax_m3,
        _minimax_m3_memory,
    ),
)
