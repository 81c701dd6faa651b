"""`kvtui budget FOLDER`: the models in it, each with the largest context that fits per pair of KV types.

The folder is one of GGUF files, or a store of Ollama, where every tag is a model.
"""

from __future__ import annotations

import argparse
import textwrap
from itertools import islice
from typing import Any

from kvtui.commands.budget_card import card_for, terms_for
from kvtui.commands.output import json_out, out
from kvtui.core.errors import InputError
from kvtui.core.text import clean, clip, width
from kvtui.core.units import size, tokens
from kvtui.model.request import ContextRequest
from kvtui.procedure.budget.listing import Frame, Largest, ModelRow, models_in, row
from kvtui.procedure.budget.measured import read_measurements
from kvtui.procedure.budget.question import STAGES, TYPE_PAIRS, pair_name
from kvtui.procedure.budget.words import largest
from kvtui.sources.source import ModelFolder

MAX_MODELS = 1000
_NAME = 34


def run_folder(args: argparse.Namespace, folder: ModelFolder) -> int:
    """List the folder. Raises InputError where no model is in it. A model that cannot be read is named."""
    card, terms = card_for(args), terms_for(args)
    request = ContextRequest(
        0, n_seq_max=args.n_parallel, n_ubatch=args.n_ubatch, n_batch=args.n_batch,
        kv_unified=args.kv_unified, swa_full=args.swa_full, flash_attn=args.flash_attn,
    )  # fmt: skip
    measurements = read_measurements(card.name if card else None)
    frame = Frame(request, card, terms, measurements, (args.n_gpu_layers, args.n_cpu_moe))
    models = models_in(folder)
    rows = [row(one, frame) for one in islice(models, MAX_MODELS)]
    # Counting the rest of a huge tree is not worth the time.
    left_out = next(models, None) is not None
    shown = clean(folder.path)
    if not rows:
        raise InputError(f"{shown}: no {'model' if folder.ollama else 'GGUF file'} in it")
    if args.json:
        listed = [_document(one) for one in rows]
        json_out({"schema": "kvtui.budget-list/1", "folder": shown, "models": listed, "left_out": left_out})
    else:
        more = [f"... more than {MAX_MODELS:,} models: the others are left out"] if left_out else []
        out("\n".join([_text(rows), *more]))
    return 0


def _document(found: ModelRow) -> dict[str, Any]:
    header = found.header
    if header is None:
        return {"path": found.name, "error": found.error}
    return {
        "path": found.name,
        "arch": header.arch,
        "quant": header.quant,
        "n_ctx_train": header.n_ctx_train,
        "weights_bytes": header.tensor_bytes,
        "exactness": found.exactness,
        "runtime_source": found.runtime,
        "kv_types": [_pair(pair) for pair in found.pairs],
    }


def _pair(pair: Largest) -> dict[str, Any]:
    made: dict[str, Any] = {
        "type_k": pair.type_k,
        "type_v": pair.type_v,
        "kv_bytes": pair.kv_bytes,
        "refused": pair.refused,
    }
    if pair.largest is not None:
        made |= {"largest_ctx": pair.largest.tokens, "capped_at_n_ctx_train": pair.largest.capped}
    return made


def _text(rows: list[ModelRow]) -> str:
    budgeted = any(pair.largest for one in rows for pair in one.pairs)
    pairs = "".join(f"{pair_name(k, v):>11}" for k, v in TYPE_PAIRS)
    lines = [
        "largest -c that fits (* the trained context)" if budgeted else f"KV at {tokens(STAGES[0])}",
        f"{'':<{_NAME}}{pairs}",
    ]
    for one in rows:
        name = clip(one.name, _NAME - 1)
        name += " " * (_NAME - width(name))
        if one.error:
            lines.append(f"{name}  {one.error}")
        else:
            lines.append(name + "".join(f"{_cell(pair):>11}" for pair in one.pairs))
    measured = ", ".join(one.name for one in rows if one.runtime == "measured")
    if measured:
        lines.append(textwrap.fill(f"runtime measured by a session: {measured}", 80, break_long_words=False))
    return "\n".join(lines)


def _cell(pair: Largest) -> str:
    if pair.refused:
        return "refused"
    if pair.kv_bytes is None:
        return "unknown"
    return size(pair.kv_bytes) if pair.largest is None else largest(pair.largest)
