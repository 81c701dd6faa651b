"""`kvtui budget` of a Hugging Face model for a person: what a request costs with vLLM, and what the pool holds."""

from __future__ import annotations

import textwrap

from kvtui.commands.budget_vllm import DTYPES, Served
from kvtui.core.text import clip
from kvtui.core.units import size, tokens
from kvtui.model.hf.vllm import Group, KvDtype, Pages

WIDTH = 80


def vllm_text(served: Served) -> str:
    """The whole page, without colour, at most 80 columns wide where names allow."""
    lines = [_title(served), *(_prose(f"source   {note}") for note in served.model.notes), *_weights(served)]
    auto = served.pages.get("auto")
    if auto is None:
        lines.append("KV       unknown" if served.config.exactness == "unknown" else "KV       none is kept")
    else:
        lines += ["", *_layout(auto, served), "", *_table(served)]
    lines += ["", *_card(served)]
    lines += [_prose(f"note: {note}") for note in _notes(served)]
    return "\n".join(line.rstrip() for line in lines).rstrip()


def _prose(line: str, indent: int = 9) -> str:
    return textwrap.fill(line, WIDTH, subsequent_indent=" " * indent, break_long_words=False)


def _title(served: Served) -> str:
    config = served.config
    trained = f"trained for {tokens(config.n_ctx_train)}" if config.n_ctx_train else "no trained length"
    weights = config.quantization or config.dtype
    layers = f"{config.n_layer} layers" if config.n_layer else "layers unknown"
    names = dict.fromkeys((config.architecture, config.model_type))
    return clip("  ".join((*names, weights, layers, trained)), WIDTH)


def _weights(served: Served) -> list[str]:
    weights = served.model.weights
    if weights is None:
        return ["weights  unknown: no weight files beside the configuration"]
    ways = {"headers": "from the files' headers", "index": "from the index", "files": "the size of the files"}
    shared = served.request.tensor_parallel
    each = f", {size(-(-weights.n_bytes // shared))} on each of {shared} GPUs" if shared > 1 else ""
    return [f"weights  {size(weights.n_bytes)} ({ways[weights.source]}){each}"]


def _layout(pages: Pages, served: Served) -> list[str]:
    kinds: dict[tuple[str, int, int], list[Group]] = {}
    for group in pages.groups:
        kinds.setdefault((group.kind, group.window, group.block_size), []).append(group)
    lines = [
        f"vLLM     how layers share the pool of blocks ({served.exactness})",
        f"         {'kind':<10}{'layers':>6}{'groups':>8}{'padding':>9}{'block':>8}  window + in flight",
    ]
    for (kind, window, block), groups in kinds.items():
        padding = sum(g.padding for g in groups)
        held = sum(g.layers for g in groups) - padding
        slides = f"  {window:,} + {pages.in_flight:,}" if window else ""
        shown = f"{block:,}" if block else "1 state"
        lines.append(f"         {kind:<10}{held:>6}{len(groups):>8}{padding or '':>9}{shown:>8}{slides}")
    return lines


def _table(served: Served) -> list[str]:
    lines = [
        f"         {'context':>10}{'KV type':>9}{'a request':>12}{'at once':>9}{'tokens held':>14}{'longest':>12}"
    ]
    for i, ctx in enumerate(served.contexts):
        lines += [_row(served, dtype, i, ctx) for dtype in DTYPES if dtype in served.pages]
    each = " per GPU" if served.request.tensor_parallel > 1 else ""
    lines += [
        f"         {dtype}: {served.pages[dtype].bytes_per_token / 1024:,.1f} KiB per further token{each}"
        for dtype in DTYPES
        if dtype in served.pages
    ]
    return lines


def _row(served: Served, dtype: KvDtype, index: int, ctx: int) -> str:
    cost = size(served.pages[dtype].request_bytes(ctx))
    line = f"         {ctx:>10,}{dtype:>9}{cost:>12}"
    if dtype not in served.pools:
        return line
    pool = served.pools[dtype][index]
    at_once = f"{pool.concurrency:.2f}x" if pool.longest >= ctx else "none"
    return f"{line}{at_once:>9}{pool.tokens:>14,}{pool.longest:>12,}"


def _card(served: Served) -> list[str]:
    card = served.card
    if card is None:
        return []
    name = f"  {clip(served.card_name, 40)}" if served.card_name else ""
    beside = "given" if served.runtime_given else "assumed"
    lines = [
        f"card     {size(card.total_bytes)}{name}",
        f"         {size(card.wanted_bytes):>12}  x {card.utilization:g} (--gpu-memory-utilization)",
        f"       - {size(card.weights_bytes):>12}  weights",
        f"       - {size(card.runtime_bytes):>12}  activations and graphs ({beside})",
        f"       = {size(card.pool_bytes):>12}  for the KV cache",
    ]
    if served.refused:
        return [*lines, _prose(f"refused  {served.refused}")]
    over = [ctx for i, ctx in enumerate(served.contexts) if served.fits("auto", i) is False]
    return [*lines, *(f"does not fit: {served.sequences} x {ctx:,} tokens" for ctx in over)]


def _notes(served: Served) -> list[str]:
    notes = [*served.config.notes]
    for pages in served.pages.values():
        notes += [note for note in pages.notes if note not in notes]
    notes += served.model.weights.notes if served.model.weights else ()
    if served.pages:
        notes.append(
            "vLLM may raise the block size for its attention backend; its log tells the pool it really made"
        )
    return notes
