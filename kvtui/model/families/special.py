"""Architectures whose memory is arranged like no other: compressed caches, loops, routers, drafts."""

from __future__ import annotations

from dataclasses import replace

from kvtui.model.families.arch import Arch
from kvtui.model.layout import MAX_LAYERS, Layout, Rejected, Undetermined
from kvtui.model.memory import attention, attention_caches, narrow
from kvtui.model.shapes import CacheShape, LayerWidth, Memory, RecurrentShape, StateShape

_DRAFT = "a draft model: its context exists only beside that of its target"


def _refused(why: str) -> Memory:
    return Memory(refused=why)


# DeepSeek V4: a sliding raw cache in every layer, compressed caches of 4 or 128 tokens per cell in some

_CSA, _HCA = 4, 128


def _deepseek4(layout: Layout) -> None:
    probe = f"blk.{layout.n_layer}.nextn.eh_proj.weight"
    if layout.n_nextn and all(t.name != probe for t in layout.header.tensors):
        layout.n_nextn = 0
    layout.indexer()
    layout.slide(layout.required("attention.sliding_window"), 0, always=True)
    layout.swa = [True] * layout.n_layer_all


def _deepseek4_memory(layout: Layout) -> Memory:
    ratios = layout.array("attention.compress_ratios")
    if ratios is None or len(ratios) < layout.n_layer_all:
        raise Rejected("attention.compress_ratios is missing or shorter than the layers")
    layout.latent = True  # keys alone are kept, in every cache
    csa = [i for i in range(layout.n_layer_all) if ratios[i] == _CSA]
    hca = [i for i in range(layout.n_layer_all) if ratios[i] == _HCA]
    raw = attention_caches(layout, lambda _: True)
    caches = (
        *(CacheShape(c.kind, c.layers, c.window, c.sliding, per_sequence=True) for c in raw),
        _compressed(layout, "CSA", csa, _CSA),
        _compressed(layout, "HCA", hca, _HCA),
        CacheShape(
            "indexer",
            tuple(LayerWidth(i, layout.indexer_head, 0) for i in csa),
            ratio=_CSA,
            per_sequence=True,
        ),
    )
    head = layout.head_k_swa if layout.swa[0] else layout.head_k
    states = (
        _compressor("csa", layout, csa, 2 * head, 2 * _CSA),
        _compressor("hca", layout, hca, head, _HCA),
        _compressor("lid", layout, csa, 2 * layout.indexer_head, 2 * _CSA),
    )
    return Memory(caches, states=states, equal_types=True)


def _compressed(layout: Layout, kind: str, layers: list[int], ratio: int) -> CacheShape:
    widths = tuple(LayerWidth(i, layout.width_k(i), 0) for i in layers)
    return CacheShape(kind, widths, ratio=ratio, per_sequence=True)


def _compressor(kind: str, layout: Layout, layers: list[int], width: int, rows: int) -> StateShape:
    # Two f32 tensors (keys and scores) of `width` values by `rows`, in the trunk's layers only.
    n_layers = sum(1 for i in layers if i < layout.n_layer)
    return StateShape(kind, 2 * 4 * width * rows * n_layers)


# Qwen4-Exp: delta nets, attention with pooled indexer keys, n-gram history in one layer


def _qwen4exp(layout: Layout) -> None:
    layout.recur_by_interval(4)
    layout.indexer()


def _qwen4exp_memory(layout: Layout) -> Memory:
    kernel, inner = layout.required("ssm.conv_kernel"), layout.required("ssm.inner_size")
    state, groups = layout.required("ssm.state_size"), layout.required("ssm.group_count")
    ratios = set(layout.per_layer("attention.compress_ratios", [0], layout.n_layer_all)) - {0}
    if len(ratios) > 1 or ratios == {1} or 0 in (kernel, inner, state, groups, layout.indexer_head):
        raise Rejected("compress ratios or state sizes that the engine will not load")

    def attends(i: int) -> bool:
        return i < layout.n_layer and not layout.recurrent[i]

    # With pooling a cached row holds the raw key and the pooled one.
    indexer = narrow(layout, "indexer", attends, layout.indexer_head * (2 if ratios else 1), 0)
    recurrent = tuple(i for i in range(layout.n_layer) if layout.recurrent[i])
    p_layers, p = _ngram_history(layout)
    shape = RecurrentShape(
        recurrent, (kernel - 1) * (inner + 2 * groups * state), state * inner, p_layers=p_layers, p=p
    )
    return Memory((*attention_caches(layout, attends), indexer), shape)


def _ngram_history(layout: Layout) -> tuple[int, int]:
    layers = layout.array("ple.layers")
    if not layers:
        return 0, 0
    if len(layers) != 1 or layers[0] >= layout.n_layer or not layout.recurrent[layers[0]]:
        raise Rejected("ple.layers must name one recurrent layer")
    kernel, size = layout.required("ple.conv_kernel"), layout.required("ple.ngram_size")
    return 1, (kernel - 1) * size * layout.required("hyper_connection.count") * layout.n_embd


# Loops and routers


def _nanbeige(layout: Layout) -> None:
    loops = layout.optional("num_loops")
    loops = 1 if loops is None else loops
    physical = layout.n_layer
    if loops < 1 or physical * loops > MAX_LAYERS:
        raise Rejected(f"num_loops is {loops}, the engine stops")
    if loops > 1:
        layout.n_layer_all = physical * loops
        layout.heads = layout.heads[:physical] * loops
        layout.kv_heads = layout.kv_heads[:physical] * loops
        layout.feed_forward = layout.feed_forward[:physical] * loops
        layout.swa = [False] * layout.n_layer_all
        layout.recurrent = [False] * layout.n_layer_all
        layout.notes.append(f"{physical} layers run {loops} times, each pass with a cache of its own")


def _graniteswitch(layout: Layout) -> None:
    # One more layer at the end, with a single head, holds what routes tokens to adapters.
    router = layout.n_layer
    if router >= MAX_LAYERS:
        raise Rejected("no room for the router layer, the engine stops")
    layout.n_layer_all, layout.n_nextn, layout.filter_nextn = router + 1, 1, False
    layout.heads = [*layout.heads[:router], 1]
    layout.kv_heads = [*layout.kv_heads[:router], 1]
    layout.feed_forward = [*layout.feed_forward[:router], 0]
    layout.swa, layout.recurrent = [False] * (router + 1), [False] * (router + 1)


# Drafts


def _assistant(_: Layout) -> Memory:
    return _refused(_DRAFT)


def _standalone(layout: Layout) -> bool:
    names = {t.name for t in layout.header.tensors}
    if not names:
        raise Undetermined("without a tensor table it cannot be told whether this draft stands alone")
    return "token_embd.weight" in names and "output.weight" in names


def _eagle3(layout: Layout) -> Memory:
    return attention(layout) if _standalone(layout) else _refused(_DRAFT)


def _dflash(layout: Layout) -> None:
    if layout.optional("hyper_connection.count"):
        layout.slide(layout.required("attention.sliding_window"), 0, always=True)
        layout.swa = [True] * layout.n_layer_all
        layout.filter_nextn = False
    elif layout.optional("attention.sliding_window"):
        layout.slide(layout.required("attention.sliding_window"))


def _clip(_: Layout) -> Memory:
    return _refused("a projector: it belongs beside a model, the engine makes no context of it")


def _t5(layout: Layout) -> Memory:
    # The bias of relative positions is not split among streams.
    return replace(attention(layout), one_stream=True)


def _no_model(_: Layout) -> Memory:
    return _refused("the engine lists this architecture but cannot load it")


SPECIAL = (
    Arch("t5", "full attention in the decoder", memory=_t5),
    Arch("gptj", "listed by the engine, not implemented", memory=_no_model),
    Arch(
        "deepseek4",
        "sliding raw cache, compressed caches and indexers, all per sequence",
        _deepseek4,
        _deepseek4_memory,
    ),
    Arch(
        "qwen4exp", "delta nets, attention with pooled indexers, n-gram history", _qwen4exp, _qwen4exp_memory
    ),
    Arch("nanbeige", "full attention; looped layers each keep a cache per pass", _nanbeige),
    Arch("graniteswitch", "full attention and a one-head router layer", _graniteswitch),
    Arch("gemma4-assistant", "draft: shares its target's cache", memory=_assistant),
    Arch("eagle3", "draft: full attention", memory=_eagle3),
    Arch("dflash", "draft: full attention or sliding window", _dflash, _eagle3),
    Arch("clip", "no context: a projector", memory=_clip),
)
