"""What kvtui hands over: a session as Markdown and HTML for a person, as JSON and CSV for a program.

Secrets are left out of every one of them (see kvtui.report.privacy).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from kvtui.core.errors import SessionError
from kvtui.core.json_text import json_text
from kvtui.report.files import save
from kvtui.session.state import SessionState
from kvtui.session.store import load

__all__ = ["FORMATS", "as_csv", "as_html", "as_json", "as_markdown", "write"]


def as_markdown(state: SessionState) -> str:
    """The report on `state` for a person."""
    from kvtui.report.markdown import render

    return render(_safe(state))


def as_html(state: SessionState) -> str:
    """The same as one HTML file with charts, which needs nothing beside it."""
    from kvtui.report.html import render

    return render(_safe(state))


def as_json(state: SessionState) -> str:
    """The report on `state` for a program (schema `kvtui.report/1`)."""
    return _json(_safe(state))


def _json(state: SessionState) -> str:
    from kvtui.report.document import document

    return json_text(document(state), indent=2) + "\n"


def as_csv(state: SessionState) -> str:
    """One row a run, for a spreadsheet; the columns are those of kvtui.report.spreadsheet."""
    from kvtui.report.spreadsheet import render

    return render(_safe(state))


FORMATS: dict[str, Callable[[SessionState], str]] = {
    "md": as_markdown,
    "html": as_html,
    "json": as_json,
    "csv": as_csv,
}


def _safe(state: SessionState) -> SessionState:
    from kvtui.report.privacy import without_secrets

    return without_secrets(state)


def write(folder: Path) -> tuple[Path, ...]:
    """Write `report.md` and `report.json` of the session in `folder` into it; returns their paths.

    Raises SessionError when the session cannot be read or a report cannot be written; an older report stays then.
    """
    from kvtui.report.markdown import render

    state = _safe(load(folder))
    paths = (folder / "report.md", folder / "report.json")
    for path, report in zip(paths, (render(state), _json(state)), strict=True):
        try:
            save(path, report.encode())
        except OSError as error:
            raise SessionError(
                f"{path}: cannot write the report: {error.strerror}",
                hint=f"make space and run: kvtui report {folder.name} -o FILE",
            ) from error
    return paths
