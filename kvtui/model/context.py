"""What the engine makes of a context request: sizes, caps, refusals (llama.cpp b11434).

Rules: the context is padded to 256 cells; divided by the sequences unless unified, and padded again; sliding
caches hold `window * sequences-in-a-stream + micro-batch` cells, padded; cells beyond the trained context are
allocated although no slot may use them.
"""

from __future__ import annotations

from dataclasses import dataclass

from kvtui.core.units import tokens
from kvtui.model.cache_types import CACHE_TYPES, UPSTREAM, CacheType, row_bytes
from kvtui.model.geometry import Geometry
from kvtui.model.refusals import flash_attention, refusal
from kvtui.model.request import ContextRequest
from kvtui.model.shapes import CacheShape, Exactness, LayerWidth

PAD = 256
F32 = 4


@dataclass(frozen=True, slots=True)
class CachePlan:
    """One cache as the engine allocates it: `cells` per stream, bytes over all streams and layers."""

    kind: str
    layers: int
    cells: int
    streams: int
    type_k: str
    type_v: str
    k_bytes: int
    v_bytes: int

    @property
    def bytes(self) -> int:
        """K and V together."""
        return self.k_bytes + self.v_bytes


@dataclass(frozen=True, slots=True)
class RecurrentPlan:
    """Recurrent state in bytes: convolution (`r`), state (`s`) and n-gram history (`p`)."""

    r_bytes: int
    s_bytes: int
    p_bytes: int

    @property
    def bytes(self) -> int:
        """All of it."""
        return self.r_bytes + self.s_bytes + self.p_bytes


@dataclass(frozen=True, slots=True)
class ContextPlan:
    """What the request becomes. `kv_bytes` is everything kept: caches, recurrent state and other state.

    `kv_bytes` is None where no context is made (`refused` says why) and where nothing is known about the model.
    `usable_per_slot` is what one request may use after the cap at the trained context.
    """

    n_ctx: int
    n_ctx_seq: int
    n_batch: int
    n_ubatch: int
    usable_per_slot: int
    caches: tuple[CachePlan, ...]
    recurrent: RecurrentPlan | None
    state_bytes: int
    kv_bytes: int | None
    conventional_kv_bytes: int
    exactness: Exactness
    refused: str | None = None
    notes: tuple[str, ...] = ()


def pad(n: int, to: int = PAD) -> int:
    """`n` rounded up to a multiple of `to`."""
    return (n + to - 1) // to * to


def plan(geometry: Geometry, request: ContextRequest) -> ContextPlan:
    """What the engine makes of `request` for this model."""
    asked = request.ctx or geometry.n_ctx_train or 0
    n_batch = min(asked, request.n_batch) if geometry.causal else request.n_batch
    n_ubatch = min(n_batch, request.n_ubatch or request.n_batch)
    n_ctx = pad(asked)
    n_seq = max(1, request.n_seq_max)
    n_ctx_seq = n_ctx if request.kv_unified else pad(n_ctx // n_seq)
    n_ctx = n_ctx if request.kv_unified else n_ctx_seq * n_seq
    refused = refusal(geometry, request, asked, n_seq, min(n_ctx, n_ubatch))
    types = CACHE_TYPES.get(request.type_k), CACHE_TYPES.get(request.type_v)
    caches: tuple[CachePlan, ...] = ()
    conventional = 0
    notes = list(_notes(geometry, request, asked, n_ctx, n_ctx_seq))
    if types[0] is not None and types[1] is not None:
        if refused is None:
            cells = _Cells(request, n_seq, n_ctx_seq, n_ubatch, not flash_attention(geometry, request))
            caches = tuple(_cache(shape, request, cells) for shape in geometry.caches)
        conventional = n_ctx * (
            row_bytes(request.type_k, geometry.conventional_k)
            + row_bytes(request.type_v, geometry.conventional_v)
        )
    recurrent = None if refused else _recurrent(geometry, n_seq)
    state_bytes = 0 if refused else sum(s.n_bytes for s in geometry.states) * n_seq
    exactness = _exactness(geometry, types, request, refused, notes)
    kept = sum(c.bytes for c in caches) + (recurrent.bytes if recurrent else 0) + state_bytes
    return ContextPlan(
        n_ctx=n_ctx,
        n_ctx_seq=n_ctx_seq,
        n_batch=n_batch,
        n_ubatch=n_ubatch,
        usable_per_slot=min(n_ctx_seq, geometry.n_ctx_train or n_ctx_seq),
        caches=caches,
        recurrent=recurrent,
        state_bytes=state_bytes,
        kv_bytes=None if refused or exactness == "unknown" else kept,
        conventional_kv_bytes=conventional,
        exactness=exactness,
        refused=refused,
        notes=tuple(notes),
    )


@dataclass(frozen=True, slots=True)
class _Cells:
    request: ContextRequest
    n_seq: int
    n_ctx_seq: int
    n_ubatch: int
    padded_v: bool

    def of(self, shape: CacheShape) -> tuple[int, int]:
        """Cells per stream and streams of a cache."""
        unified = self.request.kv_unified and not shape.per_sequence
        streams = 1 if unified else self.n_seq
        if shape.sliding and not self.request.swa_full:
            in_stream = self.n_seq if unified else 1
            return pad(min(self.n_ctx_seq, shape.window * in_stream + self.n_ubatch)), streams
        if shape.ratio > 1:
            return pad(max(1, (self.n_ctx_seq + shape.ratio - 1) // shape.ratio)), streams
        return self.n_ctx_seq, streams


def _cache(shape: CacheShape, request: ContextRequest, cells: _Cells) -> CachePlan:
    n_cells, streams = cells.of(shape)

    def v_width(layer: LayerWidth) -> int:
        return shape.v_padded if cells.padded_v else layer.v

    rows = n_cells * streams
    return CachePlan(
        kind=shape.kind,
        layers=len(shape.layers),
        cells=n_cells,
        streams=streams,
        type_k=request.type_k,
        type_v=request.type_v,
        k_bytes=rows * sum(row_bytes(request.type_k, layer.k) for layer in shape.layers),
        v_bytes=rows * sum(row_bytes(request.type_v, v_width(layer)) for layer in shape.layers),
    )


def _recurrent(geometry: Geometry, n_seq: int) -> RecurrentPlan | None:
    shape = geometry.recurrent
    if shape is None:
        return None
    n_layers = len(shape.layers) * n_seq * F32
    return RecurrentPlan(shape.r * n_layers, shape.s * n_layers, shape.p * shape.p_layers * n_seq * F32)


def _exactness(
    geometry: Geometry,
    types: tuple[CacheType | None, CacheType | None],
    request: ContextRequest,
    refused: str | None,
    notes: list[str],
) -> Exactness:
    for kind in types:
        if kind is not None and kind.name not in UPSTREAM and geometry.exactness == "exact":
            notes.append(f"{kind.name} is a type of {kind.origin} only, where other rules may apply")
            return "approximate"
    if refused is None and geometry.exactness == "exact" and _partial_rows(geometry, request, types):
        notes.append(
            "rows are not whole blocks of the cache type: what the engine does then is not established"
        )
        return "approximate"
    return geometry.exactness


def _partial_rows(
    geometry: Geometry, request: ContextRequest, types: tuple[CacheType | None, CacheType | None]
) -> bool:
    """Whether a row ends within a block: heads are checked by the engine, indexers and keys without FA are not."""
    k, v = (kind.block if kind else 1 for kind in types)
    padded = not flash_attention(geometry, request)
    return any(
        layer.k % k or (shape.v_padded if padded else layer.v) % v
        for shape in geometry.caches
        for layer in shape.layers
    )


def _notes(
    geometry: Geometry, request: ContextRequest, asked: int, n_ctx: int, n_ctx_seq: int
) -> tuple[str, ...]:
    notes = []
    if n_ctx != asked:
        notes.append(f"{asked:,} tokens become {n_ctx:,}: the engine pads to 256 and divides by sequences")
    trained = geometry.n_ctx_train
    if trained and n_ctx_seq > trained:
        notes.append(
            f"{n_ctx_seq:,} cells per sequence are allocated, {trained:,} are usable: trained for {tokens(trained)}"
        )
    if request.swa_full and not any(c.sliding for c in geometry.caches):
        notes.append("--swa-full has no effect: no layer slides")
    return tuple(notes)
