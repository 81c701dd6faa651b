"""`kvtui report`: a recorded session as a report."""

from __future__ import annotations

import argparse
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from kvtui.commands.output import err, out
from kvtui.core.errors import InputError, SessionError
from kvtui.core.text import clean

FORMATS = ("md", "html", "json", "csv")

_EPILOG = """\
md    for a person: verdict, command line, what to paste where, every run,
      findings with their evidence
html  the same with charts, in one file that loads nothing
json  for a program (kvtui.report/1)
csv   one row a run, for a spreadsheet

Values of options and variables that look like a key, token or password are
never written.

exit status: 0, 2 no such session
"""


def add_parser(subparsers: Any) -> None:
    """Declare the sub-command."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "report",
        help="hand over a session",
        description="Write the report on a recorded session.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "session",
        metavar="SESSION",
        help="its id, the start of one, its folder, or last (see kvtui sessions)",
    )
    parser.add_argument(
        "--format", metavar="|".join(FORMATS), help="what to write (default: as FILE ends, else md)"
    )
    parser.add_argument("-o", "--output", metavar="FILE", help="where to write it (default: standard output)")
    parser.add_argument("--anonymous", action="store_true", help="leave out host names, user names and paths")


def run(args: argparse.Namespace) -> int:
    """Write the report. Raises InputError for a session, format or file that cannot be used."""
    wanted = args.format or format_of(args.output)
    if wanted not in FORMATS:
        raise InputError(
            f"--format {clean(wanted, 40)}: there is no such report", hint=f"use {', '.join(FORMATS)}"
        )
    from kvtui import report as reports
    from kvtui.session.store import find, load

    try:
        state = load(find(args.session))
    except SessionError as error:
        raise InputError(error.what, hint=error.hint) from error
    if args.anonymous:
        from kvtui.report.privacy import anonymous

        state = anonymous(state, names_here())
    report = reports.FORMATS[wanted](state)
    if args.output in (None, "-"):
        sys.stdout.reconfigure(encoding="utf-8", newline="")  # type: ignore[union-attr]
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


def format_of(output: str | None) -> str:
    """The format that a file's name asks for; Markdown where it asks for none."""
    ending = Path(output or "").suffix.removeprefix(".").lower()
    return ending if ending in FORMATS else "md"


def names_here() -> set[str]:
    """What this box and this user are called."""
    import pwd

    host = os.uname().nodename
    names = {host, host.partition(".")[0], os.environ.get("USER", ""), os.environ.get("LOGNAME", "")}
    names.add(os.path.basename(os.path.expanduser("~")))
    with suppress(KeyError):
        names.add(pwd.getpwuid(os.getuid()).pw_name)
    return {n for n in names if n}
