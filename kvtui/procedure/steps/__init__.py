"""The five steps as data, what decides whether the next one may begin; in a module each, what it proposes next."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Purpose = Literal[
    "floor", "baseline", "quantized", "stage", "transient", "concurrency", "stability", "operator"
]


@dataclass(frozen=True, slots=True)
class Step:
    """One step: `goal` is what is run and recorded, `gate` what must hold before the next."""

    number: int
    title: str
    goal: str
    gate: str


STEPS: tuple[Step, ...] = (
    Step(
        1,
        "Weights floor",
        "Small context, one sequence, f16 KV: what weights and runtime alone take, and where they landed.",
        "Nothing unexpectedly on the CPU; weights and runtime leave healthy room on the card.",
    ),
    Step(
        2,
        "F16 baseline",
        "The task suite and recall at the depths used later, with f16 KV: your own outputs to compare with.",
        "What fails here is a model or template problem; it is marked and not blamed on KV later.",
    ),
    Step(
        3,
        "Quantized KV",
        "Same prompts, same depths, q8_0 keys and values, flash attention on.",
        "The log proves the types, no task that passed at f16 fails now, and recall keeps the preset's share.",
    ),
    Step(
        4,
        "Context in stages",
        "One context after the other, never straight to the maximum: speed, memory and recall at each.",
        "Stops at the first failure: memory margin, your speed floor, or recall below the preset's share of the "
        "baseline; the highest stable stage wins.",
    ),
    Step(
        5,
        "Transients",
        "What the failure calls for: micro-batch in prefill, slots under concurrency, only then lower types.",
        "Quality is tested again for every type below q8_0.",
    ),
)

PURPOSES: dict[Purpose, str] = {
    "floor": "weights floor",
    "baseline": "f16 baseline",
    "quantized": "quantized KV",
    "stage": "context stage",
    "transient": "transient",
    "concurrency": "concurrency",
    "stability": "stability",
    "operator": "the operator's own change",
}

# Weights plus runtime above these shares of the card leave no healthy room: 14.5 and 15 GiB of 16.
FLOOR_WARN_SHARE = 14.5 / 16
FLOOR_STOP_SHARE = 15.0 / 16
