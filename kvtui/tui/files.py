"""Files that the screen reads or writes, always on a thread of their own that nothing waits for."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from textual.message import Message
from textual.message_pump import MessagePump

from kvtui.core.errors import KvtuiError
from kvtui.core.text import clean
from kvtui.tui.messages import Loaded

if TYPE_CHECKING:
    from kvtui.session.state import RunRecord

MAX_LOG_BYTES = 8 << 20


def aside(target: MessagePump, job: Callable[[], Message]) -> None:
    """Do `job` in a daemon thread and post what it returns."""
    threading.Thread(target=lambda: target.post_message(job()), name="kvtui-file", daemon=True).start()


def log_file(folder: Path, run: RunRecord) -> Path | None:
    """The raw log of `run`: of several with its number, the one that holds the lines its facts refer to."""
    found = sorted((folder / "logs").glob(f"run-{run.number:02d}*.log"))
    for path in reversed(found):
        lines = _lines(path)
        if all(n <= len(lines) and lines[n - 1] == clean(text) for n, text in run.facts.texts.items()):
            return path
    return found[-1] if found else None


def _lines(path: Path) -> list[str]:
    with path.open("rb") as file:
        data = file.read(MAX_LOG_BYTES)
    return [clean(text) for text in data.decode("utf-8", "replace").split("\n")]


def read_log(target: MessagePump, folder: Path, run: RunRecord) -> None:
    """Post the lines of the run's raw log as Loaded."""

    def job() -> Loaded:
        try:
            path = log_file(folder, run)
            return Loaded(_lines(path), path.name) if path else Loaded([], "", "no log of this run")
        except OSError as error:
            return Loaded([], "", f"the log of run {run.number}: {error.strerror}")

    aside(target, job)


def render_report(target: MessagePump, folder: Path) -> None:
    """Post the report of the session in `folder` as Loaded."""

    def job() -> Loaded:
        from kvtui.report import as_markdown
        from kvtui.session.store import load

        try:
            text = as_markdown(load(folder))
        except KvtuiError as error:
            return Loaded([], folder.name, error.line())
        return Loaded([clean(row) for row in text.splitlines()], folder.name)

    aside(target, job)


def tilde(path: Path) -> str:
    """The path as a shell takes it, short: `~/...` under the home folder."""
    home = os.path.expanduser("~").rstrip("/")
    text = clean(str(path))
    return f"~{text.removeprefix(home)}" if home and text.startswith(f"{home}/") else text


def keep_command(folder: Path, text: str) -> Path:
    """Write the command where it can be fetched when the terminal drops the copy. Raises OSError."""
    path = folder / "command.sh"
    draft = path.with_suffix(".new")
    draft.write_text(text + "\n", encoding="utf-8")
    os.replace(draft, path)
    return path
