"""KV cache types: how many bytes a row of the cache takes.

llama.cpp (b11434) lets `-ctk`/`-ctv` be one of `UPSTREAM`. ik_llama.cpp adds `q6_0` (static_assert in its
ggml-common.h). The turboquant forks changed their block layout over time: the sizes here are those of the
current 128-value blocks, and a log's own figures go before them. Everything else is unknown, by name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Origin = Literal["llama.cpp", "ik_llama.cpp", "turboquant"]


@dataclass(frozen=True, slots=True)
class CacheType:
    """`block` values are stored in `n_bytes` bytes. `settled` is False where forks disagree about the size."""

    name: str
    block: int
    n_bytes: int
    origin: Origin = "llama.cpp"
    settled: bool = True

    @property
    def bits(self) -> float:
        """Bits per value: 8.5 for q8_0."""
        return self.n_bytes * 8 / self.block

    @property
    def quantized(self) -> bool:
        """Whether values are stored in blocks (which is what flash attention rules look at)."""
        return self.block > 1


UPSTREAM = ("f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1")

CACHE_TYPES: dict[str, CacheType] = {
    t.name: t
    for t in (
        CacheType("f32", 1, 4),
        CacheType("f16", 1, 2),
        CacheType("bf16", 1, 2),
        CacheType("q8_0", 32, 34),
        CacheType("q5_1", 32, 24),
        CacheType("q5_0", 32, 22),
        CacheType("q4_1", 32, 20),
        CacheType("q4_0", 32, 18),
        CacheType("iq4_nl", 32, 18),
        CacheType("q6_0", 32, 26, "ik_llama.cpp"),
        CacheType("turbo4", 128, 68, "turboquant", settled=False),
        CacheType("turbo3", 128, 50, "turboquant", settled=False),
        CacheType("turbo2", 128, 34, "turboquant", settled=False),
    )
}


def cache_type(name: str) -> CacheType | None:
    """The type of that name, None where its size is not known."""
    return CACHE_TYPES.get(name)


def row_bytes(type_name: str, n: int) -> int:
    """Bytes of `n` values of a cache row, as the engine allocates them.

    Raises KeyError for a type whose size is not known. A row that is not whole blocks is rounded down, which
    is what ggml_row_size does.
    """
    known = CACHE_TYPES[type_name]
    return n * known.n_bytes // known.block
