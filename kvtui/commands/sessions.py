"""`kvtui sessions`: what was recorded, newest first, and how to go on with what is unfinished."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from kvtui.commands.output import err, json_out, out
from kvtui.core.errors import SessionError
from kvtui.core.text import clean, clip, width
from kvtui.session.state import SessionState
from kvtui.session.store import is_locked, list_folders, load, sessions_dir

SCHEMA = "kvtui.sessions/1"
_HEAD = ("session", "when (UTC)", "model", "engine", "steps", "verdict")
_WIDEST = (26, 16, 44, 32, 5)


def add_parser(subparsers: Any) -> None:
    """Declare the sub-command."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "sessions",
        help="what was recorded",
        description="List the recorded sessions, newest first.",
        epilog="exit status: 0",
    )
    parser.add_argument("--json", action="store_true", help=f"one JSON document ({SCHEMA})")


def run(args: argparse.Namespace) -> int:
    """List them; one that cannot be read is listed with the reason."""
    entries = [_entry(folder) for folder in reversed(list_folders())]
    if args.json:
        json_out({"schema": SCHEMA, "folder": clean(str(sessions_dir())), "sessions": entries})
        return 0
    if not entries:
        err(f"kvtui: no sessions in {clean(str(sessions_dir()))}; `kvtui demo` makes one")
        return 0
    rows = [_HEAD, *(_row(entry) for entry in entries)]
    widths = [min(limit, max(width(row[column]) for row in rows)) for column, limit in enumerate(_WIDEST)]
    for row in rows:
        cells = [_pad(clip(clean(cell), cells), cells) for cell, cells in zip(row, widths, strict=False)]
        out("  ".join([*cells, clean(row[-1])]).rstrip())
    return 0


def _entry(folder: Path) -> dict[str, Any]:
    name = clean(folder.name, 80)
    try:
        state = load(folder)
    except SessionError as error:
        return {"session": name, "status": "unreadable", "error": error.line()}
    return {"session": name, "status": _status(folder, state), "error": None, **_described(state)}


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


def _row(entry: dict[str, Any]) -> tuple[str, ...]:
    name = entry["session"]
    if entry["status"] == "unreadable":
        return (name, "", "", "", "", f"unreadable: {entry['error']}")
    end = {
        "finished": f"{entry['outcome']}: {entry['verdict']}",
        "running": "running now",
        "unfinished": f"unfinished: resume with kvtui tune --resume {name}",
    }[entry["status"]]
    return (
        name,
        entry["started_at"][:16].replace("T", " "),
        f"{entry['model']} {entry['quant']}",
        entry["engine"],
        f"{entry['steps_done']}/{entry['steps']}",
        end,
    )


def _pad(text: str, cells: int) -> str:
    return text + " " * (cells - width(text))
