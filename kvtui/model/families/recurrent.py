"""Recurrent and convolution state: pure (Mamba, RWKV) and beside attention (hybrids).

State is f32 whatever the KV types are. Widths per layer and sequence: convolution
`(kernel - 1) * (inner + 2 * groups * state)`, state `state * inner`; the exceptions are written out below.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from kvtui.model.families.arch import Arch, Rule
from kvtui.model.layout import Layout, Rejected, Undetermined
from kvtui.model.memory import hybrid, narrow, recurrent_only
from kvtui.model.shapes import CacheShape, Memory


def _ssm(layout: Layout, *, groups: bool = True) -> tuple[int, int]:
    """Convolution and state widths of Mamba and of gated delta nets."""
    kernel, inner = layout.required("ssm.conv_kernel"), layout.required("ssm.inner_size")
    state = layout.required("ssm.state_size")
    n_groups = layout.required("ssm.group_count") if groups else 0
    return max(kernel - 1, 0) * (inner + 2 * n_groups * state), state * inner


def _kda(layout: Layout) -> tuple[int, int]:
    """Convolution (of q, k and v) and state widths of Kimi delta attention; the first layer's heads count."""
    kernel, head = layout.required("ssm.conv_kernel"), layout.required("kda.head_dim")
    n_head = layout.heads[0]
    if head == 0:
        raise Undetermined("kda.head_dim is zero")
    return 3 * (kernel - 1 if kernel > 0 else 3) * n_head * head, head * head * n_head


def _without_kv(layout: Layout) -> None:
    layout.recur_without_kv()


# Pure


def _mamba(layout: Layout) -> Memory:
    return recurrent_only(layout, *_ssm(layout, groups=False))


def _mamba2(layout: Layout) -> Memory:
    return recurrent_only(layout, *_ssm(layout))


def _rwkv(shifts: int) -> Callable[[Layout], Memory]:
    """RWKV keeps `shifts` shifted tokens per layer; the engine stops where the file says otherwise."""

    def memory(layout: Layout) -> Memory:
        head, stored = layout.required("wkv.head_size"), layout.optional("token_shift_count")
        if head == 0:
            raise Undetermined("wkv.head_size is zero")
        if (2 if stored is None else stored) != shifts:
            return Memory(refused=f"token_shift_count must be {shifts}, the engine stops")
        return recurrent_only(layout, shifts * layout.n_embd, layout.n_embd * head)

    return memory


# Beside attention


def _jamba(layout: Layout) -> Memory:
    return hybrid(layout, *_ssm(layout, groups=False))


def _mamba_hybrid(layout: Layout) -> Memory:
    return hybrid(layout, *_ssm(layout))


def _everywhere(layout: Layout) -> Memory:
    return hybrid(layout, *_ssm(layout), attends=lambda _: True, recurs=lambda _: True)


def _plamo2(layout: Layout) -> None:
    # Head lengths are read again here, so they hold even where the first layer has no attention heads.
    k, v = layout.optional("attention.key_length"), layout.optional("attention.value_length")
    layout.head_k = layout.head_k if k is None else k
    layout.head_v = layout.head_v if v is None else v
    layout.recur_without_kv()


def _nemotron_h(layout: Layout) -> None:
    for i in range(layout.n_layer_all):
        idle = layout.kv_heads[i] == 0 and layout.feed_forward[i] == 0
        layout.recurrent[i] = idle and i < layout.n_layer


def _nemotron_h_memory(layout: Layout) -> Memory:
    return hybrid(
        layout,
        *_ssm(layout),
        attends=lambda i: not layout.recurrent[i] and layout.feed_forward[i] == 0,
        recurs=lambda i: layout.recurrent[i] and layout.feed_forward[i] == 0,
    )


def _short_convolution(layout: Layout) -> Memory:
    length = layout.required("shortconv.l_cache")
    if length == 0:
        raise Undetermined("shortconv.l_cache is zero")
    return hybrid(layout, layout.n_embd * (length - 1), 0)


def _lfm2(layout: Layout) -> None:
    layout.recur_without_kv()
    window = layout.optional("attention.sliding_window") or 0
    if window:
        layout.window, layout.windowed = window, True
        layout.swa = [i < layout.n_layer and not r for i, r in enumerate(layout.recurrent)]


def _every(interval: int) -> Rule:
    return lambda layout: layout.recur_by_interval(interval)


def _trunk_hybrid(layout: Layout, r: int, s: int, extra: tuple[CacheShape, ...] = ()) -> Memory:
    return hybrid(
        layout,
        r,
        s,
        attends=lambda i: i < layout.n_layer and not layout.recurrent[i],
        recurs=lambda i: i < layout.n_layer and layout.recurrent[i],
        extra=extra,
    )


def _delta_net(layout: Layout) -> Memory:
    return _trunk_hybrid(layout, *_ssm(layout))


def _sized_for_one_sequence(layout: Layout, memory: Memory) -> Memory:
    """The engine sizes these graphs once more for a single sequence, which stops it where the micro-batch
    does not divide among the streams and an attention layer is followed by another layer."""
    inner = range(layout.n_layer - 1)
    return replace(memory, even_batches=any(not layout.recurrent[i] for i in inner))


def _lightning(layout: Layout) -> Memory:
    # Linear attention keeps a square matrix per head and no convolution.
    state = layout.head_k * layout.head_k * layout.heads[0]
    return _sized_for_one_sequence(layout, _trunk_hybrid(layout, 0, state))


def _kimi_linear(layout: Layout) -> Memory:
    return _sized_for_one_sequence(layout, _kimi_memory(layout))


def _kimi(layout: Layout) -> None:
    layout.required("attention.kv_lora_rank")
    layout.latent_attention(required=True)
    layout.recur_without_kv()


def _kimi_memory(layout: Layout) -> Memory:
    return hybrid(layout, *_kda(layout))


def _latent_rank_values(layout: Layout) -> None:
    # V is a view of the latent part of K: its length is the rank, whatever value_length says.
    _kimi(layout)
    layout.head_v = layout.required("attention.kv_lora_rank")


def _glm5_next(layout: Layout) -> None:
    _latent_rank_values(layout)
    layout.recur_without_kv(layout.n_layer_all)
    layout.indexer()
    types = layout.per_layer("attention.indexer.types", [1] * layout.n_layer, layout.n_layer)
    layout.indexer_full = [v != 0 for v in types] + [False] * layout.n_nextn
    kpool = layout.required("attention.indexer.kpool")
    if kpool <= 1 or layout.required("attention.indexer.top_k") % kpool:
        raise Rejected("attention.indexer.kpool must be above one and divide top_k, the engine stops")


def _glm5_next_memory(layout: Layout) -> Memory:
    # A cached indexer row holds the key, its gate and the pooled key side by side.
    indexer = narrow(
        layout,
        "indexer",
        lambda i: i < layout.n_layer and not layout.recurrent[i] and layout.indexer_full[i],
        3 * layout.indexer_head,
        0,
    )
    return _trunk_hybrid(layout, *_kda(layout), extra=(indexer,))


_INTERVAL_4 = "delta nets, every 4th layer (or as the file says) attends"

RECURRENT = (
    Arch("mamba", "recurrent state only", memory=_mamba),
    Arch("mamba2", "recurrent state only", memory=_mamba2),
    Arch("rwkv6", "recurrent state only", memory=_rwkv(2)),
    Arch("rwkv6qwen2", "recurrent state only", memory=_rwkv(1)),
    Arch("rwkv7", "recurrent state only", memory=_rwkv(2)),
    Arch("arwkv7", "recurrent state only", memory=_rwkv(1)),
    Arch("jamba", "Mamba where a layer has no KV heads, else full attention", _without_kv, _jamba),
    Arch(
        "granitehybrid",
        "Mamba where a layer has no KV heads, else full attention",
        _without_kv,
        _mamba_hybrid,
    ),
    Arch("plamo2", "Mamba where a layer has no KV heads, else full attention", _plamo2, _mamba_hybrid),
    Arch("falcon-h1", "Mamba and full attention in every layer", memory=_everywhere),
    Arch("nemotron_h", "Mamba, attention or feed-forward per layer", _nemotron_h, _nemotron_h_memory),
    Arch("nemotron_h_moe", "Mamba, attention or feed-forward per layer", _nemotron_h, _nemotron_h_memory),
    Arch(
        "lfm2", "short convolutions where a layer has no KV heads, else attention", _lfm2, _short_convolution
    ),
    Arch(
        "lfm2moe",
        "short convolutions where a layer has no KV heads, else attention",
        _without_kv,
        _short_convolution,
    ),
    Arch("qwen3next", _INTERVAL_4, _every(4), _delta_net),
    Arch("qwen35", _INTERVAL_4, _every(4), _delta_net),
    Arch("qwen35moe", _INTERVAL_4, _every(4), _delta_net),
    Arch(
        "minimax-01", "linear attention, every 8th layer (or as the file says) attends", _every(8), _lightning
    ),
    Arch(
        "kimi-linear",
        "delta attention where a layer has no KV heads, else latent attention",
        _kimi,
        _kimi_linear,
    ),
    Arch(
        "bailingmoe3",
        "delta attention where a layer has no KV heads, else latent attention",
        _kimi,
        _kimi_memory,
    ),
    Arch(
        "kimi-k3",
        "delta attention where a layer has no KV heads, else latent attention",
        _latent_rank_values,
        _kimi_memory,
    ),
    Arch(
        "glm5-next", "delta attention, latent attention with pooled indexers", _glm5_next, _glm5_next_memory
    ),
)
