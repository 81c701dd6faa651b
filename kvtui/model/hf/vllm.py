"""What vLLM 0.33 makes of a model's layers: pages, groups, blocks, tokens (`kv_cache_planning`).

A block holds `block_size` tokens of every layer of one group; all groups have equally many layers (padded where they
have fewer) and take their blocks from one pool. A full layer needs blocks for the whole context, a sliding one for its
window and what is in flight, and one more because windows do not begin at blocks; a state needs one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from kvtui.model.hf.config import HfConfig
from kvtui.model.hf.layers import AttentionLayer, Layer, StateLayer

BLOCK = 16
IN_FLIGHT = 2 * 2048  # two batches of the default size on cards below 70 GiB
F32 = 4

KvDtype = Literal["auto", "fp8"]


@dataclass(frozen=True, slots=True)
class ServeRequest:
    """How vLLM is to serve the model. `in_flight`: tokens that are scheduled and not settled, over all batches."""

    block_size: int = BLOCK
    tensor_parallel: int = 1
    in_flight: int = IN_FLIGHT


@dataclass(frozen=True, slots=True)
class Group:
    """Layers that share a table of blocks; `padding` of them are there to make groups equal, and hold nothing.

    `block_size` is in tokens; 0 for states, which need one block whatever the context is.
    """

    kind: str
    layers: int
    padding: int
    block_size: int
    window: int = 0

    def blocks(self, tokens: int, in_flight: int) -> int:
        """Blocks that one request of `tokens` takes at most."""
        if self.kind == "state":
            return 1
        if self.kind == "sliding":
            return _up(min(self.window - 1 + in_flight, tokens), self.block_size) + 1
        if self.kind == "chunked":
            return _up(min(self.window + in_flight, tokens), self.block_size)
        return _up(tokens, self.block_size)


@dataclass(frozen=True, slots=True)
class Pages:
    """How the cache of one type is laid out, per GPU. `bytes_per_token` is what a further token adds to the layers
    that grow with the context; `page_padding` bytes of all pages of a block hold nothing. `notes` say what makes the
    layout uncertain.
    """

    groups: tuple[Group, ...]
    bytes_per_block: int
    bytes_per_token: int
    page_padding: int
    in_flight: int
    notes: tuple[str, ...] = ()

    def blocks(self, tokens: int) -> int:
        """Blocks that one request of `tokens` takes from the pool."""
        return sum(group.blocks(tokens, self.in_flight) for group in self.groups)

    def request_bytes(self, tokens: int) -> int:
        """Bytes of the pool that one request of `tokens` takes."""
        return self.blocks(tokens) * self.bytes_per_block


@dataclass(frozen=True, slots=True)
class Pool:
    """What a pool of blocks holds: requests of `max_len` tokens at once, and tokens as vLLM's log counts them.

    `longest` is the longest context that one request can have, at most `max_len`.
    """

    blocks: int
    concurrency: float
    tokens: int
    longest: int


def value_bytes(config: HfConfig, dtype: KvDtype) -> int:
    """Bytes of one value of a cache."""
    return 1 if dtype == "fp8" or config.kv_fp8 else config.dtype_bytes


def lay_out(config: HfConfig, dtype: KvDtype, request: ServeRequest) -> Pages | None:
    """The pages and groups of a model, None where its layers are not known or keep nothing."""
    if not config.layers:
        return None
    size = value_bytes(config, dtype)
    block = _block_size(config, size, request)
    pages = {layer: _page(config, layer, size, block, request) for layer in dict.fromkeys(config.layers)}
    per_token = sum(pages[x] // block for x in config.layers if _grows(x))
    kinds = {_kind(layer) for layer in config.layers}
    if len(kinds) == 1 and isinstance(config.layers[0], AttentionLayer):
        # One kind alone makes one group, whatever the widths of its layers are.
        kind, window = kinds.pop()
        total = sum(pages[layer] for layer in config.layers)
        group = Group(kind, len(config.layers), 0, block, window)
        return Pages((group,), total, per_token, 0, request.in_flight)
    largest = max(pages.values())
    notes: tuple[str, ...] = ()
    if len({page for layer, page in pages.items() if isinstance(layer, AttentionLayer)}) > 1:
        notes = ("layers have pages of several sizes: vLLM's attention backend decides how they are packed",)
    buckets: dict[tuple[Layer, int], int] = {}
    padding = 0
    for layer in config.layers:
        page = pages[layer]
        divides = largest % page == 0 and isinstance(layer, AttentionLayer)
        key = layer, block * (largest // page) if divides else block
        buckets[key] = buckets.get(key, 0) + 1
        padding += 0 if divides else largest - page
    groups = _groups(buckets)
    return Pages(groups, groups[0].layers * largest, per_token, padding, request.in_flight, notes)


def fill(pages: Pages, pool_bytes: int, max_len: int) -> Pool:
    """What `pool_bytes` hold. One block is always kept back."""
    n_blocks = max(0, pool_bytes // pages.bytes_per_block) if pages.bytes_per_block else 0
    concurrency = n_blocks / pages.blocks(max_len)
    low, high = 0, max_len
    while low < high:
        middle = (low + high + 1) // 2
        if pages.blocks(middle) <= n_blocks - 1:
            low = middle
        else:
            high = middle - 1
    return Pool(n_blocks, concurrency, int(concurrency * max_len), low)


def _up(n: int, step: int) -> int:
    return -(-n // step)


def _kind(layer: Layer) -> tuple[str, int]:
    return ("state", 0) if isinstance(layer, StateLayer) else (layer.kind, layer.window)


def _grows(layer: Layer) -> bool:
    return isinstance(layer, AttentionLayer) and layer.kind in ("full", "latent")


def _page(config: HfConfig, layer: Layer, size: int, block: int, request: ServeRequest) -> int:
    if isinstance(layer, StateLayer):
        return _state_bytes(config, layer, request)
    # Every GPU has at least one head; a latent is kept whole by each.
    heads = 1 if layer.kind == "latent" else max(1, layer.kv_heads // request.tensor_parallel)
    return block * heads * (layer.head_k + layer.head_v) * size


def _state_bytes(config: HfConfig, layer: StateLayer, request: ServeRequest) -> int:
    wide = F32 if layer.recurrence_f32 else config.dtype_bytes
    whole = layer.convolution * config.dtype_bytes + layer.recurrence * wide
    return _up(whole, request.tensor_parallel)


def _block_size(config: HfConfig, size: int, request: ServeRequest) -> int:
    """Tokens per block: those asked for, or more where a page of attention must be able to hold a state."""
    states = [_state_bytes(config, x, request) for x in config.layers if isinstance(x, StateLayer)]
    attends = [x for x in config.layers if isinstance(x, AttentionLayer)]
    if not states or not attends:
        return request.block_size
    token = max(_page(config, layer, size, 1, request) for layer in attends)
    return request.block_size * max(1, _up(max(states), request.block_size * token))


def _groups(buckets: dict[tuple[Layer, int], int]) -> tuple[Group, ...]:
    """Layers of one kind in groups of equal size: that of the rarest kind, or of the most frequent where that is less
    than half as many again."""
    fewest, most = min(buckets.values()), max(buckets.values())
    size = most if most < fewest * 1.5 else fewest
    groups = []
    for (layer, block), n in buckets.items():
        kind, window = _kind(layer)
        count = _up(n, size)
        for i in range(count):
            held = len(range(i, n, count))
            groups.append(Group(kind, size, size - held, 0 if kind == "state" else block, window))
    return tuple(groups)


@dataclass(frozen=True, slots=True)
class Card:
    """The terms of the pool, per GPU in bytes. `runtime_bytes`: peak activation, graphs and what is not torch's."""

    total_bytes: int
    utilization: float
    weights_bytes: int
    runtime_bytes: int
    reserve_bytes: int = 0

    @property
    def wanted_bytes(self) -> int:
        """What vLLM takes of the card, whatever is free."""
        return math.ceil(self.total_bytes * self.utilization)

    @property
    def pool_bytes(self) -> int:
        """What is left for blocks; negative where not even the weights fit."""
        return self.wanted_bytes - self.weights_bytes - self.runtime_bytes

    @property
    def starts(self) -> bool:
        """Whether enough is free: vLLM does not start where others hold a part of what it is to take."""
        return self.total_bytes - self.reserve_bytes >= self.wanted_bytes
