"""The numbers that decide what a context keeps, as the engine derives them from a file's metadata.

A `Layout` starts with what every architecture shares (llama.cpp b11434, `load_hparams`); the rule of the
architecture (families/) then sets windows, recurrent layers, latent attention and the rest. A key that the
engine requires and the file lacks, or a value that it refuses, raises `Rejected`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kvtui.model.header import ArrayInfo, Header, Value

MAX_LAYERS = 512
U32 = 1 << 32


class Undetermined(Exception):
    """What is kept cannot be told from this file; the text says why."""


class Rejected(Exception):
    """The engine itself will not load this file, or stops on it; the text says why."""


@dataclass(slots=True)
class Layout:
    """Working values while the rule of an architecture is applied. Lists have one entry per layer.

    Widths are values per token and KV head. `window` is in tokens; `kv_layers` counts the leading layers that
    own a cache (None: all); `n_nextn` counts the trailing next-token-prediction layers.
    """

    header: Header
    n_layer_all: int
    n_nextn: int
    n_embd: int
    n_ctx_train: int
    heads: list[int]
    kv_heads: list[int]
    feed_forward: list[int]
    head_k: int
    head_v: int
    head_k_swa: int
    head_v_swa: int
    causal: bool
    window: int = 0
    windowed: bool = False
    swa: list[bool] = field(default_factory=list)
    recurrent: list[bool] = field(default_factory=list)
    kv_layers: int | None = None
    latent: bool = False
    filter_nextn: bool = True
    indexer_head: int = 0
    indexer_full: list[bool] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def n_layer(self) -> int:
        """Layers of the trunk, next-token-prediction layers left out."""
        return self.n_layer_all - self.n_nextn

    def width_k(self, layer: int) -> int:
        """Values of K per cell in that layer."""
        return self.kv_heads[layer] * (self.head_k_swa if self.swa[layer] else self.head_k)

    def width_v(self, layer: int) -> int:
        """Values of V per cell in that layer; latent attention keeps none."""
        if self.latent:
            return 0
        return self.kv_heads[layer] * (self.head_v_swa if self.swa[layer] else self.head_v)

    # Keys

    def optional(self, key: str) -> int | None:
        """The non-negative integer under `<arch>.key`, None where absent."""
        value = _stored(self.header, f"{self.header.arch}.{key}")
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < U32:
            raise Rejected(f"{self.header.arch}.{key} is not a plain number")
        return value

    def required(self, key: str) -> int:
        """The integer under `<arch>.key`, which the engine insists on."""
        value = self.optional(key)
        if value is None:
            raise Rejected(f"{self.header.arch}.{key} is missing, the engine will not load this file")
        return value

    def array(self, key: str) -> tuple[int, ...] | None:
        """The numeric array under `<arch>.key`, None where there is none or a single value stands there."""
        value = _stored(self.header, f"{self.header.arch}.{key}")
        if isinstance(value, ArrayInfo) or (isinstance(value, tuple) and len(value) > MAX_LAYERS):
            raise Rejected(f"{self.header.arch}.{key} is longer than the engine allows")
        if not isinstance(value, tuple):
            return None
        if any(isinstance(v, float) for v in value):
            raise Rejected(f"{self.header.arch}.{key} is not an array of whole numbers")
        return tuple(int(v) for v in value)

    def per_layer(self, key: str, default: list[int], n: int) -> list[int]:
        """An array of exactly `n` values or one value for all; `default` where the key is absent."""
        return _per_layer(self.header, key, default, n)

    # What rules say

    def slide(
        self, window: int, every: int | None = None, *, dense_first: bool = False, always: bool = False
    ) -> None:
        """Sliding window of `window` tokens. The file's per-layer pattern goes first; without one, in every
        group of `every` layers the last (or with `dense_first` the first) attends to everything. With `every`
        None the pattern must be in the file. With `always` (one pattern for all files) it is not looked up.
        """
        self.window, self.windowed = window, True
        pattern = None if always else self.array("attention.sliding_window_pattern")
        if pattern is not None:
            for layer, value in enumerate(pattern[: self.n_layer_all]):
                self.swa[layer] = value != 0
            return
        if every is None:
            raise Rejected(f"{self.header.arch}.attention.sliding_window_pattern is missing")
        if not always:
            every = self._scalar_pattern(every)
        for layer in range(self.n_layer_all):
            place = layer % every if every else 0
            slides = every == 0 or (place != 0 if dense_first else place < every - 1)
            self.swa[layer] = slides and layer < self.n_layer

    def _scalar_pattern(self, every: int) -> int:
        value = self.optional("attention.sliding_window_pattern")
        return every if value is None else value

    def recur_without_kv(self, upto: int | None = None) -> None:
        """Layers without KV heads are recurrent."""
        for layer in range(self.n_layer if upto is None else upto):
            self.recurrent[layer] = self.kv_heads[layer] == 0

    def recur_by_interval(self, default: int) -> None:
        """The file's list of recurrent layers, else all but every `full_attention_interval`-th."""
        key = "attention.recurrent_layers"
        if f"{self.header.arch}.{key}" in self.header.metadata:
            self.recurrent = [v != 0 for v in self.per_layer(key, [], self.n_layer_all)]
            return
        interval = self.optional("full_attention_interval")
        interval = default if interval is None else interval
        if interval == 0:
            raise Rejected(f"{self.header.arch}.full_attention_interval is zero")
        for layer in range(self.n_layer_all):
            self.recurrent[layer] = layer < self.n_layer and (layer + 1) % interval != 0

    def latent_attention(self, *, required: bool) -> None:
        """MLA: keys alone are kept where the file gives the lengths of the decompressed heads."""
        read = self.required if required else self.optional
        k, v = read("attention.key_length_mla") or 0, read("attention.value_length_mla") or 0
        self.latent = k > 0 and v > 0

    def indexer(self) -> None:
        """The sparse-attention indexer's key width."""
        self.required("attention.indexer.top_k")
        self.indexer_head = self.required("attention.indexer.key_length")


def _stored(header: Header, key: str) -> Value | None:
    """The value under the full `key`, None where absent. The engine takes integers of one type only."""
    stored_as = header.stored_as.get(key)
    if stored_as is not None:
        raise Rejected(f"{key} is stored as {stored_as}, the engine wants u32 and will not load this file")
    return header.metadata.get(key)


def _per_layer(header: Header, key: str, default: list[int], n: int) -> list[int]:
    full = f"{header.arch}.{key}"
    value = _stored(header, full)
    if value is None:
        return list(default)
    if isinstance(value, ArrayInfo):
        raise Rejected(f"{full} has {value.length:,} values, the engine expects {n}")
    if isinstance(value, tuple):
        if len(value) != n:
            raise Rejected(f"{full} has {len(value)} values, the engine expects {n}")
        values = list(value)
    else:
        values = [value] * n if isinstance(value, int) and not isinstance(value, bool) else [-1]
    if any(not isinstance(v, int) or not 0 <= v < U32 for v in values):
        raise Rejected(f"{full} does not hold counts")
    return [int(v) for v in values]


def base_layout(header: Header) -> Layout:
    """The values that every architecture shares. Raises Rejected where the file lacks what it needs."""
    probe = Layout(header, 0, 0, 0, 0, [], [], [], 0, 0, 0, 0, True)
    n_layer = probe.required("block_count")
    if not 0 < n_layer <= MAX_LAYERS:
        raise Rejected(f"{n_layer:,} layers, the engine takes 1 to {MAX_LAYERS}")
    n_nextn = probe.optional("nextn_predict_layers") or 0
    if n_nextn > n_layer:
        raise Rejected("more next-token-prediction layers than layers")
    n_embd = probe.required("embedding_length")
    zeros = [0] * n_layer
    heads = _per_layer(header, "attention.head_count", zeros, n_layer)
    kv_heads = _per_layer(header, "attention.head_count_kv", heads, n_layer)
    head_k = head_v = 0
    if heads[0] > 0:
        stored_k, stored_v = probe.optional("attention.key_length"), probe.optional("attention.value_length")
        head_k = n_embd // heads[0] if stored_k is None else stored_k
        head_v = n_embd // heads[0] if stored_v is None else stored_v
    swa_k, swa_v = probe.optional("attention.key_length_swa"), probe.optional("attention.value_length_swa")
    causal = header.metadata.get(f"{header.arch}.attention.causal", True)
    return Layout(
        header=header,
        n_layer_all=n_layer,
        n_nextn=n_nextn,
        n_embd=n_embd,
        n_ctx_train=probe.required("context_length"),
        heads=heads,
        kv_heads=kv_heads,
        feed_forward=_per_layer(header, "feed_forward_length", zeros, n_layer),
        head_k=head_k,
        head_v=head_v,
        head_k_swa=head_k if swa_k is None else swa_k,
        head_v_swa=head_v if swa_v is None else swa_v,
        causal=bool(causal),
        swa=[False] * n_layer,
        recurrent=[False] * n_layer,
        indexer_full=[False] * n_layer,
    )
