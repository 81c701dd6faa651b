"""What `demo` and `tune` share: the session's options, the headless run, the screen, the report at the end."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path
from threading import Event as Flag
from typing import TYPE_CHECKING

from kvtui.commands.output import err, out

if TYPE_CHECKING:
    from kvtui.procedure.tune import Tuning
    from kvtui.session.state import SessionState

Job = Callable[[Callable[[str], None]], "Tuning"]


def add_screen_options(parser: argparse.ArgumentParser) -> None:
    """Options that do not belong to the procedure itself."""
    parser.add_argument(
        "--headless", action="store_true", help="no screen: progress on stderr, the report's path at the end"
    )
    parser.add_argument("--debug", action="store_true", default=argparse.SUPPRESS, help=argparse.SUPPRESS)
    parser.add_argument("--no-color", action="store_true", default=argparse.SUPPRESS, help=argparse.SUPPRESS)
    parser.add_argument("--no-mouse", action="store_true", default=argparse.SUPPRESS, help=argparse.SUPPRESS)


def work(job: Job, args: argparse.Namespace, *, unattended: bool) -> int:
    """Do `job` on the screen, or headless where that was asked for or there is no terminal."""
    if args.headless or not has_screen():
        if not args.headless:
            err("kvtui: no terminal that can draw, going on without a screen")
        return headless(job, insist=getattr(args, "insist", False))
    if args.no_color:
        os.environ["NO_COLOR"] = "1"
    from kvtui.tui.app import run_app

    return run_app(job, unattended=unattended, no_mouse=args.no_mouse, say=err)


def has_screen() -> bool:
    """True when there is a terminal to draw on."""
    return sys.stdin.isatty() and sys.stderr.isatty() and os.environ.get("TERM", "dumb") != "dumb"


def headless(job: Job, *, insist: bool = False) -> int:
    """The same work without a screen. TERM, HUP and Ctrl+C end the engine and leave the session to be resumed."""
    from kvtui.commands.headless import Narrator, Unattended, stop_on_signals
    from kvtui.core.errors import Cancelled

    cancel = Flag()
    with stop_on_signals(cancel) as stopped_by:
        tuning = job(lambda text: err(f"kvtui: {text}"))
        folder = tuning.store.folder
        err(f"kvtui: session {folder.name}")
        narrator = Narrator(tuning.store.state)
        try:
            state = tuning.run(narrator, Unattended(insist), cancel)
        except Cancelled:
            _write_report(folder)
            err(f"kvtui: stopped; what was measured is kept, go on with: kvtui tune --resume {folder.name}")
            return 128 + (stopped_by() or 2)
    return finish(folder, state)


def finish(folder: Path, state: SessionState) -> int:
    """Say the verdict, write the report, print its path on stdout."""
    from kvtui.session.records import EXIT_STATUS

    verdict = state.verdict
    assert verdict is not None
    paths = _write_report(folder)
    err(f"kvtui: {verdict.title}")
    err(f"       {verdict.why}")
    if verdict.command:
        err(f"       {verdict.command}")
    for path in paths[:1]:
        out(str(path))
    return EXIT_STATUS[verdict.outcome]


def _write_report(folder: Path) -> tuple[Path, ...]:
    from kvtui.report import write

    return write(folder)
