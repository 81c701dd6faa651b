"""Writes findings.md, what a log and the readings of a run can show: `python docs/make_findings.py`."""

from __future__ import annotations

from pathlib import Path

from kvtui.logs.findings import CATALOGUE
from kvtui.procedure.findings import clocks, comparison, memory, probes
from kvtui.procedure.findings.kind import Kind

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
RUNS = """
## What its settings, its probes and its clocks show

A run is held against what was asked of it, against the run it was changed from, against the f16 baseline and against
its own forecast.

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
    read, found = (
        _kinds(*memory.CATALOGUE),
        _kinds(*comparison.CATALOGUE, *probes.CATALOGUE, *clocks.CATALOGUE),
    )
    return f"{INTRO}{rows}\n{len(CATALOGUE)} findings.\n{READINGS}{read}{RUNS}{found}"


def _kinds(*kinds: Kind) -> str:
    return "".join(f"| `{kind.id}` | {kind.severity} | {_cell(kind.evidence)} |\n" for kind in kinds)


if __name__ == "__main__":
    (HERE / "findings.md").write_text(page(), encoding="utf-8")
