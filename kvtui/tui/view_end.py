"""The end of a session: verdict first, then the command, then the files."""

from __future__ import annotations

from kvtui.core.units import duration
from kvtui.tui.lines import EMPTY, Line, Span, command_rows, labelled, line, wrap
from kvtui.tui.live import Live
from kvtui.tui.view_next import verdict_title
from kvtui.tui.view_runs import reasons, table


def verdict(live: Live, cells: int) -> list[Line]:
    """Everything an operator takes away, the most important first."""
    state = live.state
    if state is None or state.verdict is None:
        return [line(Span("There is no verdict yet.", "dim"))]
    v = state.verdict
    out = [verdict_title(v), *labelled("why", v.why, cells)]
    if v.run is not None:
        out += labelled("run", f"{v.run} proved it", cells)
    out += [EMPTY, line(Span("Command", "title"), Span("  y copies it", "dim"))]
    out += [line(row) for row in command_rows(v.command, cells)] or [
        line(Span("none: no configuration held", "dim"))
    ]
    out += [EMPTY, line(Span("Report", "title"))]
    out += [line(row) for path in live.reports for row in wrap(str(path), cells)] or [
        line(Span("being written", "dim"))
    ]
    if found := reasons(state, cells):
        out += [EMPTY, line(Span("Findings", "title")), *found]
    for text in v.not_measured:
        out += labelled("open", f"not measured: {text}", cells)
    out += [EMPTY, line(Span("Runs", "title"), Span(f"  whole procedure {duration(state.wall_s)}", "dim"))]
    return [*out, *table(state, cells)]


def farewell(live: Live) -> list[str]:
    """What the shell's screen shows after the app: the verdict and its report, or how to go on."""
    if live.state is None or live.folder is None:
        return []
    verdict = live.state.verdict
    if verdict is None:
        name = live.folder.name
        return [f"session {name} is kept; go on with: kvtui tune --resume {name}"]
    readable = [path for path in live.reports if path.suffix == ".md"]
    return [verdict.title, *(f"report: {path}" for path in readable)]
