"""The terms of the budget beside the model: what is given, what was measured, and what has to be assumed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from kvtui.core.units import GIB
from kvtui.model.budget import Assumptions, Budget, budget
from kvtui.procedure.budget.card import Card, TotalSource

ASSUMED_RUNTIME_GIB = 1.2  # CUDA context, compute and graph buffers of a mid-size model at -ub 512
DEFAULT_MARGIN_GIB = 1.0

ReserveSource = Literal["given", "measured", "not measured"]
RuntimeSource = Literal["given", "measured", "assumed"]


@dataclass(frozen=True, slots=True)
class Terms:
    """What the operator says of the budget, in GiB; None: what was measured counts, else what is assumed."""

    reserve_gib: float | None = None
    runtime_gib: float | None = None
    margin_gib: float = DEFAULT_MARGIN_GIB


@dataclass(frozen=True, slots=True)
class MeasuredRuntime:
    """What run `run` of session `session` held beyond weights and KV, in bytes, with that context and micro-batch.

    `layers` are those on the GPU (None: all) and those whose experts stay on the CPU.
    """

    n_bytes: int
    session: str
    run: int
    n_ctx: int
    n_ubatch: int
    layers: tuple[int | None, int] = (None, 0)


@dataclass(frozen=True, slots=True)
class Money:
    """The budget and where its terms come from. `measured` is the run that tells the runtime, where one does."""

    budget: Budget
    card: Card
    reserve_source: ReserveSource
    runtime_source: RuntimeSource
    measured: MeasuredRuntime | None = None

    @property
    def total_source(self) -> TotalSource:
        """Who says how large the card is."""
        return self.card.source


def money_for(
    card: Card, weights_gpu_bytes: int, terms: Terms, measured: MeasuredRuntime | None = None
) -> Money:
    """The budget of a model with so many bytes of weights on that card. What is given wins over what was measured."""
    reserve_source: ReserveSource = "measured"
    reserve = card.used_bytes or 0
    if terms.reserve_gib is not None:
        reserve, reserve_source = int(terms.reserve_gib * GIB), "given"
    elif card.used_bytes is None:
        reserve_source = "not measured"
    runtime = int(ASSUMED_RUNTIME_GIB * GIB)
    runtime_source: RuntimeSource = "assumed"
    if terms.runtime_gib is not None:
        runtime, runtime_source, measured = int(terms.runtime_gib * GIB), "given", None
    elif measured is not None:
        runtime, runtime_source = measured.n_bytes, "measured"
    asked = Assumptions(
        total_bytes=card.total_bytes,
        reserve_bytes=reserve,
        runtime_bytes=runtime,
        runtime_measured=runtime_source != "assumed",
        margin_bytes=int(terms.margin_gib * GIB),
    )
    return Money(budget(weights_gpu_bytes, asked), card, reserve_source, runtime_source, measured)
