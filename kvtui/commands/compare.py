"""`kvtui compare`: two sessions, or two runs: what changed and what it did."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kvtui.commands.output import json_out, out
from kvtui.core.errors import InputError, SessionError
from kvtui.core.text import clean

if TYPE_CHECKING:
    from kvtui.report.comparison import Comparison
    from kvtui.session.state import RunRecord, SessionState

_ABOUT = """\
What changed between two sessions or two runs, asked and proven, and what it
did: memory, speeds with their spread, recall, tasks, outputs.
"""
_EPILOG = """\
SESSION is an id, the start of one, a folder, last, or a report in JSON (a file
ending in .json). SESSION:3 is run 3 of it; :5 alone is run 5 of the session of
A. Of a session beside a run, the run that its verdict stands on is taken.

exit status: 0, 2 no such session or run
"""


def add_parser(subparsers: Any) -> None:
    """Declare the sub-command."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "compare",
        help="two sessions or two runs against each other",
        description=_ABOUT,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("a", metavar="A", help="SESSION or SESSION:RUN")
    parser.add_argument("b", metavar="B", help="SESSION, SESSION:RUN or :RUN")
    parser.add_argument("--json", action="store_true", help="one JSON document (kvtui.compare/1)")


def run(args: argparse.Namespace) -> int:
    """Say what differs. Raises InputError for a session or run that there is not."""
    found = _compared(args.a, args.b)
    if args.json:
        from kvtui.report.comparison_document import document

        json_out(document(found))
    else:
        from kvtui.report.comparison_text import render

        out(render(found).removesuffix("\n"))
    return 0


def _compared(name_a: str, name_b: str) -> Comparison:
    from kvtui.report.comparison import compare_runs, compare_sessions

    session_a, number_a = _split(name_a)
    session_b, number_b = _split(name_b)
    if not session_b and number_b is not None:
        session_b = session_a
    a = _load(session_a, name_a)
    b = a if session_b == session_a else _load(session_b, name_b)
    if number_a is None and number_b is None:
        return compare_sessions(a, b)
    return compare_runs(a, _run(a, number_a), b, _run(b, number_b))


def _split(name: str) -> tuple[str, int | None]:
    session, colon, number = name.rpartition(":")
    if colon and number.isascii() and number.isdigit():
        return session, int(number[:9])
    return name, None


def _load(name: str, given: str) -> SessionState:
    from kvtui.session.store import find, load

    if not name:
        raise InputError(f"{clean(given, 80) or 'nothing'}: no session is named", hint="give SESSION:RUN")
    if name.endswith(".json"):
        from kvtui.report.reading import read_report

        return read_report(Path(name))
    try:
        return load(find(name))
    except SessionError as error:
        raise InputError(error.what, hint=error.hint) from error


def _run(state: SessionState, number: int | None) -> RunRecord:
    session = clean(state.started.session, 80)
    if number is None:
        number = state.verdict.run if state.verdict is not None else None
        if number is None:
            raise InputError(f"{session}: no run of it is named", hint=f"give one: {session}:1")
    run = state.run(number)
    if run is None:
        numbers = f"1 to {len(state.runs)}" if state.runs else "none"
        raise InputError(f"{session}: there is no run {number}", hint=f"its runs: {numbers}")
    return run
