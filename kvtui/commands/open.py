"""`kvtui` without a command: the app, with the last unfinished session on offer."""

from __future__ import annotations

import argparse
import os

from kvtui.commands.output import err
from kvtui.commands.tuning import has_screen
from kvtui.session.store import unfinished


def run(args: argparse.Namespace) -> int:
    """Open the app; without a terminal, say what could be run."""
    if not has_screen():
        waiting = next(unfinished(), None)
        if waiting is not None:
            name = waiting[0].name
            err(f"kvtui: session {name} is unfinished; go on with: kvtui tune --resume {name} --headless")
        err(
            "kvtui: no terminal that can draw; try: kvtui demo --headless, kvtui tune -m model.gguf --headless"
        )
        return 2
    if args.no_color:
        os.environ["NO_COLOR"] = "1"
    from kvtui.tui.app import run_app

    return run_app(None, unattended=False, no_mouse=args.no_mouse, say=err)
