"""The five steps as a checklist, with what the running one has done so far."""

from __future__ import annotations

from kvtui.core.text import clip
from kvtui.core.units import duration, rate, tokens
from kvtui.procedure.checks import setting_checks
from kvtui.procedure.live import Progress
from kvtui.procedure.steps import STEPS
from kvtui.session.state import RunRecord, SessionState, StepState
from kvtui.tui.lines import EMPTY, Line, Span, fit, labelled, line
from kvtui.tui.view_marks import (
    DIFFERS,
    PROVEN,
    RUN,
    RUN_LOST,
    RUN_NOW,
    RUNNING,
    SKIPPED,
    STEP,
    STEP_WORD,
    UNPROVEN,
)


def checklist(state: SessionState | None, progress: Progress | None, cells: int, rows: int) -> list[Line]:
    """One row a step; the running one has its runs under it, closed ones their result while there is room."""
    steps = state.steps if state else tuple(StepState(s.number) for s in STEPS)
    heads = {s.number: _head(s, state, cells) for s in steps}
    under: dict[int, list[Line]] = {s.number: [] for s in steps}
    room = rows - len(heads)
    current = state.current_step if state else None
    if state is not None and current is not None and room > 0:
        items = [fit(line("    ", item), cells) for item in sub_items(state, current, progress)]
        under[current.number] = items[-room:]
        room -= len(under[current.number])
    for step in reversed(steps):
        if step.summary and room > 0:
            under[step.number] = [fit(line(Span("    " + clip(step.summary, cells - 5), "dim")), cells)]
            room -= 1
    out: list[Line] = []
    for step in steps:
        out += [heads[step.number], *under[step.number]]
    return out[:rows]


def _head(step: StepState, state: SessionState | None, cells: int) -> Line:
    info = STEPS[step.number - 1]
    open_now = state is not None and state.verdict is None and step == state.current_step and step.started
    mark = RUNNING if open_now else STEP[step.outcome]
    tone = "strong" if open_now else "" if step.outcome else "dim"
    return fit(line(" ", mark, " ", Span(f"{step.number} {info.title}", tone)), cells)


def sub_items(state: SessionState, step: StepState, progress: Progress | None) -> list[Line]:
    """What the open step has done: one row a run that is over, then the stages of the one in progress."""
    current = state.current_run
    out = [_past(r) for r in state.runs if r.step == step.number and r is not current]
    if current is not None and current.step == step.number:
        out += _stages(current, progress)
    return out


def _past(run: RunRecord) -> Line:
    mark = RUN[run.outcome][0] if run.outcome else RUN_LOST[0]
    best = max(run.speeds, key=lambda s: s.depth, default=None)
    speed = f" {rate(best.decode_tps)}" if best and run.outcome == "ok" else ""
    return line(mark, f" {tokens(run.config.n_ctx)} {run.config.kv_types}{speed}")


def _stages(run: RunRecord, progress: Progress | None) -> list[Line]:
    if run.load_s is None:
        return [line(RUNNING, " load ", Span(_share(progress), "accent"))]
    out = [line(PROVEN, f" loaded in {duration(run.load_s)}"), proof(run)]
    if run.graded:
        passed, asked = sum(t.passed for t in run.graded), len(run.graded)
        out.append(line(PROVEN if passed == asked else DIFFERS, f" tasks {passed}/{asked}"))
    out += [
        line(
            PROVEN if r.found == len(r.needles) else DIFFERS,
            f" recall {tokens(r.depth)} {r.found}/{len(r.needles)}",
        )
        for r in run.recalls
    ]
    out += [line(PROVEN, f" speed {tokens(s.depth)} {rate(s.decode_tps)}") for s in run.speeds]
    for c in run.concurrency:
        out.append(line(DIFFERS if c.failed else PROVEN, f" {c.requested - c.failed}/{c.requested} at once"))
    if progress is not None and progress.run == run.number:
        what, share = progress.what, _share(progress)
        if progress.overall is not None:
            what, share = "this run", f"{progress.overall:.0%}"
        out.append(line(RUNNING, f" {what} ", Span(share, "accent")))
    return out


def proof(run: RunRecord) -> Line:
    """The log's proof in one short line: `log: 1 differs`."""
    states = [c.state for c in setting_checks(run)]
    differs, unproven = states.count("differs"), states.count("unproven")
    if differs:
        return line(DIFFERS, f" log: {differs} differ{'s' if differs == 1 else ''}")
    if unproven:
        return line(UNPROVEN, f" log: {unproven} unproven")
    return line(PROVEN, " log proof")


def _share(progress: Progress | None) -> str:
    if progress is None or progress.total <= 0:
        return ""
    return f"{min(progress.done / progress.total, 1):.0%}"


def steps_in_full(state: SessionState | None, cells: int) -> list[Line]:
    """Every step with its goal, its gate and how it ended, for the screen of its own."""
    out: list[Line] = []
    steps = state.steps if state else tuple(StepState(s.number) for s in STEPS)
    for step, info in zip(steps, STEPS, strict=True):
        open_now = state is not None and step == state.current_step and step.started
        mark = RUNNING if open_now else STEP[step.outcome]
        word = "running" if open_now else STEP_WORD[step.outcome]
        out.append(line(mark, " ", Span(f"{step.number} {info.title}", "title"), f"  {word}"))
        out += [line("  ", r) for r in labelled("goal", info.goal, cells - 2)]
        out += [line("  ", r) for r in labelled("gate", info.gate, cells - 2)]
        if step.summary:
            out += [line("  ", r) for r in labelled("result", step.summary, cells - 2, tone="strong")]
        if state is not None:
            out += [
                line(
                    "  ",
                    Span(f"{'run ' + str(r.number):<8}", "dim"),
                    _outcome(r),
                    f"  {r.purpose}  ",
                    _past(r)[1:],
                )
                for r in state.runs
                if r.step == step.number
            ]
            if step.number == 4:
                for s in state.skipped:
                    out += [
                        line("  ", SKIPPED, r) for r in labelled(" " + tokens(s.context), s.reason, cells - 3)
                    ]
        out.append(EMPTY)
    return out[:-1]


def _outcome(run: RunRecord) -> Line:
    if run.outcome:
        return RUN[run.outcome]
    return RUN_LOST if run.interrupted else RUN_NOW
