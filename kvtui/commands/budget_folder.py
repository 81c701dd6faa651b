"""`kvtui budget FOLDER`: the models in it, each with the largest context that fits per pair of KV types.

The folder is one of GGUF files, or a store of Ollama, where every tag is a model.
"""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from typing import Any

from kvtui.commands.budget_card import Card, Money, card_for, money_for
from kvtui.commands.budget_json import STAGES, TYPE_PAIRS
from kvtui.commands.output import json_out, out
from kvtui.core.errors import InputError, ModelFileError
from kvtui.core.text import clean, clip, width
from kvtui.core.units import size, tokens
from kvtui.model.budget import largest_context
from kvtui.model.context import plan
from kvtui.model.geometry import Geometry, geometry
from kvtui.model.header import read_header
from kvtui.model.request import ContextRequest
from kvtui.model.weights import place
from kvtui.sources import ollama
from kvtui.sources.source import ModelFolder

MAX_MODELS = 1000
_LATER_PART = re.compile(r"-(?!00001)\d{5}-of-\d{5}\.gguf$")
_NAME = 34


def run_folder(args: argparse.Namespace, folder: ModelFolder) -> int:
    """List the folder. Raises InputError where no model is in it. A model that cannot be read is named."""
    card = card_for(args)
    models = _tags(folder.path) if folder.ollama else _files(folder.path)
    rows = [_row(args, name, found, card) for name, found in islice(models, MAX_MODELS)]
    # Counting the rest of a huge tree is not worth the time.
    left_out = next(models, None) is not None
    shown = clean(folder.path)
    if not rows:
        raise InputError(f"{shown}: no {'model' if folder.ollama else 'GGUF file'} in it")
    if args.json:
        listed = {"schema": "kvtui.budget-list/1", "folder": shown, "models": rows, "left_out": left_out}
        json_out(listed)
    else:
        more = [f"... more than {MAX_MODELS:,} models: the others are left out"] if left_out else []
        out("\n".join([_text(rows), *more]))
    return 0


Found = str | ollama.Found


def _files(folder: str) -> Iterator[tuple[str, Found]]:
    for root, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            if name.endswith(".gguf") and not _LATER_PART.search(name):
                path = os.path.join(root, name)
                yield os.path.relpath(path, folder), path


def _tags(store: str) -> Iterator[tuple[str, Found]]:
    for found in ollama.tags(store):
        yield found.tag.short, found


def _row(args: argparse.Namespace, name: str, found: Found, card: Card | None) -> dict[str, Any]:
    shown = clean(name)
    try:
        header = read_header(found if isinstance(found, str) else ollama.locate(found).path)
    except ModelFileError as error:
        return {"path": shown, "error": error.reason}
    shape = geometry(header)
    placement = place(header, args.n_gpu_layers, args.n_cpu_moe)
    money = money_for(args, card, placement.gpu_bytes) if card else None
    request = ContextRequest(
        0, n_seq_max=args.n_parallel, n_ubatch=args.n_ubatch, n_batch=args.n_batch,
        kv_unified=args.kv_unified, swa_full=args.swa_full, flash_attn=args.flash_attn,
    )  # fmt: skip
    pairs = []
    for type_k, type_v in TYPE_PAIRS:
        asked = replace(request, type_k=type_k, type_v=type_v)
        first = plan(shape, replace(asked, ctx=STAGES[0]))
        pairs.append(
            {"type_k": type_k, "type_v": type_v, "kv_bytes": first.kv_bytes, "refused": first.refused}
            | (_largest(shape, asked, money) if money else {})
        )
    return {
        "path": shown,
        "arch": header.arch,
        "quant": header.quant,
        "n_ctx_train": header.n_ctx_train,
        "weights_bytes": header.tensor_bytes,
        "exactness": shape.exactness,
        "kv_types": pairs,
    }


def _largest(shape: Geometry, asked: ContextRequest, money: Money) -> dict[str, Any]:
    found = largest_context(shape, asked, money.budget.kv_budget_bytes)
    return {"largest_ctx": found.tokens, "capped_at_n_ctx_train": found.capped}


def _text(rows: list[dict[str, Any]]) -> str:
    budgeted = any("largest_ctx" in pair for row in rows for pair in row.get("kv_types", []))
    pairs = "".join(f"{k if k == v else f'{k}/{v}':>11}" for k, v in TYPE_PAIRS)
    lines = [
        "largest -c that fits (* the trained context)" if budgeted else f"KV at {tokens(STAGES[0])}",
        f"{'':<{_NAME}}{pairs}",
    ]
    for row in rows:
        name = clip(row["path"], _NAME - 1)
        name += " " * (_NAME - width(name))
        if "error" in row:
            lines.append(f"{name}  {row['error']}")
        else:
            lines.append(name + "".join(f"{_cell(pair, budgeted):>11}" for pair in row["kv_types"]))
    return "\n".join(lines)


def _cell(pair: dict[str, Any], budgeted: bool) -> str:
    if pair["refused"]:
        return "refused"
    if pair["kv_bytes"] is None:
        return "unknown"
    if not budgeted:
        return size(pair["kv_bytes"])
    return f"{pair['largest_ctx']:,}{'*' if pair['capped_at_n_ctx_train'] else ''}"
