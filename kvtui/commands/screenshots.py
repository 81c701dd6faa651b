"""`kvtui screenshots SESSION FOLDER`: the pictures of the README, made by the app itself from a recorded session."""

from __future__ import annotations

import argparse
from pathlib import Path

from kvtui.commands.output import out


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command."""
    parser = subparsers.add_parser("screenshots", description="Pictures of a recorded session, as SVG files.")
    parser.add_argument("session", help="the session: its name, the beginning of it, or `last`")
    parser.add_argument("folder", type=Path, help="where the pictures go")


def run(args: argparse.Namespace) -> int:
    """0; 2 when there is no such session."""
    from kvtui.session.store import find
    from kvtui.tui.shots import make

    for path in make(find(args.session), args.folder):
        out(str(path))
    return 0
