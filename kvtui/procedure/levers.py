"""What can be changed when a context does not hold, in the order in which it is tried. Rules as data.

Transients first (micro-batch, slots), then types, never keys below values. CPU offload and forks are named at the
end, not run by themselves: a configuration that leaves the GPU is another answer than the one looked for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from kvtui.core.config import RunConfig
from kvtui.procedure.variables import bits_of
from kvtui.session.records import FailureKind

Cause = Literal["prefill", "kv", "margin", "concurrency", "speed", "recall", "quality", "other"]

SMALLEST_MICRO_BATCH = 64

_CAUSE_OF_FAILURE: dict[FailureKind, Cause] = {
    "compute-oom": "prefill",
    "prefill-oom": "prefill",
    "kv-oom": "kv",
    "weights-oom": "kv",
    "concurrency": "concurrency",
}


def cause_of(failure: FailureKind | None) -> Cause:
    """The cause that a failed run's failure points at."""
    return _CAUSE_OF_FAILURE.get(failure, "other") if failure is not None else "other"


@dataclass(frozen=True, slots=True)
class Lever:
    """One variable, one direction. `pull` gives the next configuration, None when the lever is at its end.

    `lossy` levers change outputs, so the tasks are run again.
    """

    variable: str
    cures: frozenset[Cause]
    why: str
    risk: str
    pull: Callable[[RunConfig], RunConfig | None]
    lossy: bool = False


def _halve_micro_batch(config: RunConfig) -> RunConfig | None:
    half = config.n_ubatch // 2
    return replace(config, n_ubatch=half) if half >= SMALLEST_MICRO_BATCH else None


def _fewer_slots(config: RunConfig) -> RunConfig | None:
    return replace(config, n_parallel=config.n_parallel // 2) if config.n_parallel > 1 else None


def _types(key: str, value: str) -> Callable[[RunConfig], RunConfig | None]:
    def pull(config: RunConfig) -> RunConfig | None:
        smaller = bits_of(key) + bits_of(value) < bits_of(config.type_k) + bits_of(config.type_v)
        possible = config.flash_attn != "off"
        return replace(config, type_k=key, type_v=value) if smaller and possible else None

    return pull


LEVERS: tuple[Lever, ...] = (
    Lever(
        "micro-batch",
        frozenset({"prefill", "margin"}),
        "memory ran short in prefill: the compute buffer grows with the micro-batch, persistent KV does not",
        "slower prefill; decode speed and outputs stay the same",
        _halve_micro_batch,
    ),
    Lever(
        "slots",
        frozenset({"concurrency"}),
        "one request works and several do not: slots multiply per-sequence memory",
        "fewer requests at the same time; the others wait",
        _fewer_slots,
    ),
    Lever(
        "kv-types",
        frozenset({"kv", "margin", "prefill"}),
        "persistent KV is what does not fit: values lose less than keys, so they go first",
        "outputs may change; tasks are run again. Stock CUDA builds have fast kernels for equal pairs only",
        _types("q8_0", "q4_0"),
        lossy=True,
    ),
    Lever(
        "kv-types",
        frozenset({"kv", "margin", "prefill"}),
        "q8_0/q4_0 is still too large: 4-bit keys as well",
        "4-bit keys lose precision on long prompts and tool calls; tasks are run again",
        _types("q4_0", "q4_0"),
        lossy=True,
    ),
)

WILL_NOT_HELP: dict[Cause, tuple[str, ...]] = {
    "prefill": ("smaller KV types alone: the failing allocation is the compute buffer",),
    "kv": ("micro-batch: the failing allocation is persistent KV, not the compute buffer",),
    "margin": (),
    "concurrency": ("KV types: a single request holds",),
    "speed": (
        "micro-batch, slots or KV types: decode speed at depth falls with the tokens that are attended to",
    ),
    "recall": ("more memory: the model does not find what it was told",),
    "quality": ("a larger context: outputs are already worse at this one",),
    "other": (),
}
