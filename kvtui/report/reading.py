"""A report in JSON read back as the session it is of: what comparing and replaying need, nothing more.

The file is somebody else's. What is read here is only data; whoever runs something from it checks it first.
"""

from __future__ import annotations

import json
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from kvtui.core.errors import InputError
from kvtui.core.text import clean
from kvtui.core.units import MIB, size
from kvtui.report.document import SCHEMA
from kvtui.session.codec import from_builtins, harmless
from kvtui.session.events import SessionStarted
from kvtui.session.records import Verdict
from kvtui.session.state import RunRecord, SessionState, StepState

T = TypeVar("T")

_MOST_BYTES = 128 * MIB
_MOST_RUNS = 500
_RECORDED = (
    *("step", "purpose", "subject", "outcome", "interrupted", "reason", "failure", "exit_code", "started_at"),
    *(
        "finished_at",
        "load_s",
        "change",
        "speeds",
        "tasks",
        "repeated",
        "concurrency",
        "full_pool",
        "stability",
    ),
    *("prompts_reason", "findings", "config", "argv", "env", "missing", "facts"),
)


def read_report(path: Path) -> SessionState:
    """The session that the report in `path` is of. Raises InputError: unreadable, no report, or one without what a
    replay needs (written by an older kvtui)."""
    shown = clean(str(path), 200)
    document = _document(shown, _bytes(shown, path))
    try:
        return _state(document)
    except (msgspec.ValidationError, ValueError, TypeError, LookupError, AttributeError) as error:
        raise InputError(
            f"{shown}: is no complete report: {clean(str(error), 160)}",
            hint="write it again: kvtui report SESSION --format json",
        ) from error


def _bytes(shown: str, path: Path) -> bytes:
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise InputError(f"{shown}: is no regular file")
        if status.st_size > _MOST_BYTES:
            raise InputError(f"{shown}: is larger than {size(_MOST_BYTES)}")
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"{shown}: {error.strerror}") from error


def _document(shown: str, data: bytes) -> dict[str, Any]:
    try:
        found = harmless(json.loads(data))
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or not str(found.get("schema")).startswith("kvtui.report/"):
        raise InputError(
            f"{shown}: is no report in JSON", hint="kvtui report SESSION --format json writes one"
        )
    if found["schema"] != SCHEMA:
        raise InputError(
            f"{shown}: is of schema {clean(found['schema'], 40)}", hint="update kvtui to read it"
        )
    return found


def _state(document: dict[str, Any]) -> SessionState:
    session = document["session"]
    runs = tuple(_run(document, run) for run in _list(document["runs"]))
    if not runs:
        raise ValueError("it has no runs")
    started = {
        "at": session["started_at"],
        "session": session["id"],
        "kvtui": document["kvtui"],
        "plan": session["plan"],
        "base": document["runs"][0]["config"],
        "command_line": session["command_line"],
        **{name: document[name] for name in ("model", "engine", "host", "device")},
    }
    verdict = document["verdict"]
    steps = [
        {k: step[k] for k in ("number", "started", "outcome", "summary")} for step in _list(document["steps"])
    ]
    return SessionState(
        started=_convert(started, SessionStarted),
        steps=_convert(steps, tuple[StepState, ...]),
        runs=runs,
        verdict=None if verdict is None else _convert(verdict, Verdict),
        finished_at=session["finished_at"],
    )


def _run(document: dict[str, Any], run: dict[str, Any]) -> RunRecord:
    memory = run["memory"]
    record = {
        **{name: run[name] for name in _RECORDED if name in run},
        "number": run["run"],
        "wall_s": run["wall_s"] or 0.0,
        "engine_s": run["engine_s"] or 0.0,
        "prompts": run.get("prompts") or "",
        "recalls": run["recall"],
        "memory": {
            "device": document["device"],
            "baseline_used_bytes": memory["before_bytes"],
            "peaks": memory["phases"],
            "series": [],
            "interval_s": memory["interval_s"],
            "lost": memory["lost"] or 0,
        }
        if memory["interval_s"] is not None
        else None,
        **run["sampling"],
    }
    return _convert(record, RunRecord)


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list) or len(value) > _MOST_RUNS:
        raise ValueError(f"a list of at most {_MOST_RUNS} is missing")
    return value


_convert: Callable[[Any, type[T]], T] = from_builtins
