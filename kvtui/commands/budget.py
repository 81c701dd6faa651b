"""`kvtui budget`: what a context of a model file costs, before anything is loaded (schema kvtui.budget/1)."""

from __future__ import annotations

import argparse
import math
import re
from typing import TYPE_CHECKING, Any

from kvtui.commands.budget_card import card_for, terms_for
from kvtui.commands.budget_json import document
from kvtui.commands.output import json_out, out
from kvtui.core.errors import InputError
from kvtui.model.context import ContextPlan, plan
from kvtui.model.geometry import geometry
from kvtui.model.request import ContextRequest
from kvtui.model.weights import place
from kvtui.procedure.budget.measured import pick, read_measurements
from kvtui.procedure.budget.money import ASSUMED_RUNTIME_GIB, DEFAULT_MARGIN_GIB, Money, money_for
from kvtui.procedure.budget.question import Answer, pair_rows
from kvtui.sources.open import open_model
from kvtui.sources.source import GgufModel, HfModel

if TYPE_CHECKING:
    from kvtui.commands.budget_engine import Told
    from kvtui.commands.budget_vllm import Served

FITS, OVER = 0, 1


def add_parser(subparsers: Any) -> None:
    """Declare the sub-command; options that llama-server has carry its names."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "budget",
        help="KV bytes and the memory budget of a model",
        description="What a context of this model costs, from the header or the configuration of its files alone:"
        " with llama.cpp and Ollama for a GGUF file, with vLLM for a Hugging Face model.",
        epilog="exit status: 0, 1 does not fit or the engine will refuse it, 2 unreadable",
    )
    parser.add_argument(
        "model",
        metavar="MODEL",
        help="a GGUF file (any part of a split one), an Ollama tag, a Hugging Face id, folder or config.json, the"
        " http(s) address of a GGUF file, or a folder of models",
    )
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
    parser.add_argument(
        "--ask-engine", metavar="PROGRAM",
        help="show the dry run of this llama-fit-params beside it (a GGUF file; nothing is allocated)",
    )  # fmt: skip
    _add_card_options(parser)
    parser.add_argument("--json", action="store_true", help="one JSON document (kvtui.budget/1)")
    add_vllm_options(parser)


def _add_card_options(parser: argparse.ArgumentParser) -> None:
    """The terms of the equation that are not read from the model file."""
    parser.add_argument(
        "--vram",
        type=_cards,
        metavar="GIB[,GIB]",
        help="memory of the card, or of several (default: that of the GPUs an engine would use)",
    )
    parser.add_argument(
        "--gpu",
        type=_indices,
        metavar="N[,M]",
        dest="gpus",
        help="the GPUs to use, as nvidia-smi counts them (default: all that the environment leaves)",
    )
    parser.add_argument(
        "--reserve",
        type=_gib,
        metavar="GIB",
        help="what desktop and driver take (default: what is in use now; 0 with --vram)",
    )
    parser.add_argument(
        "--runtime", type=_gib, metavar="GIB",
        help="what the engine takes beside weights and KV (default: what a session measured of this model on this"
        f" card, else {ASSUMED_RUNTIME_GIB} assumed)",
    )  # fmt: skip
    parser.add_argument(
        "--margin", type=_gib, default=DEFAULT_MARGIN_GIB, metavar="GIB",
        help=f"kept free (default: {DEFAULT_MARGIN_GIB})",
    )  # fmt: skip


def add_vllm_options(parser: argparse.ArgumentParser) -> None:
    """The options that only vLLM has; None: not given."""
    group = parser.add_argument_group("vLLM (with a Hugging Face model)")
    group.add_argument(
        "--gpu-memory-utilization", type=_share, metavar="SHARE", help="of the card's total (default: 0.92)"
    )
    group.add_argument("--block-size", type=_positive, metavar="N", help="tokens per block (default: 16)")
    group.add_argument(
        "-tp", "--tensor-parallel-size", type=_positive, metavar="N", help="GPUs that share it (default: 1)"
    )
    group.add_argument(
        "--max-num-batched-tokens", type=_positive, metavar="N", help="of one batch (default: 2048)"
    )


def _count(text: str) -> int:
    if not re.fullmatch(r"\d{1,10}", text, re.ASCII) or int(text) >= 1 << 31:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a whole number from 0 to {(1 << 31) - 1}")
    return int(text)


def _positive(text: str) -> int:
    value = _count(text)
    if not value or value > 1 << 24:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a whole number from 1 to {1 << 24}")
    return value


def _share(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value <= 1:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a share from 0 to 1")
    return value


def _gib(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < 1 << 20:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a size in GiB")
    return value


def _cards(text: str) -> tuple[float, ...]:
    return tuple(_gib(part) for part in text.split(","))


def _indices(text: str) -> tuple[int, ...]:
    return tuple(_count(part.strip()) for part in text.split(","))


def run(args: argparse.Namespace) -> int:
    """Print the costs. Raises InputError where the file, or the folder, holds nothing that can be read."""
    if args.n_parallel < 1:
        raise InputError("-np must be at least 1")
    source = open_model(args.model)
    if isinstance(source, HfModel):
        from kvtui.commands.budget_vllm import serve

        return _run_vllm(args, serve(args, source))
    _refuse_vllm_options(args)
    if isinstance(source, GgufModel):
        return _run_gguf(args, source)
    if args.ask_engine is not None:
        raise InputError("--ask-engine is for one model, not for a folder of them")
    from kvtui.commands.budget_folder import run_folder

    return run_folder(args, source)


def _run_gguf(args: argparse.Namespace, source: GgufModel) -> int:
    header = source.header
    shape = geometry(header)
    placement = place(header, args.n_gpu_layers, args.n_cpu_moe)
    requests = [request_of(args, ctx) for ctx in args.ctx or [0]]
    plans = [plan(shape, request) for request in requests]
    card = card_for(args)
    measured = None
    if card is not None and args.runtime is None:
        found = read_measurements(card.name).of(header.header_sha256)
        measured = pick(found, args.n_ubatch, (args.n_gpu_layers, args.n_cpu_moe))
    money = money_for(card, placement.gpu_bytes, terms_for(args), measured) if card else None
    table = pair_rows(shape, requests[0], money) if money else ()
    answer = Answer(source, shape, placement, requests[0], plans[0], money, table, args.n_cpu_moe)
    told: list[Told] = []
    if args.ask_engine is not None:
        from kvtui.commands.budget_engine import ask_engine

        layers = (args.n_gpu_layers, args.n_cpu_moe)
        told = ask_engine(args.ask_engine, source.path, requests, plans, placement, layers)
    if args.json:
        made = document(answer, requests, plans)
        if told:
            from kvtui.commands.budget_engine import engine_document

            made["engine"] = engine_document(told)
        json_out(made)
    else:
        from kvtui.commands.budget_text import text

        out(text(answer, list(zip(requests, plans, strict=True))))
        if told:
            from kvtui.commands.budget_engine import engine_text

            out("\n".join(engine_text(told)))
    return FITS if all(_acceptable(p, money) for p in plans) else OVER


def _run_vllm(args: argparse.Namespace, served: Served) -> int:
    if args.json:
        from kvtui.commands.budget_vllm_json import vllm_document

        json_out(vllm_document(served))
    else:
        from kvtui.commands.budget_vllm_text import vllm_text

        out(vllm_text(served))
    return FITS if served.acceptable else OVER


def _refuse_vllm_options(args: argparse.Namespace) -> None:
    for option in ("gpu_memory_utilization", "block_size", "tensor_parallel_size", "max_num_batched_tokens"):
        if getattr(args, option) is not None:
            raise InputError(
                f"--{option.replace('_', '-')} is of vLLM", hint="give a Hugging Face model, or leave it out"
            )


def request_of(args: argparse.Namespace, ctx: int) -> ContextRequest:
    """What the options ask for, with a context of `ctx` tokens (0: the trained one)."""
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


def _acceptable(made: ContextPlan, money: Money | None) -> bool:
    if made.refused:
        return False
    return money is None or made.kv_bytes is None or money.budget.fits(made.kv_bytes)
