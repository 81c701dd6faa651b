"""What next and why: the recommendation, the run it led to, the verdict, or the error that ended the work."""

from __future__ import annotations

from kvtui.core.units import signed_size
from kvtui.procedure.marks import busy
from kvtui.session.records import Recommendation, Verdict
from kvtui.tui.lines import EMPTY, Line, Span, command_rows, fit, labelled, line
from kvtui.tui.live import Live
from kvtui.tui.view_run import purpose_of

KIND = {"run": "Next", "stop": "Stop here", "will-not-help": "This will not help", "skip": "Skip"}
CHANGE_ROWS = 5
VERDICT_TONE = {"done": "good", "findings": "warn", "failed": "bad", "stopped": "warn"}
VERDICT_MARK = {"done": "✓", "findings": "!", "failed": "✗", "stopped": "»"}


def title(live: Live, rows: int) -> Line:
    """The head of a panel of `rows` lines: what kind of thing follows, and its name, or the change itself where
    the panel is too low to say it twice."""
    if live.failure:
        return line(Span("✗ Stopped by an error", "bad title"))
    verdict = live.state.verdict if live.state else None
    if verdict is not None:
        return verdict_title(verdict)
    if live.question is not None:
        r = live.question.recommendation
        tone = "accent title" if r.kind == "run" else "warn title"
        if rows < CHANGE_ROWS and r.variable:
            return line(
                Span(KIND[r.kind], tone), Span(f": {change_of(r)}", "title"), Span(f"  {r.option}", "dim")
            )
        return line(Span(KIND[r.kind], tone), Span(f": {r.title}", "title"))
    if live.state is None:
        return line(Span("Next", "title"))
    run = live.state.current_run
    if run is not None:
        return line(Span(f"▶ Running: {purpose_of(run)}", "accent title"))
    return line(Span("▶ Working" if live.working else "Next", "title"))


def change_of(r: Recommendation) -> str:
    """`context  2048 → 4096`."""
    return f"{r.variable}  {r.before} → {r.after}"


def countdown(live: Live) -> Line:
    """What disturbs the run that is measured; who decides in an unattended session, and how long until it goes on."""
    state, sample = live.state, live.sample
    who = _decider(live)
    vitals = (
        sample.vitals if sample is not None and state is not None and state.current_run is not None else None
    )
    if state is None or vitals is None or not busy(vitals.others_cpu, state.started.host.cores):
        return who
    return line(Span("! others keep cores busy", "warn"), "  " if who else "", who)


def _decider(live: Live) -> Line:
    q = live.question
    if not live.unattended or (q is None and not live.working):
        return EMPTY
    if live.paused:
        return line(Span("paused: yours to decide", "warn"))
    if q is None or q.seconds_left is None:
        return line(Span("unattended", "dim"))
    return line(Span(f"accepted in {q.seconds_left} s", "accent"), Span("  space pauses", "dim"))


def verdict_title(verdict: Verdict) -> Line:
    """The verdict with its mark and its word."""
    tone = VERDICT_TONE[verdict.outcome]
    return line(
        Span(f"{VERDICT_MARK[verdict.outcome]} {verdict.outcome}", f"{tone} title"),
        Span(f": {verdict.title}", "title"),
    )


def panel(live: Live, cells: int, rows: int) -> list[Line]:
    """The panel under its title, in at most `rows` lines."""
    inner = cells - 1
    if live.failure:
        out = labelled("", live.failure, inner + 7, rows, "bad")
        out = [line(*(Span(s.text.lstrip(), s.tone) for s in row)) for row in out]
    elif live.state is not None and live.state.verdict is not None:
        v = live.state.verdict
        out = [
            *labelled("why", v.why, inner, max(1, rows - 1)),
            *labelled("command", v.command or "none", inner, 1),
        ]
    elif live.question is not None:
        out = recommendation(live.question.recommendation, inner, rows)
    elif live.state is None:
        out = labelled("now", live.note or "starting", inner, rows)
    else:
        out = _working(live, inner, rows)
    return [fit(line(" ", row), cells) for row in out[:rows]]


def _working(live: Live, cells: int, rows: int) -> list[Line]:
    state = live.state
    assert state is not None
    last = state.recommendation
    if state.current_run is not None and last is not None and last.kind == "run":
        return recommendation(last, cells, rows)
    return labelled("now", live.note or "deciding what to do next", cells, rows)


def recommendation(r: Recommendation, cells: int, rows: int) -> list[Line]:
    """Change (where there are lines for it), why, effect and risk, then what else is worth knowing."""
    out: list[Line] = []
    if r.variable and rows >= CHANGE_ROWS:
        out.append(line(Span("change  ", "dim"), Span(change_of(r), "strong"), Span(f"   {r.option}", "dim")))
    tail = _effect(r, cells)
    why = labelled("why", r.why, cells, max(rows - len(out) - len(tail), 1))
    out += [*why, *tail]
    for note in r.not_this:
        out += labelled("not", note, cells, max(rows - len(out), 0))
    return [*out, *labelled("command", r.command, cells, max(rows - len(out), 0))] if r.command else out


def _effect(r: Recommendation, cells: int) -> list[Line]:
    effect = r.effect
    if r.effect_bytes is not None:
        figure = signed_size(r.effect_bytes)
        effect = effect if figure in effect else f"{figure} {effect}".strip()
    out: list[Line] = []
    if effect:
        out.append(line(Span("effect  ", "dim"), effect))
    if r.risk:
        out.append(line(Span("risk    ", "dim"), r.risk))
    return out


def in_full(live: Live, cells: int) -> list[Line]:
    """Everything about the recommendation, for the screen of its own."""
    state = live.state
    if state is None or state.recommendation is None:
        return [line(Span("Nothing has been recommended yet.", "dim"))]
    r = state.recommendation
    out = [line(Span(KIND[r.kind], "accent title"), Span(f": {r.title}", "title")), EMPTY]
    if r.variable:
        out += labelled("change", f"{change_of(r)}   {r.option}", cells, tone="strong")
    out += labelled("why", r.why, cells)
    out += _effect(r, cells)
    for note in r.not_this:
        out += labelled("not", note, cells)
    if r.source:
        out += labelled("source", r.source, cells)
    if r.command:
        out += [
            EMPTY,
            line(Span("Exact command", "title")),
            *(line(row) for row in command_rows(r.command, cells)),
        ]
    return out
