"""`kvtui tune --replay`: a recorded session done again on this box, and what came out against what was recorded."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from kvtui.commands.output import err
from kvtui.commands.tuning import work
from kvtui.core.errors import InputError, SessionError
from kvtui.core.shell import quote

if TYPE_CHECKING:
    from collections.abc import Callable

    from kvtui.procedure.replay import Options
    from kvtui.procedure.setup import TuneRequest
    from kvtui.procedure.tune import Tuning
    from kvtui.session.state import SessionState

COMPARISON = "comparison.txt"
_SETTINGS = (
    *(
        "resume",
        "target_context",
        "kv_type",
        "parallel",
        "batch_size",
        "ubatch_size",
        "gpu_layers",
        "n_cpu_moe",
    ),
    *("threads", "margin", "reserve", "min_decode", "engine_args", "engine_words", "env"),
)
"""Options that say what a replay takes from the record."""


def replay(args: argparse.Namespace, request: TuneRequest) -> int:
    """Do it again, unattended, and compare. The exit status is that of the new session."""
    from kvtui.procedure.replay import options_of, prepare_replay

    given = next((name for name in _SETTINGS if getattr(args, name) not in (None, "", [])), None)
    if given is not None:
        raise InputError(
            f"--{given.replace('_', '-')}: a replay takes its settings from what was recorded",
            hint="leave it out",
        )
    recorded = recorded_session(args.replay)
    _approve(options_of(recorded), yes=args.yes)
    done: list[Tuning] = []

    def job(note: Callable[[str], None]) -> Tuning:
        done.append(prepare_replay(recorded, request, note))
        return done[0]

    status = work(job, args, unattended=True)
    if done and done[0].store.state.verdict is not None:
        _compare(recorded, done[0].store.folder, done[0].store.state)
    return status


def recorded_session(name: str) -> SessionState:
    """The session to do again: the report in that file, else the recorded session of that name.

    Raises InputError when there is neither.
    """
    path = Path(name)
    if name.endswith(".json") or path.is_file():
        from kvtui.report.reading import read_report

        return read_report(path)
    from kvtui.session.store import find, load

    try:
        return load(find(name))
    except SessionError as error:
        raise InputError(error.what, hint=error.hint) from error


def _approve(options: Options, *, yes: bool) -> None:
    """Show what the engine would be given beside kvtui's own settings, and ask: it can make an engine read files or
    run programs. Raises InputError when that is refused or cannot be asked."""
    words = [*(f"{name}={quote(value)}" for name, value in options.env), *map(quote, options.extra)]
    if not words:
        return
    err(f"kvtui: the recorded runs gave their engine also: {' '.join(words)}")
    if yes:
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise InputError("nobody is here to say whether to run that", hint="--yes runs it")
    err("kvtui: run it with these? [y/N]")
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise InputError("not run")


def _compare(recorded: SessionState, folder: Path, state: SessionState) -> None:
    from kvtui.report.comparison import compare_sessions
    from kvtui.report.comparison_text import render
    from kvtui.report.comparison_words import sentence
    from kvtui.report.files import save
    from kvtui.report.privacy import without_secrets

    found = compare_sessions(without_secrets(recorded), without_secrets(state))
    path = folder / COMPARISON
    try:
        save(path, render(found).encode())
    except OSError as error:
        raise SessionError(f"{path}: cannot write the comparison: {error.strerror}") from error
    err(f"kvtui: {sentence(found)}")
    err(f"kvtui: recorded against measured now: {path}")
