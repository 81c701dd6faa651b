"""What one run asks of the engine. Frozen: a run is never reconfigured, the next one differs in one field."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

FlashAttn = Literal["on", "off", "auto"]


@dataclass(frozen=True, slots=True)
class RunConfig:
    """Everything asked, in llama-server's terms. None means: leave it to the engine.

    Sizes are tokens (`n_ctx`, `n_batch`, `n_ubatch`) or counts. `n_ctx` is the whole context (`-c`),
    which the engine divides by `n_parallel` unless `kv_unified`.

    `prefix_reuse` lets a request go on from what a slot still holds of an earlier one. `gpu_memory_utilization` (a
    share of the card that is reserved as a whole) and `enforce_eager` (no CUDA graphs) mean something to vLLM alone.
    """

    model: str
    n_ctx: int
    type_k: str = "f16"
    type_v: str = "f16"
    flash_attn: FlashAttn = "auto"
    n_parallel: int = 1
    kv_unified: bool = False
    n_batch: int = 2048
    n_ubatch: int = 512
    n_gpu_layers: int | None = 999
    n_cpu_moe: int | None = None
    kv_offload: bool = True
    swa_full: bool = False
    cache_ram_mib: int = 0
    threads: int | None = None
    prefix_reuse: bool = True
    gpu_memory_utilization: float | None = None
    enforce_eager: bool = False
    extra: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()

    @property
    def kv_types(self) -> str:
        """The pair as it is always written: `q8_0/q8_0`."""
        return f"{self.type_k}/{self.type_v}"
