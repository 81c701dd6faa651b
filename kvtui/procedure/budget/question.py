"""One model, one set of options: everything that a page or a screen shows of it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from kvtui.model.budget import LargestContext, largest_context
from kvtui.model.context import ContextPlan, plan
from kvtui.model.geometry import Geometry
from kvtui.model.request import ContextRequest
from kvtui.model.weights import WeightPlacement
from kvtui.procedure.budget.money import Money
from kvtui.procedure.budget.split import Share, split
from kvtui.sources.source import GgufModel

TYPE_PAIRS = (("f16", "f16"), ("q8_0", "q8_0"), ("q8_0", "q4_0"), ("q4_0", "q4_0"))
STAGES = (32_768, 65_536, 98_304, 131_072)


@dataclass(frozen=True, slots=True)
class PairRow:
    """One pair of KV types: what is asked, the plans at the usual stages, and the largest context that fits.

    `largest` is None where no memory is known.
    """

    asked: ContextRequest
    plans: tuple[ContextPlan, ...]
    largest: LargestContext | None

    @property
    def types(self) -> tuple[str, str]:
        """Of K and V."""
        return self.asked.type_k, self.asked.type_v

    @property
    def name(self) -> str:
        """`q8_0`, or `q8_0/q4_0` where K and V differ."""
        return pair_name(self.asked.type_k, self.asked.type_v)


@dataclass(frozen=True, slots=True)
class Answer:
    """What `request` costs. `pairs` are those with the other options of `request`."""

    source: GgufModel
    shape: Geometry
    placement: WeightPlacement
    request: ContextRequest
    made: ContextPlan
    money: Money | None
    pairs: tuple[PairRow, ...]
    n_cpu_moe: int | None = None

    @property
    def shares(self) -> tuple[Share, ...]:
        """About what each of several GPUs would get; empty for a single one."""
        return (
            split(self.shape, self.placement, self.made, self.money.card.gpus, self.n_cpu_moe)
            if self.money
            else ()
        )

    @property
    def types(self) -> tuple[str, str]:
        """Of K and V."""
        return self.request.type_k, self.request.type_v

    @property
    def fits(self) -> bool | None:
        """None where no memory is known, or nothing of the model's KV."""
        if self.money is None or self.made.kv_bytes is None:
            return None
        return self.money.budget.fits(self.made.kv_bytes)


def pair_name(type_k: str, type_v: str) -> str:
    """`q8_0`, or `q8_0/q4_0` where K and V differ."""
    return type_k if type_k == type_v else f"{type_k}/{type_v}"


def pair_rows(shape: Geometry, request: ContextRequest, money: Money | None) -> tuple[PairRow, ...]:
    """The usual pairs of KV types, all other options as in `request`."""
    rows = []
    for type_k, type_v in TYPE_PAIRS:
        asked = replace(request, type_k=type_k, type_v=type_v)
        plans = tuple(plan(shape, replace(asked, ctx=ctx)) for ctx in STAGES)
        largest = None if money is None else largest_context(shape, asked, money.budget.kv_budget_bytes)
        rows.append(PairRow(asked, plans, largest))
    return tuple(rows)
