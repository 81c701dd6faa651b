"""A model's budget to play with: what may be changed, the next value of each, and what the choice costs."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace

from kvtui.core.errors import InputError
from kvtui.core.shell import command_line
from kvtui.core.text import clean
from kvtui.core.units import tokens
from kvtui.model.context import plan
from kvtui.model.geometry import Geometry, geometry
from kvtui.model.request import ContextRequest
from kvtui.model.weights import WeightPlacement, place
from kvtui.procedure.budget.card import Card
from kvtui.procedure.budget.measured import Measurements, pick
from kvtui.procedure.budget.money import MeasuredRuntime, Terms, money_for
from kvtui.procedure.budget.question import TYPE_PAIRS, Answer, pair_rows
from kvtui.sources.open import open_model
from kvtui.sources.source import GgufModel, HfModel, ModelFolder

CONTEXTS = tuple(k * 1024 for k in (4, 8, 16, 32, 64, 96, 128, 192, 256, 512, 1024))
MICRO_BATCHES = (128, 256, 512, 1024, 2048)
FIRST_CONTEXT = 32_768
MAX_SLOTS = 64
UNKNOWN_LIMIT = 131_072
SUGGESTED_GIB = 16


@dataclass(frozen=True, slots=True)
class Opened:
    """A model that was read, with what earlier sessions measured of it."""

    reference: str
    source: GgufModel
    shape: Geometry
    placement: WeightPlacement
    measured: tuple[MeasuredRuntime, ...] = ()


@dataclass(frozen=True, slots=True)
class Choices:
    """What the operator chose; `pair` counts in the usual pairs of KV types."""

    ctx: int = FIRST_CONTEXT
    pair: int = 0
    slots: int = 1
    unified: bool = False
    n_ubatch: int = 512

    @property
    def request(self) -> ContextRequest:
        """The same in the engine's terms."""
        type_k, type_v = TYPE_PAIRS[self.pair]
        return ContextRequest(
            self.ctx,
            n_seq_max=self.slots,
            n_ubatch=self.n_ubatch,
            kv_unified=self.unified,
            type_k=type_k,
            type_v=type_v,
        )

    @property
    def for_tuning(self) -> str:
        """In words, what a tuning takes over; KV types are what it finds out."""
        return (
            f"up to {tokens(self.ctx)}, {self.slots} slot{'s' if self.slots > 1 else ''}, -ub {self.n_ubatch}"
        )

    def next_pair(self) -> Choices:
        """The next pair of KV types, the first after the last."""
        return replace(self, pair=(self.pair + 1) % len(TYPE_PAIRS))

    def next_micro_batch(self) -> Choices:
        """The next micro-batch, the smallest after the largest."""
        at = MICRO_BATCHES.index(self.n_ubatch)
        return replace(self, n_ubatch=MICRO_BATCHES[(at + 1) % len(MICRO_BATCHES)])

    def more_slots(self, by: int) -> Choices:
        """So many slots more, at least one and at most 64 in all."""
        return replace(self, slots=min(MAX_SLOTS, max(1, self.slots + by)))


def gguf_or_folder(reference: str) -> GgufModel | ModelFolder:
    """What `reference` means. Raises InputError like `open_model`, and for a model that only vLLM serves."""
    source = open_model(reference)
    if isinstance(source, HfModel):
        shown = command_line(["kvtui", "budget", reference])
        raise InputError("a Hugging Face model, which vLLM serves", hint=f"{shown} prints its pages and pool")
    return source


def explore(reference: str, source: GgufModel | None, measurements: Measurements) -> Opened:
    """The model behind `reference`, read unless `source` has it. Raises InputError for everything but a GGUF model."""
    found = source or gguf_or_folder(reference)
    if isinstance(found, ModelFolder):
        raise InputError(f"{clean(found.path)}: a folder, not a model", hint="give one of the models in it")
    header = found.header
    measured = measurements.of(header.header_sha256)
    return Opened(reference, found, geometry(header), place(header, None), measured)


def first_choices(opened: Opened) -> Choices:
    """32K, or what the model was trained for where that is less."""
    return Choices(min(FIRST_CONTEXT, opened.shape.n_ctx_train or FIRST_CONTEXT))


def answer(opened: Opened, choices: Choices, card: Card | None, terms: Terms) -> Answer:
    """What the choice costs, and whether it fits."""
    request = choices.request
    measured = pick(opened.measured, request.n_ubatch, (None, None))
    money = money_for(card, opened.placement.gpu_bytes, terms, measured) if card else None
    shape = opened.shape
    return Answer(
        opened.source,
        shape,
        opened.placement,
        request,
        plan(shape, request),
        money,
        pair_rows(shape, request, money),
    )


def contexts(made: Answer) -> tuple[int, ...]:
    """The contexts to step through, ascending: round ones, the trained one, and the largest that fits."""
    trained = made.shape.n_ctx_train
    slots = 1 if made.request.kv_unified else max(1, made.request.n_seq_max)
    limit = trained * slots if trained else UNKNOWN_LIMIT
    found = {ctx for ctx in CONTEXTS if ctx <= limit}
    if trained:
        found.add(trained)
    chosen = next((row.largest for row in made.pairs if row.types == made.types), None)
    if chosen is not None and chosen.tokens:
        found.add(chosen.tokens)
    return tuple(sorted(found))


def step(stages: Sequence[int], ctx: int, by: int) -> int:
    """The stage above `ctx` (`by` 1) or below it (-1); `ctx` itself where there is none."""
    at = bisect_right(stages, ctx) if by > 0 else bisect_left(stages, ctx) - 1
    return stages[at] if 0 <= at < len(stages) else ctx


def budget_command(reference: str, choices: Choices, vram_gib: Sequence[float] | None) -> str:
    """The command that prints the same."""
    request = choices.request
    words = [
        "kvtui",
        "budget",
        reference,
        "-c",
        str(request.ctx),
        "-ctk",
        request.type_k,
        "-ctv",
        request.type_v,
    ]
    words += ["-np", str(request.n_seq_max), *(["-kvu"] if request.kv_unified else [])]
    words += ["-ub", str(request.n_ubatch)]
    if vram_gib is not None:
        words += ["--vram", ",".join(f"{one:g}" for one in vram_gib)]
    return command_line(words)
