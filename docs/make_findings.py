"""Writes findings.md, the catalogue of what a log can show: `python docs/make_findings.py`."""

from __future__ import annotations

from pathlib import Path

from kvtui.logs.findings import CATALOGUE

HERE = Path(__file__).parent
INTRO = """# Findings

What `kvtui log` can find in a start-up log, with the evidence that shows it, and the one variable to change next.
`kvtui log --explain ID` prints one entry with its reason.

| id | severity | finding | evidence | change next | source |
|---|---|---|---|---|---|
"""


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")


def page() -> str:
    """The whole file."""
    rows = "".join(
        f"| `{e.id}` | {e.severity} | {_cell(e.title)} | {_cell(e.trigger)} | {_cell(e.change) or 'nothing'} "
        f"| {_cell(e.source)} |\n"
        for e in sorted(CATALOGUE, key=lambda e: e.id)
    )
    return f"{INTRO}{rows}\n{len(CATALOGUE)} findings.\n"


if __name__ == "__main__":
    (HERE / "findings.md").write_text(page(), encoding="utf-8")
