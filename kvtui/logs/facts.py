"""The facts that an engine's output proves. What the log does not show is None or absent, never guessed.

Sizes are MiB exactly as the engine printed them. `line` counts from 1 in the log as it was read. The shape
of `as_json` is the contract `kvtui.log/1`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from kvtui.core.findings import Finding

EngineName = Literal["llama.cpp", "ik_llama.cpp", "ollama", "vllm", "unknown"]
Outcome = Literal["ready", "failed", "unknown"]
FailurePhase = Literal[
    "arguments", "weights", "context", "kv", "recurrent", "compute", "mmproj", "prefill", "decode", "startup"
]


@dataclass(frozen=True, slots=True)
class CacheFacts:
    """One KV cache as its `size =` line proves it. `cells` are per stream; the MiB include all streams.

    `kind`: `full` (the only cache), `non-SWA`, `SWA`, `indexer`, `recurrent`, .. A recurrent cache has the
    `*_r` and `*_s` fields instead of K and V. `digit_mib` is what the last digit of `size_mib` is worth, None for the
    two decimals of llama.cpp.
    """

    kind: str
    cells: int | None = None
    layers: int | None = None
    streams: int | None = None
    type_k: str | None = None
    type_v: str | None = None
    k_mib: float | None = None
    v_mib: float | None = None
    size_mib: float | None = None
    type_r: str | None = None
    r_mib: float | None = None
    type_s: str | None = None
    s_mib: float | None = None
    line: int | None = None
    digit_mib: float | None = None


@dataclass(frozen=True, slots=True)
class BufferFacts:
    """One `... buffer size =` line: the device as the engine names it (`CUDA0`, `CPU`, `CPU_Mapped`)."""

    device: str
    mib: float
    line: int | None = None


@dataclass(frozen=True, slots=True)
class ContextFacts:
    """One `llama_context` as it was really created. `lines` maps a field's name to the line that proves it.

    `flash_attn` is the outcome (`enabled`, `disabled`, None: unproven), `flash_attn_requested` what the engine
    printed as the request. `graph_splits` are those of the prompt-processing graph, where printed. `launch`
    counts the engine starts in one log from 1: a log that was appended to holds several.
    """

    role: str = "main"
    launch: int = 1
    n_ctx: int | None = None
    n_ctx_seq: int | None = None
    n_seq_max: int | None = None
    n_batch: int | None = None
    n_ubatch: int | None = None
    kv_unified: bool | None = None
    flash_attn: Literal["enabled", "disabled"] | None = None
    flash_attn_requested: str | None = None
    n_ctx_train: int | None = None
    n_rs_seq: int | None = None
    graph_splits: int | None = None
    caches: tuple[CacheFacts, ...] = ()
    kv_buffers: tuple[BufferFacts, ...] = ()
    rs_buffers: tuple[BufferFacts, ...] = ()
    compute_buffers: tuple[BufferFacts, ...] = ()
    output_buffers: tuple[BufferFacts, ...] = ()
    lines: dict[str, int] = field(default_factory=dict)

    @property
    def kv_mib(self) -> float | None:
        """All caches of this context together, None when the log shows none."""
        sizes = [c.size_mib for c in self.caches if c.size_mib is not None]
        return sum(sizes) if sizes else None

    @property
    def kv_rounding_mib(self) -> float:
        """How far `kv_mib` may be from what was allocated because sizes are printed with few digits."""
        return sum((c.digit_mib or 0.01) / 2 for c in self.caches if c.size_mib is not None)


@dataclass(frozen=True, slots=True)
class SlotFacts:
    """What the server gives each request: `n_ctx_slot` is the usable context of one slot, in tokens."""

    n_slots: int | None = None
    n_ctx_slot: int | None = None
    kv_unified: bool | None = None
    line: int | None = None


@dataclass(frozen=True, slots=True)
class DeviceFacts:
    """A device the engine listed: total and free memory in MiB where printed."""

    name: str
    description: str = ""
    total_mib: int | None = None
    free_mib: int | None = None
    line: int | None = None


@dataclass(frozen=True, slots=True)
class FailureFacts:
    """Something that failed, by phase. `wanted_mib` is the allocation that was refused, where printed."""

    phase: FailurePhase
    kind: Literal["oom", "refused", "crash", "other"]
    text: str
    line: int | None = None
    device: str | None = None
    wanted_mib: float | None = None


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """All that one log proves.

    `requested` is what the engine itself says it was asked (command line, environment, argument dump).
    `lines` maps a top-level fact (`build`, `offloaded`, `outcome`, ..) to its line; `texts` holds the text of
    every line that any fact refers to.
    """

    engine: EngineName = "unknown"
    build: str | None = None
    commit: str | None = None
    compiler: str | None = None
    outcome: Outcome = "unknown"
    requested: dict[str, Any] = field(default_factory=dict)
    devices: tuple[DeviceFacts, ...] = ()
    contexts: tuple[ContextFacts, ...] = ()
    slots: SlotFacts | None = None
    model_buffers: tuple[BufferFacts, ...] = ()
    offloaded: tuple[int, int] | None = None
    actual: dict[str, Any] | None = None
    failures: tuple[FailureFacts, ...] = ()
    findings: tuple[Finding, ...] = ()
    system_info: str | None = None
    n_lines: int = 0
    lines: dict[str, int] = field(default_factory=dict)
    texts: dict[int, str] = field(default_factory=dict)

    @property
    def main(self) -> ContextFacts | None:
        """The context that serves requests (not a draft or MTP one) in the newest launch that made one."""
        mains = [c for c in self.contexts if c.role == "main"]
        return next((c for c in mains if c.launch == mains[-1].launch), None)
