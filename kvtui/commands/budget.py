"""`kvtui budget`: what a context of a model file costs, before anything is loaded (schema kvtui.budget/1)."""

from __future__ import annotations

import argparse
import math
from dataclasses import replace
from typing import Any

from kvtui.commands.output import json_out, out
from kvtui.core.errors import InputError
from kvtui.core.units import GIB
from kvtui.model.budget import Assumptions, Budget, LargestContext, budget, largest_context
from kvtui.model.context import ContextPlan, ContextRequest, plan
from kvtui.model.geometry import Geometry, geometry
from kvtui.model.header import Header, read_header
from kvtui.model.weights import WeightPlacement, place

FITS, OVER = 0, 1
ASSUMED_RUNTIME_GIB = 1.2  # CUDA context, compute and graph buffers of a mid-size model at -ub 512
DEFAULT_MARGIN_GIB = 1.0
TYPE_PAIRS = (("f16", "f16"), ("q8_0", "q8_0"), ("q8_0", "q4_0"), ("q4_0", "q4_0"))
STAGES = (32_768, 65_536, 98_304, 131_072)


def add_parser(subparsers: Any) -> None:
    """Declare the sub-command; options that llama-server has carry its names."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "budget",
        help="KV bytes and the memory budget of a GGUF file",
        description="What a context of this model costs, from the file's header alone.",
        epilog="exit status: 0, 1 does not fit or the engine will refuse it, 2 unreadable",
    )
    parser.add_argument("model", metavar="MODEL", help="a GGUF file; any part of a split file stands for all")
    parser.add_argument(
        "-c", "--ctx-size", type=_count, nargs="+", action="extend", metavar="N", dest="ctx",
        help="tokens of context, one or several (default: what the model was trained for)",
    )  # fmt: skip
    parser.add_argument("-b", "--batch-size", type=_count, default=2048, metavar="N", dest="n_batch")
    parser.add_argument("-ub", "--ubatch-size", type=_count, default=512, metavar="N", dest="n_ubatch")
    parser.add_argument("-np", "--parallel", type=_count, default=1, metavar="N", dest="n_parallel")
    parser.add_argument(
        "-kvu", "--kv-unified", action=argparse.BooleanOptionalAction, default=False, dest="kv_unified",
        help="one pool of cells for all sequences",
    )  # fmt: skip
    parser.add_argument("--swa-full", action="store_true", help="sliding layers keep the whole context")
    parser.add_argument("-ctk", "--cache-type-k", default="f16", metavar="TYPE", dest="type_k")
    parser.add_argument("-ctv", "--cache-type-v", default="f16", metavar="TYPE", dest="type_v")
    parser.add_argument(
        "-fa", "--flash-attn", choices=("on", "off", "auto"), default="auto", dest="flash_attn"
    )
    parser.add_argument(
        "-ngl", "--gpu-layers", "--n-gpu-layers", type=_count, metavar="N", dest="n_gpu_layers",
        help="layers on the GPU (default: all)",
    )  # fmt: skip
    parser.add_argument("-ncmoe", "--n-cpu-moe", type=_count, metavar="N", dest="n_cpu_moe")
    parser.add_argument("--vram", type=_gib, metavar="GIB", help="memory of the card; adds the budget")
    parser.add_argument(
        "--reserve", type=_gib, metavar="GIB", help="what desktop and driver take (default: 0, not measured)"
    )
    parser.add_argument(
        "--runtime", type=_gib, metavar="GIB",
        help=f"what the engine takes beside weights and KV (default: {ASSUMED_RUNTIME_GIB} assumed)",
    )  # fmt: skip
    parser.add_argument(
        "--margin", type=_gib, default=DEFAULT_MARGIN_GIB, metavar="GIB",
        help=f"kept free (default: {DEFAULT_MARGIN_GIB})",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="one JSON document (kvtui.budget/1)")


def _count(text: str) -> int:
    value = int(text)
    if not 0 <= value < 1 << 31:
        raise ValueError
    return value


def _gib(text: str) -> float:
    value = float(text)
    if not math.isfinite(value) or not 0 <= value < 1 << 20:
        raise ValueError
    return value


def run(args: argparse.Namespace) -> int:
    """Print the costs. Raises ModelFileError where the file cannot be read."""
    if args.n_parallel < 1:
        raise InputError("-np must be at least 1")
    header = read_header(args.model)
    shape = geometry(header)
    placement = place(header, args.n_gpu_layers, args.n_cpu_moe)
    requests = [_request(args, ctx) for ctx in args.ctx or [0]]
    plans = [plan(shape, request) for request in requests]
    money = _budget(args, placement) if args.vram is not None else None
    if args.json:
        json_out(_document(header, shape, placement, requests, plans, money))
    else:
        from kvtui.commands.budget_text import text

        table = _pairs(shape, requests[0], money) if money else []
        out(text(header, shape, placement, list(zip(requests, plans, strict=True)), money, table))
    return FITS if all(_acceptable(p, money) for p in plans) else OVER


def _request(args: argparse.Namespace, ctx: int) -> ContextRequest:
    return ContextRequest(
        ctx=ctx,
        n_seq_max=args.n_parallel,
        n_ubatch=args.n_ubatch,
        n_batch=args.n_batch,
        kv_unified=args.kv_unified,
        swa_full=args.swa_full,
        type_k=args.type_k,
        type_v=args.type_v,
        flash_attn=args.flash_attn,
    )


def _budget(args: argparse.Namespace, placement: WeightPlacement) -> Budget:
    measured = args.runtime is not None
    return budget(
        placement.gpu_bytes,
        Assumptions(
            total_bytes=int(args.vram * GIB),
            reserve_bytes=int((args.reserve or 0) * GIB),
            runtime_bytes=int((args.runtime if measured else ASSUMED_RUNTIME_GIB) * GIB),
            runtime_measured=measured,
            margin_bytes=int(args.margin * GIB),
        ),
    )


def _acceptable(made: ContextPlan, money: Budget | None) -> bool:
    if made.refused:
        return False
    return money is None or made.kv_bytes is None or money.fits(made.kv_bytes)


PairRow = tuple[ContextRequest, list[ContextPlan], LargestContext]


def _pairs(shape: Geometry, request: ContextRequest, money: Budget) -> list[PairRow]:
    """For each pair of KV types: the plans at the usual stages and the largest context that fits."""
    rows = []
    for type_k, type_v in TYPE_PAIRS:
        asked = replace(request, type_k=type_k, type_v=type_v)
        plans = [plan(shape, replace(asked, ctx=ctx)) for ctx in STAGES]
        rows.append((asked, plans, largest_context(shape, asked, money.kv_budget_bytes)))
    return rows


def _document(
    header: Header,
    shape: Geometry,
    placement: WeightPlacement,
    requests: list[ContextRequest],
    plans: list[ContextPlan],
    money: Budget | None,
) -> dict[str, Any]:
    first = plans[0]
    document: dict[str, Any] = {
        "schema": "kvtui.budget/1",
        "model": {
            "path": header.path,
            "arch": header.arch,
            "name": header.name,
            "quant": header.quant,
            "n_layer": header.n_layer,
            "n_ctx_train": header.n_ctx_train,
            "weights_bytes": header.tensor_bytes,
            "exactness": first.exactness,
            "notes": [*shape.notes, *first.notes],
        },
        **_context(shape, requests[0], first),
        "weights": {
            "gpu_bytes": placement.gpu_bytes,
            "host_bytes": placement.host_bytes,
            "input_bytes": placement.input_bytes,
            "output_bytes": placement.output_bytes,
            "expert_bytes": placement.expert_bytes,
            "offloaded": list(placement.offloaded),
        },
        "budget": _budget_document(shape, requests[0], first, money) if money else None,
    }
    if len(plans) > 1:
        document["contexts"] = [_context(shape, r, p) for r, p in zip(requests, plans, strict=True)]
    return document


def _context(shape: Geometry, request: ContextRequest, made: ContextPlan) -> dict[str, Any]:
    known = made.exactness != "unknown"
    recurrent = made.recurrent
    return {
        "config": {
            "ctx": request.ctx or shape.n_ctx_train,
            "ubatch": request.n_ubatch,
            "n_seq_max": request.n_seq_max,
            "kv_unified": request.kv_unified,
            "swa_full": request.swa_full,
            "type_k": request.type_k,
            "type_v": request.type_v,
            "flash_attn": request.flash_attn,
        },
        "n_ctx": made.n_ctx,
        "n_ctx_seq": made.n_ctx_seq,
        "usable_per_slot": made.usable_per_slot,
        "caches": [
            {
                "kind": c.kind, "layers": c.layers, "cells": c.cells, "streams": c.streams,
                "type_k": c.type_k, "type_v": c.type_v,
                "k_bytes": c.k_bytes, "v_bytes": c.v_bytes, "bytes": c.bytes,
            }
            for c in made.caches
        ],
        "recurrent": {
            "r_bytes": recurrent.r_bytes, "s_bytes": recurrent.s_bytes,
            "p_bytes": recurrent.p_bytes, "bytes": recurrent.bytes,
        } if recurrent else None,
        "state_bytes": made.state_bytes,
        "kv_bytes": made.kv_bytes,
        "conventional_kv_bytes": made.conventional_kv_bytes if known else None,
        "refused": made.refused,
    }  # fmt: skip


def _budget_document(
    shape: Geometry, request: ContextRequest, made: ContextPlan, money: Budget
) -> dict[str, Any]:
    kv_bytes = made.kv_bytes
    return {
        "total_bytes": money.total_bytes,
        "reserve_bytes": money.reserve_bytes,
        "usable_bytes": money.usable_bytes,
        "weights_bytes": money.weights_bytes,
        "runtime_bytes": money.runtime_bytes,
        "runtime_source": "given" if money.runtime_measured else "assumed",
        "speculative_bytes": money.speculative_bytes,
        "margin_bytes": money.margin_bytes,
        "kv_budget_bytes": money.kv_budget_bytes,
        "fits": None if kv_bytes is None else money.fits(kv_bytes),
        "over_bytes": None if kv_bytes is None else max(0, money.over_bytes(kv_bytes)),
        "kv_types": [
            {
                "type_k": asked.type_k,
                "type_v": asked.type_v,
                "kv_bytes": {str(ctx): p.kv_bytes for ctx, p in zip(STAGES, plans, strict=True)},
                "largest_ctx": largest.tokens,
                "largest_ctx_by_memory": largest.by_memory,
                "capped_at_n_ctx_train": largest.capped,
                "refused": largest.refused,
            }
            for asked, plans, largest in _pairs(shape, request, money)
        ],
    }
