"""What is asked of the engine for one context."""

from __future__ import annotations

from dataclasses import dataclass

from kvtui.core.config import FlashAttn


@dataclass(frozen=True, slots=True)
class ContextRequest:
    """What is asked, in llama-server's terms. `ctx` tokens in all (0: the trained context)."""

    ctx: int
    n_seq_max: int = 1
    n_ubatch: int = 512
    n_batch: int = 2048
    kv_unified: bool = False
    swa_full: bool = False
    type_k: str = "f16"
    type_v: str = "f16"
    flash_attn: FlashAttn = "auto"
