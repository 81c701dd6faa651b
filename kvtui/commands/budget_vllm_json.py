"""The document of `kvtui budget --json` for a model that vLLM serves (schema kvtui.budget/1, key `vllm`)."""

from __future__ import annotations

from typing import Any

from kvtui.commands.budget_vllm import DTYPES, Served
from kvtui.core.text import clean
from kvtui.model.hf.vllm import Group, KvDtype, Pages, Pool, value_bytes


def vllm_document(served: Served) -> dict[str, Any]:
    """What the first context costs at the top level, as for a GGUF file; everything else under `vllm`."""
    config, weights = served.config, served.model.weights
    first = served.contexts[0]
    auto = served.pages.get("auto")
    return {
        "schema": "kvtui.budget/1",
        "model": {
            "path": clean(served.model.path),
            "arch": config.architecture,
            "name": config.model_type,
            "quant": config.quantization,
            "n_layer": config.n_layer,
            "n_ctx_train": config.n_ctx_train,
            "weights_bytes": weights.n_bytes if weights else None,
            "exactness": served.exactness,
            "notes": _notes(served),
        },
        "source": {
            "kind": "huggingface",
            "path": clean(served.model.path),
            "notes": list(served.model.notes),
        },
        "config": {"ctx": first, "n_seq_max": served.sequences, "kv_cache_dtype": "auto"},
        "n_ctx": first,
        "n_ctx_seq": first,
        "caches": [_cache(group, auto, served) for group in auto.groups] if auto else [],
        "recurrent": None,
        "kv_bytes": auto.request_bytes(first) * served.sequences if auto else None,
        "refused": served.refused,
        "budget": _budget(served),
        "vllm": {
            "dtype": config.dtype,
            "tensor_parallel_size": served.request.tensor_parallel,
            "max_in_flight_tokens": served.request.in_flight,
            "kv_cache_dtypes": {dtype: _dtype(served, dtype) for dtype in DTYPES},
        },
    }


def _notes(served: Served) -> list[str]:
    notes = [*served.config.notes]
    for pages in served.pages.values():
        notes += [note for note in pages.notes if note not in notes]
    if served.model.weights:
        notes += served.model.weights.notes
    return notes


def _cache(group: Group, pages: Pages, served: Served) -> dict[str, Any]:
    kept = "fp8" if served.config.kv_fp8 else served.config.dtype
    each = group.blocks(served.contexts[0], pages.in_flight)
    blocks = each * served.sequences
    return {
        "kind": group.kind,
        "layers": group.layers - group.padding,
        "cells": each * group.block_size,
        "streams": served.sequences,
        "type_k": kept,
        "type_v": None if group.kind == "latent" else kept,
        "k_bytes": None,
        "v_bytes": None,
        "blocks": blocks,
        "bytes": blocks * pages.bytes_per_block,
    }


def _dtype(served: Served, dtype: KvDtype) -> dict[str, Any] | None:
    pages = served.pages.get(dtype)
    if pages is None:
        return None
    pools = served.pools.get(dtype, ())
    return {
        "value_bytes": value_bytes(served.config, dtype),
        "bytes_per_token": pages.bytes_per_token,
        "bytes_per_block": pages.bytes_per_block,
        "padding_layers": sum(group.padding for group in pages.groups),
        "page_padding_bytes": pages.page_padding,
        "groups": [
            {
                "kind": g.kind, "layers": g.layers - g.padding, "padding_layers": g.padding,
                "block_size": g.block_size or None, "window": g.window or None,
            }
            for g in pages.groups
        ],
        "contexts": [
            {
                "ctx": ctx,
                "blocks_per_request": pages.blocks(ctx),
                "request_bytes": pages.request_bytes(ctx),
                "fits": served.fits(dtype, i),
            }
            | (_pool(pools[i]) if pools else {})
            for i, ctx in enumerate(served.contexts)
        ],
    }  # fmt: skip


def _pool(pool: Pool) -> dict[str, Any]:
    return {
        "num_blocks": pool.blocks,
        "max_concurrency": round(pool.concurrency, 2),
        "kv_cache_tokens": pool.tokens,
        "longest_ctx": pool.longest,
    }


def _budget(served: Served) -> dict[str, Any] | None:
    card = served.card
    if card is None:
        return None
    return {
        "card": served.card_name,
        "total_bytes": card.total_bytes,
        "total_source": "nvml" if served.card_name else "given",
        "gpu_memory_utilization": card.utilization,
        "usable_bytes": card.wanted_bytes,
        "reserve_bytes": card.reserve_bytes if served.reserve_known else None,
        "weights_bytes": card.weights_bytes,
        "weights_source": served.model.weights.source if served.model.weights else None,
        "runtime_bytes": card.runtime_bytes,
        "runtime_source": "given" if served.runtime_given else "assumed",
        "kv_budget_bytes": card.pool_bytes,
        "fits": served.fits("auto"),
    }
