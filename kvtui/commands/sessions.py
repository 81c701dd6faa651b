"""`kvtui sessions`: what was recorded, newest first, how to go on with it, and sessions as files."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from kvtui.commands.output import err, json_out, out
from kvtui.core.errors import InputError, SessionError
from kvtui.core.text import clean, clip, width
from kvtui.session.state import SessionState
from kvtui.session.store import EVENTS, is_imported, is_locked, list_folders, load, sessions_dir

SCHEMA = "kvtui.sessions/1"
_CELLS = 80
_NAME = 22

_EPILOG = """\
kvtui sessions export SESSION [FILE]
    the session as one file: everything that was recorded, the raw logs too
kvtui sessions import FILE
    such a file from elsewhere: to report on and to compare, not to go on with

exit status: 0, 2 no such session or file
"""


def add_parser(subparsers: Any) -> None:
    """Declare the sub-command."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "sessions",
        help="what was recorded",
        description="List the recorded sessions, newest first.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--json", action="store_true", help=f"one JSON document ({SCHEMA})")
    actions = parser.add_subparsers(dest="action", metavar="export|import", prog="kvtui sessions")
    export = actions.add_parser("export", description="Write a session to one file.")
    export.add_argument("session", metavar="SESSION", help="its id, the start of one, its folder, or last")
    export.add_argument("file", metavar="FILE", nargs="?", help="a new file (default: SESSION.kvtui.zip)")
    bring = actions.add_parser("import", description="Keep a session that came as a file, read-only.")
    bring.add_argument("file", metavar="FILE", help="what kvtui sessions export wrote")


def run(args: argparse.Namespace) -> int:
    """List them; one that cannot be read is listed with the reason. Or write one to a file, or read one."""
    if args.action == "export":
        return _export(args.session, args.file)
    if args.action == "import":
        return _import(args.file)
    entries = [_entry(folder) for folder in reversed(list_folders())]
    if args.json:
        json_out({"schema": SCHEMA, "folder": clean(str(sessions_dir())), "sessions": entries})
        return 0
    if not entries:
        err(f"kvtui: no sessions in {clean(str(sessions_dir()))}; `kvtui demo` makes one")
        return 0
    out(f"{'session, begun (UTC)':{_NAME}}  steps  model, engine")
    for entry in entries:
        for line in _lines(entry):
            out(line)
    return 0


def _export(name: str, file: str | None) -> int:
    from kvtui.report.privacy import secrets_in
    from kvtui.session.archive import export
    from kvtui.session.store import find

    try:
        folder = find(name)
        state = load(folder)
        path = Path(file) if file else Path(f"{folder.name}.kvtui.zip")
        export(folder, path)
    except SessionError as error:
        raise InputError(error.what, hint=error.hint) from error
    hidden = len(secrets_in(state))
    if hidden:
        err(f"kvtui: {hidden} of its recorded values look like a key, token or password, and are in the file")
    err(f"kvtui: wrote {clean(str(path))}")
    return 0


def _import(file: str) -> int:
    from kvtui.session.archive import bring_in

    folder, state = bring_in(Path(file))
    err(f"kvtui: imported {folder.name}, read-only: {_end(_entry(folder)) or state.started.model.file_name}")
    return 0


def _entry(folder: Path) -> dict[str, Any]:
    name = clean(folder.name, 80)
    try:
        state = load(folder)
    except SessionError as error:
        # The list says which session it is.
        reason = error.line().removeprefix(f"{folder / EVENTS}: ")
        return {"session": name, "status": "unreadable", "error": reason}
    described = {"imported": is_imported(folder), **_described(state)}
    return {"session": name, "status": _status(folder, state), "error": None, **described}


def _status(folder: Path, state: SessionState) -> str:
    if state.verdict is not None:
        return "finished"
    return "running" if is_locked(folder) else "unfinished"


def _described(state: SessionState) -> dict[str, Any]:
    started, verdict = state.started, state.verdict
    return {
        "started_at": started.at,
        "finished_at": state.finished_at,
        "model": started.model.file_name,
        "quant": started.model.quant,
        "engine": started.engine.label,
        "device": started.device.name,
        "steps_done": sum(step.outcome is not None for step in state.steps),
        "steps": len(state.steps),
        "runs": len(state.runs),
        "outcome": verdict.outcome if verdict else None,
        "verdict": verdict.title if verdict else None,
    }


def _lines(entry: dict[str, Any]) -> list[str]:
    """A session in two lines of 80 columns: which it is, and how it ended or how to go on."""
    name = _pad(clip(entry["session"], _NAME), _NAME)
    if entry["status"] == "unreadable":
        return [f"{name}  unreadable", f"    {_fit(entry['error'])}"]
    model, engine = f"{entry['model']} {entry['quant']}".strip(), clip(clean(entry["engine"]), 26)
    lead = f"{name}  {entry['steps_done']}/{entry['steps']}    "
    room = _CELLS - width(lead) - width(engine) - 2
    return [f"{lead}{clip(clean(model), room)}  {engine}", f"    {_fit(_end(entry))}"]


def _end(entry: dict[str, Any]) -> str:
    if entry["status"] == "unreadable":
        return str(entry["error"])
    lead = "imported, " if entry["imported"] else ""
    if entry["status"] == "finished":
        return f"{lead}{entry['outcome']}: {entry['verdict']}"
    if entry["status"] == "running":
        return "running now"
    return f"{lead}unfinished" + (
        "" if entry["imported"] else f": go on with kvtui tune --resume {entry['session']}"
    )


def _fit(text: str) -> str:
    return clip(clean(text), _CELLS - 4)


def _pad(text: str, cells: int) -> str:
    return text + " " * (cells - width(text))
