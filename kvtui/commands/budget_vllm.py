"""What a Hugging Face model costs with vLLM: the terms of its pool, and the answers for each context asked for."""

from __future__ import annotations

import argparse
from dataclasses import dataclass

from kvtui.commands.budget_card import card_for
from kvtui.core.errors import InputError
from kvtui.core.units import GIB
from kvtui.model.hf.config import HfConfig
from kvtui.model.hf.vllm import BLOCK, IN_FLIGHT, Card, KvDtype, Pages, Pool, ServeRequest, fill, lay_out
from kvtui.model.shapes import Exactness
from kvtui.procedure.budget.money import DEFAULT_MARGIN_GIB
from kvtui.sources.source import HfModel

UTILIZATION = 0.92  # of the card's total, vLLM's default since 0.2x; 0.9 before
ASSUMED_RUNTIME_GIB = 1.6  # seen on a 16 GB card: 0.34 peak activation, 1.27 graphs
DTYPES: tuple[KvDtype, ...] = ("auto", "fp8")
_DTYPE, _BATCH = "auto and fp8 are both shown", "--max-num-batched-tokens is vLLM's"
_LLAMA_ONLY: tuple[tuple[str, object, str, str], ...] = (
    ("type_k", "f16", "-ctk", _DTYPE),
    ("type_v", "f16", "-ctv", _DTYPE),
    ("n_batch", 2048, "-b", _BATCH),
    ("n_ubatch", 512, "-ub", _BATCH),
    ("margin", DEFAULT_MARGIN_GIB, "--margin", "--gpu-memory-utilization is vLLM's"),
    ("n_gpu_layers", None, "-ngl", "vLLM has all layers on the GPU"),
    ("n_cpu_moe", None, "-ncmoe", "vLLM has all layers on the GPU"),
    ("swa_full", False, "--swa-full", "leave it out"),
    ("kv_unified", False, "-kvu", "vLLM has one pool"),
    ("flash_attn", "auto", "-fa", "leave it out"),
    ("ask_engine", None, "--ask-engine", "give a GGUF file"),
)


@dataclass(frozen=True, slots=True)
class Served:
    """A model with one way to serve it. `pages` and `pools` per cache type; `pools` one per context, in order.

    `card` is None where there is neither a GPU nor `--vram`, or the size of the weights is not known.
    """

    model: HfModel
    contexts: tuple[int, ...]
    sequences: int
    request: ServeRequest
    pages: dict[KvDtype, Pages]
    card: Card | None
    card_name: str | None
    reserve_known: bool
    runtime_given: bool
    pools: dict[KvDtype, tuple[Pool, ...]]

    @property
    def config(self) -> HfConfig:
        return self.model.config

    @property
    def exactness(self) -> Exactness:
        """That of a request's bytes: the pool is never exact, because what runs beside it is assumed."""
        uncertain = any(pages.notes for pages in self.pages.values())
        return "approximate" if self.config.exactness == "exact" and uncertain else self.config.exactness

    @property
    def refused(self) -> str | None:
        """Why vLLM does not start, None where nothing speaks against it."""
        if self.card is None:
            return None
        if self.card.pool_bytes <= 0:
            return "weights and what runs beside them leave nothing for the KV cache"
        if self.reserve_known and not self.card.starts:
            return "less is free on the card than vLLM is to take: lower --gpu-memory-utilization"
        return None

    def fits(self, dtype: KvDtype, index: int = 0) -> bool | None:
        """Whether so many requests of that context fit at once, None where no card is known."""
        if dtype not in self.pools or self.refused:
            return False if self.refused else None
        pool = self.pools[dtype][index]
        return pool.longest >= self.contexts[index] and pool.concurrency >= self.sequences

    @property
    def acceptable(self) -> bool:
        """Whether it starts, and holds every context that was asked for, with `auto`."""
        return self.refused is None and all(
            self.fits("auto", i) is not False for i in range(len(self.contexts))
        )


def serve(args: argparse.Namespace, model: HfModel) -> Served:
    """What the options say of this model. Raises InputError for options that vLLM does not have."""
    for name, default, option, instead in _LLAMA_ONLY:
        if getattr(args, name) != default:
            raise InputError(f"{option} is of llama.cpp, and this is a model for vLLM", hint=instead)
    config = model.config
    batch = args.max_num_batched_tokens
    request = ServeRequest(
        block_size=args.block_size or BLOCK,
        tensor_parallel=args.tensor_parallel_size or 1,
        in_flight=batch * 2 if batch else IN_FLIGHT,
    )
    contexts = tuple(ctx or config.n_ctx_train or 0 for ctx in args.ctx or [0])
    if 0 in contexts:
        raise InputError(
            f"{config.path}: no trained context in it", hint="say with -c how many tokens to count"
        )
    laid_out = {dtype: lay_out(config, dtype, request) for dtype in DTYPES}
    pages: dict[KvDtype, Pages] = {dtype: made for dtype, made in laid_out.items() if made is not None}
    cards = card_for(args)
    # Every GPU holds its share of each layer, so the smallest sets the limit.
    found = cards.smallest(request.tensor_parallel) if cards else None
    card, known = None, False
    if found is not None and model.weights is not None:
        known = args.reserve is not None or found.used_bytes is not None
        card = Card(
            total_bytes=found.total_bytes,
            utilization=args.gpu_memory_utilization or UTILIZATION,
            weights_bytes=-(-model.weights.n_bytes // request.tensor_parallel),
            runtime_bytes=int((ASSUMED_RUNTIME_GIB if args.runtime is None else args.runtime) * GIB),
            reserve_bytes=int(args.reserve * GIB) if args.reserve is not None else found.used_bytes or 0,
        )
    pools = (
        {d: tuple(fill(p, card.pool_bytes, ctx) for ctx in contexts) for d, p in pages.items()}
        if card
        else {}
    )
    return Served(
        model, contexts, args.n_parallel, request, pages, card, found.name if found else None, known,
        args.runtime is not None, pools,
    )  # fmt: skip
