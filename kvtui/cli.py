"""The command line: finds the sub-command, imports it alone, and turns its errors into one line."""

from __future__ import annotations

import argparse
import importlib
import io
import sys
from collections.abc import Sequence
from typing import NoReturn

from kvtui import __version__
from kvtui.core.errors import Cancelled, InputError, KvtuiError
from kvtui.core.text import clean

COMMANDS: dict[str, str] = {
    "demo": "the whole procedure on the embedded engine and a small real model, no GPU needed",
    "tune": "the procedure on your model",
    "attach": "requested against actual for a server that already runs",
    "log": "read a start-up log: requested against actual",
    "budget": "KV bytes and the memory budget of a model",
    "doctor": "GPUs, engines and their abilities, and what is missing",
    "sessions": "what was recorded",
    "report": "hand over a session",
    "compare": "two sessions or two runs against each other",
}
HIDDEN = ("screenshots",)

USAGE_ERROR = 2
FAILED = 3
INTERRUPTED = 130


def _overview() -> str:
    width = max(map(len, COMMANDS))
    rows = "\n".join(f"  {name:<{width}}  {text}" for name, text in COMMANDS.items())
    return f"commands:\n{rows}\n\nWithout a command the app opens: a new session, or the last unfinished one."


class _Parser(argparse.ArgumentParser):
    """Says what is wrong with the arguments as every other error is said: in one line."""

    def error(self, message: str) -> NoReturn:
        from kvtui.commands.output import err

        err(f"kvtui: {clean(message)}: see {self.prog} --help")
        raise SystemExit(USAGE_ERROR)


def _root() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="kvtui",
        description="Make long context really fit: KV-cache tuning with proof from the engine's own log.",
        epilog=_overview(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        usage="kvtui [COMMAND] [OPTIONS]",
    )
    parser.add_argument("--version", action="version", version=f"kvtui {__version__}")
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    parser.add_argument("--no-color", action="store_true", help="no colour on the screen (as NO_COLOR does)")
    parser.add_argument("--no-mouse", action="store_true", help="leave the mouse to the terminal")
    return parser


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = _root()
    name = next((a for a in argv if not a.startswith("-")), None)
    subparsers = parser.add_subparsers(
        dest="command", metavar="COMMAND", help=argparse.SUPPRESS, prog="kvtui"
    )
    if name in COMMANDS or name in HIDDEN:
        importlib.import_module(f"kvtui.commands.{name}").add_parser(subparsers)
    elif name is not None:
        parser.error(f"{name!r} is not a command; there are: {', '.join(COMMANDS)}")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Run kvtui with `argv` (without the program's name); returns the exit status."""
    from kvtui.commands.output import err, stand_in_for_closed_streams

    stand_in_for_closed_streams()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    arguments = list(sys.argv[1:] if argv is None else argv)
    args = _parse(arguments)
    command = args.command or "open"
    try:
        status = importlib.import_module(f"kvtui.commands.{command}").run(args)
    except Cancelled:
        err("kvtui: stopped")
        return INTERRUPTED
    except KvtuiError as error:
        if args.debug:
            raise
        err(f"kvtui: {clean(error.line())}")
        return USAGE_ERROR if isinstance(error, InputError) else FAILED
    except KeyboardInterrupt:
        return INTERRUPTED
    return int(status)
