"""The runs of a session, one row each, the changed variable first."""

from __future__ import annotations

from kvtui.core.findings import Finding
from kvtui.core.units import duration, rate, size, tokens
from kvtui.session.state import RunRecord, SessionState
from kvtui.tui.lines import Line, Span, columns, labelled, line, tint
from kvtui.tui.view_marks import RUN, RUN_LOST, RUN_NOW
from kvtui.tui.view_run import purpose_of, variable_of

Column = tuple[str, int]
COLUMNS: tuple[Column, ...] = (
    ("run", -3),
    ("changed", 29),
    ("state", 11),
    ("context", -8),
    ("KV types", -10),
    ("decode", -11),
    ("peak", -12),
    ("recall", -8),
    ("tasks", -7),
    ("prompt", -11),
    ("first", -8),
)


def table(state: SessionState | None, cells: int, rows: int | None = None) -> list[Line]:
    """Head and the newest runs that fit; columns from the right are left out until the row fits."""
    shown = list(COLUMNS)
    while len(shown) > 3 and sum(abs(w) + 1 for _, w in shown) > cells:
        shown.pop()
    head = _row({name: line(name) for name, _ in shown}, shown)
    runs = state.runs if state else ()
    if rows is not None and len(runs) > rows - 1:
        runs = runs[-(rows - 1) :]
    return [tint(head, "dim"), *(_row(values_of(run), shown) for run in runs)]


def _row(values: dict[str, Line], shown: list[Column]) -> Line:
    return line(*(part for name, w in shown for part in (columns([(values[name], w)]), " ")))


def values_of(run: RunRecord) -> dict[str, Line]:
    """One cell a column."""
    best = max(run.speeds, key=lambda s: s.depth, default=None)
    peak = run.memory.highest.engine_bytes if run.memory and run.memory.highest else None
    found, asked = sum(r.found for r in run.recalls), sum(len(r.needles) for r in run.recalls)
    passed = sum(t.passed for t in run.graded)
    change = (
        f"{variable_of(run.change)} {run.change.before} → {run.change.after}"
        if run.change
        else purpose_of(run)
    )
    return {
        "run": line(str(run.number)),
        "changed": line(Span(change, "strong")),
        "state": RUN[run.outcome] if run.outcome else RUN_LOST if run.interrupted else RUN_NOW,
        "context": line(tokens(run.config.n_ctx)),
        "KV types": line(run.config.kv_types),
        "prompt": line(rate(best.prompt_tps) if best else "-"),
        "decode": line(rate(best.decode_tps) if best else "-"),
        "first": line(duration(best.first_token_s) if best else "-"),
        "peak": line(size(peak) if peak is not None else "-"),
        "recall": line(f"{found}/{asked}" if asked else "-"),
        "tasks": line(f"{passed}/{len(run.graded)}" if run.graded else "-"),
    }


def reasons(state: SessionState | None, cells: int) -> list[Line]:
    """Why runs do not count, then what was found, each finding once with the runs that show it."""
    out: list[Line] = []
    found: dict[str, tuple[Finding, list[int]]] = {}
    for run in state.runs if state else ():
        if run.reason and run.outcome != "ok":
            out += labelled(f"run {run.number}", run.reason, cells)
        for finding in run.findings:
            if finding.severity != "info":
                found.setdefault(finding.title, (finding, []))[1].append(run.number)
    for title, (finding, runs) in found.items():
        mark = Span("✗ error  ", "bad") if finding.severity == "error" else Span("! warning ", "warn")
        where = f"run{'s' if len(runs) > 1 else ''} {', '.join(map(str, runs))}"
        out.append(line(mark, Span(title, "strong"), Span(f"  {where}", "dim")))
        out += labelled("", finding.why, cells)
        out += labelled("change", finding.next, cells) if finding.next else []
    return out
