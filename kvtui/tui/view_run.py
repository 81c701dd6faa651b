"""The current step: requested against actual, the work in hand, what was measured."""

from __future__ import annotations

from kvtui.core.text import clip, width
from kvtui.core.units import duration, rate, tokens
from kvtui.probes.results import SpeedResult
from kvtui.procedure.checks import setting_checks
from kvtui.procedure.live import Progress
from kvtui.procedure.marks import busy
from kvtui.procedure.steps import PURPOSES, STEPS
from kvtui.procedure.variables import BY_NAME
from kvtui.session.records import Change, SettingCheck
from kvtui.session.state import RunRecord, SessionState
from kvtui.tui.lines import Line, Span, columns, fit, line, tint, wrap
from kvtui.tui.view_marks import CHECK, DIFFERS, PROVEN

EIGHTHS = " ▏▎▍▌▋▊▉█"
ONE_LINE_CELLS = 54
ROOMY_CELLS = 64
ORDER = {"differs": 0, "unproven": 1, "proven": 2}


def title(state: SessionState | None, run: RunRecord | None, cells: int) -> Line:
    """`Step 4 Context in stages · run 6: context 1024 → 2048`, or as much of it as fits."""
    if state is None:
        return line(Span("Preparing", "title"))
    number = run.step if run else state.current_step.number if state.current_step else len(STEPS)
    name = STEPS[number - 1].title
    if run is None:
        return line(Span(f"Step {number} {name}", "title"))
    change = run.change
    what = f"{change.before} → {change.after}" if change else purpose_of(run)
    moving = variable_of(change) if change else ""
    named = f"{moving} {what}" if change else what
    short = f"{moving} → {change.after}" if change else what
    head = f"Step {number}"
    for text in (
        f"{head} {name} · run {run.number}: {named}",
        f"{head} · run {run.number}: {named}",
        f"{head} · run {run.number}: {short}",
        f"{head} · {short}",
    ):
        if width(text) <= cells:
            break
    else:
        text = f"{head} · run {run.number}"
    return line(Span(text, "title"))


def variable_of(change: Change) -> str:
    """The changed variable as it is called everywhere: `KV types`, `micro-batch`."""
    variable = BY_NAME.get(change.variable)
    return variable.label if variable is not None else change.variable


def purpose_of(run: RunRecord) -> str:
    """What the run is for, in words."""
    return next((text for name, text in PURPOSES.items() if name == run.purpose), run.purpose)


def tally(checks: tuple[SettingCheck, ...]) -> Line:
    """`9/10 proven`, in the tone of the worst state."""
    states = {c.state for c in checks}
    if not states:
        return line()
    tone = "bad" if "differs" in states else "warn" if "unproven" in states else "good"
    proven = sum(c.state == "proven" for c in checks)
    return line(Span(f"{proven}/{len(checks)} proven", tone))


def ordered(checks: tuple[SettingCheck, ...], rows: int) -> tuple[SettingCheck, ...]:
    """The settings as they are asked; where not all of them fit, those that are not proven come first."""
    return checks if len(checks) <= rows else tuple(sorted(checks, key=lambda c: ORDER[c.state]))


def settings(
    checks: tuple[SettingCheck, ...], cells: int, rows: int, cursor: int | None = None
) -> list[Line]:
    """The table with its head, `rows` lines in all, scrolled so that the row at `cursor` is seen.

    `checks` are already `ordered`. Below 48 cells the line number is left out.
    """
    with_line = cells >= 48
    state_w, line_w = 11, 6 if with_line else 0
    value_w = max((cells - state_w - line_w - 17) // 2, 6)
    name_w = cells - state_w - line_w - 2 * value_w

    def table(name: Line, asked: str, actual: str, at: str, state: Line) -> Line:
        widths = [
            (name, name_w),
            (line(_cell(asked, value_w)), value_w),
            (line(_cell(actual, value_w)), value_w),
        ]
        if with_line:
            widths.append((line(Span(at, "dim")), line_w))
        return columns([*widths, (state, state_w)])

    body = rows - 1
    hidden = len(checks) - body
    first = 0 if cursor is None else max(0, min(cursor - body + 1, hidden))
    more = "" if hidden <= 0 else f"  +{hidden} ↓" if first < hidden else f"  +{hidden} ↑"
    out = [
        tint(table(line(" setting", Span(more, "strong")), "asked", "actual", "line", line("state")), "dim")
    ]
    for n, check in enumerate(checks[first : first + body], first):
        at = str(check.line) if check.line is not None else "-"
        row = table(
            line(_cell(f" {check.setting}", name_w)), check.asked, check.actual, at, CHECK[check.state]
        )
        out.append(tint(row, "cursor") if n == cursor else row)
    return out


def _cell(text: str, cells: int) -> str:
    return clip(text, cells - 1)


def goal(number: int, cells: int, rows: int) -> list[Line]:
    """What the step is for and what decides it, while it has no run to show."""
    step = STEPS[number - 1]
    out = [line(f" {r}") for r in wrap(step.goal, cells - 2)]
    out += [line(Span(f" {r}", "dim")) for r in wrap(step.gate, cells - 2)]
    return out[:rows]


def progress_line(progress: Progress | None, cells: int) -> Line:
    """` recall at 16K ▕██████▏ 61 %  1,412 t/s  eta 0:42`: the bar takes what is left."""
    if progress is None:
        return fit(line(), cells)
    share = min(max(progress.done / progress.total, 0.0), 1.0) if progress.total > 0 else None
    right = []
    if share is not None:
        right.append(f"{share * 100:3.0f} %")
    if progress.rate is not None:
        per_s = rate(progress.rate) if progress.unit == "tokens" else f"{progress.rate:.1f} {progress.unit}/s"
        right.append(per_s)
    if progress.eta_s is not None:
        right.append(
            f"eta {duration(round(progress.eta_s))}"
            if progress.eta_s >= 60
            else f"eta {progress.eta_s:.0f} s"
        )
    tail = "  ".join(right)
    what = f" {progress.what} "
    room = cells - width(what) - width(tail) - 3
    if share is None or room < 6:
        return fit(line(Span(what, "accent"), " ", tail), cells)
    return fit(line(Span(what, "accent"), "▕", Span(bar(share, room), "accent"), f"▏ {tail}"), cells)


def bar(share: float, cells: int) -> str:
    """`share` (0 to 1) of `cells` filled, to an eighth of a cell."""
    eighths = round(share * cells * 8)
    full, rest = divmod(eighths, 8)
    return ("█" * full + (EIGHTHS[rest] if rest else "")).ljust(cells)


def results(run: RunRecord | None, cells: int, rows: int, cores: int = 0) -> list[Line]:
    """What was measured, at the greatest depth first: speeds, recall, tasks, concurrency.

    A speed that was disturbed says so instead of its time to the first token; `cores` are the machine's.
    """
    if run is None or rows < 1:
        return []
    parts = [
        line(
            Span(f" at {tokens(s.depth)}  prompt ", "dim"),
            rate(s.prompt_tps).removesuffix(" t/s"),
            Span("  decode ", "dim"),
            rate(s.decode_tps),
            *_first_token(s, cells, cores),
        )
        for s in sorted(run.speeds, key=lambda s: -s.depth)
    ]
    graded = _graded(run)
    if not parts or not graded:
        return [fit(p, cells) for p in [*parts, *([graded] if graded else [])][:rows]]
    if rows == 1:
        best = max(run.speeds, key=lambda s: s.depth)
        prompt = rate(best.prompt_tps).removesuffix(" t/s")
        short = line(Span(" prompt ", "dim"), prompt, Span(" decode ", "dim"), rate(best.decode_tps), graded)
        return [fit(short, cells)]
    return [fit(p, cells) for p in [*parts[: rows - 1], graded]]


def _first_token(speed: SpeedResult, cells: int, cores: int) -> tuple[Span | str, ...]:
    held, taken = speed.throttled, cores and busy(speed.others_cpu, cores)
    if held or taken:
        return (Span("  ! held down" if held else "  ! others busy", "warn"),)
    label = "  first token " if cells >= ROOMY_CELLS else "  first "
    return (Span(label, "dim"), duration(speed.first_token_s))


def _graded(run: RunRecord) -> Line:
    out: list[Span | str] = []
    if run.recalls:
        found, asked = sum(r.found for r in run.recalls), sum(len(r.needles) for r in run.recalls)
        out += [Span(" recall ", "dim"), PROVEN if found == asked else DIFFERS, f" {found}/{asked}"]
    if run.graded:
        passed = sum(t.passed for t in run.graded)
        out += [
            Span(" tasks ", "dim"),
            PROVEN if passed == len(run.graded) else DIFFERS,
            f" {passed}/{len(run.graded)}",
        ]
    if run.concurrency:
        last = run.concurrency[-1]
        done = last.requested - last.failed
        out += [Span(" at once ", "dim"), DIFFERS if last.failed else PROVEN, f" {done}/{last.requested}"]
    return line(*out)


def current(
    state: SessionState | None,
    run: RunRecord | None,
    progress: Progress | None,
    cells: int,
    rows: int,
    cursor: int | None = None,
    note: str = "",
) -> list[Line]:
    """The panel under its title: table, progress, results, in `rows` lines."""
    if state is None:
        return [fit(line(f" {r}"), cells) for r in wrap(note or "Starting", cells - 2, rows)]
    if run is None:
        number = state.current_step.number if state.current_step else 1
        return goal(number, cells, rows)
    cores = state.started.host.cores
    checks, body, n_results = _share_out(run, rows, cells)
    out = settings(checks, cells, body, cursor)
    if progress is not None and progress.run == run.number and run.outcome is None:
        return [*out, progress_line(progress, cells), *results(run, cells, n_results, cores)]
    return [*out, *results(run, cells, n_results + 1, cores)]


def shown_checks(run: RunRecord, rows: int, cells: int) -> tuple[SettingCheck, ...]:
    """The settings in the order in which `current` shows them in such a panel."""
    return _share_out(run, rows, cells)[0]


def _share_out(run: RunRecord, rows: int, cells: int) -> tuple[tuple[SettingCheck, ...], int, int]:
    """The settings in order, the lines of their table, the lines left for results."""
    checks = setting_checks(run)
    wanted = len(checks) + 1
    fewest = 1 if cells >= ONE_LINE_CELLS else 2
    n_results = max(fewest, min(rows - 1 - wanted, len(run.speeds) + 1))
    body = min(wanted, rows - 1 - n_results)
    return ordered(checks, body - 1), body, n_results
