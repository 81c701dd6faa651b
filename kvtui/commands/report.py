"""`kvtui report`: a recorded session as a report."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from kvtui.commands.output import err, out
from kvtui.core.errors import InputError, SessionError
from kvtui.core.text import clean

FORMATS = ("md", "json")


def add_parser(subparsers: Any) -> None:
    """Declare the sub-command."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "report",
        help="hand over a session",
        description="Write the report on a recorded session, for a person (md) or a program (json).",
        epilog="exit status: 0, 2 no such session",
    )
    parser.add_argument(
        "session",
        metavar="SESSION",
        help="its id, the start of one, its folder, or last (see kvtui sessions)",
    )
    parser.add_argument(
        "--format", default="md", metavar="|".join(FORMATS), help="what to write (default: md)"
    )
    parser.add_argument("-o", "--output", metavar="FILE", help="where to write it (default: standard output)")


def run(args: argparse.Namespace) -> int:
    """Write the report. Raises InputError for a session, format or file that cannot be used."""
    if args.format not in FORMATS:
        raise InputError(
            f"--format {clean(args.format, 40)}: there is no such report", hint=f"use {' or '.join(FORMATS)}"
        )
    from kvtui.report import as_json, as_markdown
    from kvtui.session.store import find, load

    try:
        state = load(find(args.session))
    except SessionError as error:
        raise InputError(error.what, hint=error.hint) from error
    report = (as_json if args.format == "json" else as_markdown)(state)
    if args.output in (None, "-"):
        sys.stdout.reconfigure(encoding="utf-8")  # type: ignore[union-attr]
        out(report.removesuffix("\n"))
        return 0
    from kvtui.report.files import save

    path = Path(args.output)
    try:
        save(path, report.encode())
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise InputError(f"{clean(args.output, 200)}: cannot write the report: {reason}") from error
    err(f"kvtui: wrote {clean(str(path))}")
    return 0
