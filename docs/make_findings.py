"""Writes findings.md, what a log and the readings of a run can show: `python docs/make_findings.py`."""

from __future__ import annotations

from pathlib import Path

from kvtui.logs.findings import CATALOGUE
from kvtui.procedure.findings import memory as memory_findings

HERE = Path(__file__).parent
INTRO = """# Findings

What `kvtui log` can find in a start-up log, with the evidence that shows it, and the one variable to change next.
`kvtui log --explain ID` prints one entry with its reason.

| id | severity | finding | evidence | change next | source |
|---|---|---|---|---|---|
"""
READINGS = """
## What the readings of a run show

Memory, clocks, bus traffic and CPU time are read ten times a second while a run works. What they show is inferred from
samples, never from the log, and is put on the run with the figures.

| id | severity | evidence |
|---|---|---|
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
    read = "".join(
        f"| `{i}` | {severity} | {_cell(text)} |\n" for i, severity, text in memory_findings.CATALOGUE
    )
    return f"{INTRO}{rows}\n{len(CATALOGUE)} findings.\n{READINGS}{read}"


if __name__ == "__main__":
    (HERE / "findings.md").write_text(page(), encoding="utf-8")
