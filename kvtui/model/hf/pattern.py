"""Which layer of a model attends to what, from its `config.json`."""

from __future__ import annotations

from kvtui.model.hf import known
from kvtui.model.hf.layers import AttentionLayer, Layer
from kvtui.model.hf.state import state_layer
from kvtui.model.hf.values import Undetermined, Values
from kvtui.model.shapes import Exactness

__all__ = ["Undetermined", "layers_of"]

FULL, SLIDING, CHUNKED, STATE, BOTH, NOTHING = "full", "sliding", "chunked", "state", "both", "nothing"
_WORDS = {
    "full_attention": FULL, "attention": FULL, "global_attention": FULL, "sliding_attention": SLIDING,
    "sliding_window": SLIDING, "local_attention": SLIDING, "chunked_attention": CHUNKED, "linear_attention": STATE,
    "mamba": STATE, "mamba2": STATE, "conv": STATE, "hybrid": BOTH, "mlp": NOTHING, "moe": NOTHING,
}  # fmt: skip
_LETTERS = {"*": FULL, "M": STATE, "-": NOTHING, "E": NOTHING}
_MAX_LAYERS = 1024
_KV_HEADS = ("num_key_value_heads", "num_kv_heads", "multi_query_group_num", "n_head_kv")
_HEAD_DIM = ("head_dim", "hidden_size_per_head", "kv_channels")


def layers_of(
    model_type: str, values: Values, n_layer: int | None
) -> tuple[tuple[Layer, ...], Exactness, tuple[str, ...]]:
    """What each layer keeps, how sure that is, and why it is not sure. Raises Undetermined: too little is said."""
    if not n_layer:
        letters = values.text("hybrid_override_pattern")
        n_layer = len(letters) if letters and len(letters) <= _MAX_LAYERS else None
    if not n_layer:
        raise Undetermined("num_hidden_layers is missing")
    notes = _doubts(model_type, values)
    if model_type in known.LATENT | known.LATENT_AND_MORE and values.count("kv_lora_rank"):
        latent = AttentionLayer(
            "latent", 1, values.needed("kv_lora_rank") + (values.count("qk_rope_head_dim") or 0), 0
        )
        return (latent,) * n_layer, "approximate" if notes else "exact", notes
    kinds = _kinds(model_type, values, n_layer)
    notes += _left_out(model_type, values)
    shared = values.count("num_kv_shared_layers") or 0
    owners = kinds[: n_layer - shared] if shared < n_layer else kinds
    if shared:
        notes += (f"the last {shared} layers reuse the cache of earlier ones",)
    layers = tuple(layer for kind in owners for layer in _made(model_type, values, kind))
    return layers, "approximate" if notes else "exact", notes


def _doubts(model_type: str, values: Values) -> tuple[str, ...]:
    """Why the figures of such a model are not exact."""
    if model_type in known.LATENT_AND_MORE:
        return (f"{model_type} keeps indexers, states or compressed caches beside: they are not counted",)
    if model_type in known.WITH_STATE:
        return (
            "layers with a state: vLLM fits the block size to it, and keeps more states with prefix caching; "
            "both are taken at their simplest",
        )
    if model_type in known.PLAIN | known.ALL_SLIDING | known.LATENT or model_type in known.EVERY:
        return ()
    if values.has("kv_lora_rank"):
        return (
            f"{model_type or 'this type'} is not known to be served with latent attention: taken for none",
        )
    return (f"the type {model_type or 'of this model'} is not known: the file is taken at its word",)


def _left_out(model_type: str, values: Values) -> tuple[str, ...]:
    """What had to be taken for what the file leaves out, where the type's own default is not known."""
    notes: tuple[str, ...] = ()
    if not any(values.has(key) for key in _KV_HEADS) and model_type not in known.HEADS_ALIKE:
        notes += (f"{_KV_HEADS[0]} is not in the file: taken for as many as heads",)
    if not any(values.has(key) for key in _HEAD_DIM) and model_type not in known.HEADS_SHARE_WIDTH:
        notes += (f"{_HEAD_DIM[0]} is not in the file: taken for the width of the model over its heads",)
    return notes


def _kinds(model_type: str, values: Values, n_layer: int) -> list[str]:
    for key in ("layer_types", "layers_block_type"):
        words = values.words(key)
        if words is not None:
            return _spelled(words, key, n_layer)
    letters = values.text("hybrid_override_pattern")
    if letters is not None:
        if len(letters) != n_layer or not set(letters) <= set(_LETTERS):
            raise Undetermined("hybrid_override_pattern does not fit the layers")
        return [_LETTERS[letter] for letter in letters]
    if model_type in known.WITH_STATE:
        return _with_state(model_type, values, n_layer)
    every = values.count(*known.PATTERN_KEYS) or known.EVERY.get(model_type)
    if every:
        # A window of nothing switches the pattern off.
        slides = bool(values.count("sliding_window"))
        return [SLIDING if slides and (i + 1) % every else FULL for i in range(n_layer)]
    return _uniform(values, n_layer)


def _spelled(words: list[str], key: str, n_layer: int) -> list[str]:
    if len(words) != n_layer:
        raise Undetermined(f"{key} names {len(words)} layers, there are {n_layer}")
    unknown = sorted({word for word in words if word not in _WORDS})
    if unknown:
        raise Undetermined(f"{key} names a kind of layer that is not known: {unknown[0][:40]}")
    return [_WORDS[word] for word in words]


def _with_state(model_type: str, values: Values, n_layer: int) -> list[str]:
    period = values.count("attn_layer_period")
    if period:
        offset = values.count("attn_layer_offset") or 0
        return [FULL if i % period == offset else STATE for i in range(n_layer)]
    attends = values.numbers("attn_layer_indices")
    if attends is None:
        attends = values.numbers("full_attn_idxs")
    if attends is not None:
        return [FULL if i in attends else STATE for i in range(n_layer)]
    interval = values.count("full_attention_interval")
    if interval:
        return [STATE if (i + 1) % interval else FULL for i in range(n_layer)]
    if model_type == "falcon_h1":
        return [BOTH] * n_layer
    raise Undetermined("the file does not say which layers attend and which keep a state")


def _uniform(values: Values, n_layer: int) -> list[str]:
    window = values.count("sliding_window")
    if not window or not values.flag("use_sliding_window", True):
        return [FULL] * n_layer
    full = values.count("max_window_layers") if values.has("use_sliding_window") else 0
    return [FULL if i < (full or 0) else SLIDING for i in range(n_layer)]


def _made(model_type: str, values: Values, kind: str) -> tuple[Layer, ...]:
    if kind == NOTHING:
        return ()
    if kind == STATE:
        return (state_layer(model_type, values),)
    if kind == BOTH:
        return _attention(model_type, values, FULL), state_layer(model_type, values)
    return (_attention(model_type, values, kind),)


def _attention(model_type: str, values: Values, kind: str) -> AttentionLayer:
    heads = values.needed("num_attention_heads", "n_head", "num_heads")
    kv_heads = values.count(*_KV_HEADS)
    head = values.count(*_HEAD_DIM)
    if not head:
        hidden = values.needed("hidden_size", "n_embd", "d_model")
        head = hidden // heads
    wide = values.count("global_head_dim")
    wide_heads = values.count("num_global_key_value_heads")
    head_v = values.count("v_head_dim") if not values.has("kv_lora_rank") else None
    kept = kv_heads or heads
    if kind == SLIDING:
        # Cohere's windows reach one token further back than their number says.
        window = values.needed("sliding_window") + (model_type == "cohere2")
        return AttentionLayer("sliding", kept, head, head_v or head, window)
    if kind == CHUNKED:
        return AttentionLayer("chunked", kept, head, head_v or head, values.needed("attention_chunk_size"))
    return AttentionLayer("full", wide_heads or kept, wide or head, wide or head_v or head)
