"""The document of `kvtui budget --json` (schema kvtui.budget/1)."""

from __future__ import annotations

from typing import Any

from kvtui.core.text import clean
from kvtui.model.context import ContextPlan
from kvtui.model.extras import extras
from kvtui.model.geometry import Geometry
from kvtui.model.request import ContextRequest
from kvtui.procedure.budget.money import Money
from kvtui.procedure.budget.question import STAGES, Answer, PairRow


def document(answer: Answer, requests: list[ContextRequest], plans: list[ContextPlan]) -> dict[str, Any]:
    """Everything about one model: `plans` answer `requests`, the first of them (`answer`) at the top level."""
    source, shape, placement = answer.source, answer.shape, answer.placement
    header, first = source.header, answer.made
    made: dict[str, Any] = {
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
        "source": {
            "kind": source.kind,
            "path": None if source.path is None else clean(source.path),
            "fetched_bytes": source.fetched_bytes,
            "companions": [
                {"role": c.role, "path": clean(c.path), "bytes": c.n_bytes} for c in source.companions
            ],
            "notes": list(source.notes),
        },
        **_context(shape, answer.request, first),
        "weights": {
            "gpu_bytes": placement.gpu_bytes,
            "host_bytes": placement.host_bytes,
            "input_bytes": placement.input_bytes,
            "output_bytes": placement.output_bytes,
            "expert_bytes": placement.expert_bytes,
            "offloaded": list(placement.offloaded),
        },
        "not_counted": [
            {"name": e.name, "place": e.place, "bytes": e.n_bytes, "why": e.why}
            for e in extras(shape, answer.request, first)
        ],
        "budget": _budget(answer, answer.money) if answer.money else None,
    }
    if len(plans) > 1:
        made["contexts"] = [_context(shape, r, p) for r, p in zip(requests, plans, strict=True)]
    return made


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


def _budget(answer: Answer, money: Money) -> dict[str, Any]:
    kv_bytes, terms, card, measured = answer.made.kv_bytes, money.budget, money.card, money.measured
    return {
        "card": card.name,
        "gpus": [
            {"index": gpu.index, "total_bytes": gpu.total_bytes, "used_bytes": gpu.used_bytes}
            for gpu in card.gpus
        ],
        "total_bytes": terms.total_bytes,
        "total_source": money.total_source,
        "reserve_bytes": terms.reserve_bytes,
        "reserve_source": money.reserve_source,
        "usable_bytes": terms.usable_bytes,
        "weights_bytes": terms.weights_bytes,
        "runtime_bytes": terms.runtime_bytes,
        "runtime_source": money.runtime_source,
        "runtime_run": {
            "session": measured.session,
            "run": measured.run,
            "n_ctx": measured.n_ctx,
            "n_ubatch": measured.n_ubatch,
        }
        if measured
        else None,
        "speculative_bytes": terms.speculative_bytes,
        "margin_bytes": terms.margin_bytes,
        "kv_budget_bytes": terms.kv_budget_bytes,
        "fits": answer.fits,
        "over_bytes": None if kv_bytes is None else max(0, terms.over_bytes(kv_bytes)),
        "split": [
            {
                "index": one.gpu.index,
                "layers": one.layers,
                "output": one.output,
                "weights_bytes": one.weights_bytes,
                "kv_bytes": one.kv_bytes,
                "free_bytes": one.free_bytes,
                "exactness": "approximate",
            }
            for one in answer.shares
        ],
        "kv_types": [_pair(row) for row in answer.pairs],
    }


def _pair(row: PairRow) -> dict[str, Any]:
    largest = row.largest
    return {
        "type_k": row.asked.type_k,
        "type_v": row.asked.type_v,
        "kv_bytes": {str(ctx): made.kv_bytes for ctx, made in zip(STAGES, row.plans, strict=True)},
        "largest_ctx": largest.tokens if largest else None,
        "largest_ctx_by_memory": largest.by_memory if largest else None,
        "capped_at_n_ctx_train": largest.capped if largest else None,
        "refused": largest.refused if largest else None,
    }
