"""The main screen: where am I, what is proven, what next and why."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.geometry import Size

from kvtui.procedure.checks import setting_checks
from kvtui.procedure.memory import Breakdown, breakdown
from kvtui.tui import view_header, view_log, view_memory, view_next, view_run, view_runs, view_steps
from kvtui.tui.actions import Action
from kvtui.tui.layout import MIN_CELLS, MIN_ROWS, Plan, plan
from kvtui.tui.lines import EMPTY, Line, Span, fit, line, rule, tint, width_of
from kvtui.tui.screens.base import KvtuiScreen, bindings
from kvtui.tui.widgets import Lines

ABOUT = """Five steps, one variable at a time. The table holds what was asked against what the engine's log proves:
proven, differs, or unproven (no evidence either way). Memory shows the run on a fixed scale.
Next says what to change, why, and what to expect; nothing is started before it is decided."""


class ProcedureScreen(KvtuiScreen):
    """The procedure while it works, waits and ends."""

    scope = "procedure"
    about = ABOUT
    BINDINGS = bindings("procedure")

    def __init__(self) -> None:
        super().__init__()
        self._cursor: int | None = None
        self._plan: Plan | None = None
        self._sized = Size(0, 0)

    def compose(self) -> ComposeResult:
        """See Screen."""
        yield Lines(id="header")
        with Horizontal(id="body"):
            with Vertical(id="main"):
                with Horizontal(id="top"):
                    yield Lines(id="steps")
                    yield Lines(id="current")
                yield Lines(id="memory")
                yield Lines(id="next")
                yield Lines(id="tail")
            with Vertical(id="side"):
                yield Lines(id="runs")
                yield Lines(id="log")
        yield Lines(id="footer")

    def _panel(self, name: str) -> Lines:
        return self.query_one(f"#{name}", Lines)

    def _arrange(self, size: Size) -> None:
        run = self.live.run
        wanted = 4 + len(setting_checks(run)) + len(run.speeds) if run else 14
        new = plan(size.width, size.height, max(wanted, 16))
        if new == self._plan and size == self._sized:
            return
        self._plan, self._sized = new, size
        self.query_one("#body").display = new is not None
        self._panel("footer").display = new is not None
        if new is None:
            return
        self.query_one("#side").display = new.side > 0
        self.query_one("#side").styles.width = new.side
        self._panel("steps").display = new.steps > 0
        self._panel("steps").styles.width = new.steps
        self.query_one("#top").styles.height = new.top
        tail, log = (0, new.log) if new.side else (new.log, 0)
        for name, rows in (
            ("steps", new.top),
            ("current", new.top),
            ("memory", new.memory),
            ("next", new.next),
            ("tail", tail),
            ("runs", new.runs),
            ("log", log),
        ):
            self._panel(name).styles.height = rows
            self._panel(name).display = rows > 0 and (name != "steps" or new.steps > 0)

    def show_live(self) -> None:
        """See KvtuiScreen."""
        size = self.size
        self._arrange(size)
        if self._plan is None:
            small = f"too small: {size.width}x{size.height}, needs {MIN_CELLS}x{MIN_ROWS}"
            self._panel("header").show([line(small)])
            return
        self._panel("header").show([view_header.header(self.live.state, size.width, note=self.live.note)])
        self._show_steps(self._plan)
        self._show_current(self._plan)
        self._show_memory(self._plan)
        self._show_next(self._plan)
        if self._plan.runs:
            rows = view_runs.table(self.live.state, self._plan.side - 2, self._plan.runs - 1)
            self._panel("runs").show(
                _beside([rule(line(Span("Runs", "title")), self._plan.side - 2), *rows], self._plan.runs)
            )

    def _show_steps(self, p: Plan) -> None:
        if not p.steps:
            return
        inner = p.steps - 1
        rows = view_steps.checklist(self.live.state, self.live.progress, inner, p.top - 1)
        rows = [fit(r, inner) for r in rows] + [fit(EMPTY, inner)] * (p.top - 1 - len(rows))
        edge = Span("│", "rule")
        head = line(rule(line(Span("Steps", "title")), inner), Span("┬", "rule"))
        self._panel("steps").show([head, *(line(r, edge) for r in rows)])

    def _show_current(self, p: Plan) -> None:
        live, run, cells = self.live, self.live.run, p.inner - p.steps
        checks = setting_checks(run) if run else ()
        tally = view_run.tally(checks)
        head = rule(view_run.title(live.state, run, cells - width_of(tally) - 7), cells, tally)
        rows = view_run.current(live.state, run, live.progress, cells, p.top - 1, self._row(), live.note)
        self._panel("current").show([head, *rows])

    def _show_memory(self, p: Plan) -> None:
        if not p.memory:
            return
        live = self.live
        b = self.breakdown()
        title = (
            view_memory.title(live.state, live.trace, live.sample)
            if live.state
            else line(Span("Memory", "title"))
        )
        if self._cursor is not None and self._cursor == self._n_rows() - 1:
            title = tint(title, "cursor")
        head = rule(title, p.inner, view_memory.peak_note(live.trace))
        rows = view_memory.panel(live.state, b, live.trace, p.inner, p.memory - 1)
        self._panel("memory").show([head, *rows])

    def breakdown(self) -> Breakdown | None:
        """Where the memory is: live while an engine runs, else at the last run's peak."""
        state, run = self.live.state, self.live.run
        if state is None:
            return None
        return breakdown(state, run, self.live.sample if run is not None and run.outcome is None else None)

    def _show_next(self, p: Plan) -> None:
        rows = p.next - 1
        head = rule(view_next.title(self.live, rows), p.inner, view_next.countdown(self.live))
        self._panel("next").show([head, *view_next.panel(self.live, p.inner, rows)])

    def show_log(self) -> None:
        """See KvtuiScreen."""
        p = self._plan
        if p is None or not p.log:
            return
        live = self.live
        cells = (p.side - 2) if p.side else p.inner
        shown = list(live.log)[-(p.log - 1) :]
        rows = view_log.rows(shown, live.log_total - len(shown) + 1, view_log.proving(live.run), cells)
        what = f"Log of run {live.log_run}" if live.log_run is not None else "Log"
        lines = [rule(line(Span(what, "title")), cells), *rows]
        self._panel("log" if p.side else "tail").show(_beside(lines, p.log) if p.side else lines)

    def unavailable(self) -> frozenset[str]:
        """See KvtuiScreen."""
        live = self.live
        off: set[str] = set()
        if live.question is None:
            off |= {"accept", "change", "skip", "stop_here", "again", "insist"}
        elif live.question.recommendation.kind != "skip":
            off.add("insist")
        if live.question is not None and not any(r.outcome for r in live.question.state.runs):
            off.add("again")
        if not live.unattended or live.state is None or live.state.verdict is not None or live.failure:
            off.add("pause")
        if live.state is None or live.state.verdict is None:
            off.add("verdict")
        if live.run is None:
            off |= {"evidence", "select_up", "select_down"}
        if not live.command()[0]:
            off.add("copy")
        if live.state is None:
            off |= {"budget", "runs", "next"}
        return frozenset(off)

    def actions(self) -> list[Action]:
        """See KvtuiScreen: the key that pauses also ends the pause."""
        paused = self.live.paused
        return [replace(a, title="go on") if paused and a.id == "pause" else a for a in super().actions()]

    def _n_rows(self) -> int:
        run = self.live.run
        return len(setting_checks(run)) + 2 if run else 0

    def _row(self) -> int | None:
        return self._cursor

    def _select(self, step: int) -> None:
        n = self._n_rows()
        if n == 0:
            return
        first = 0 if step > 0 else n - 1
        self._cursor = first if self._cursor is None else (self._cursor + step) % n
        self.draw()

    def action_select_up(self) -> None:
        """The row above."""
        self._select(-1)

    def action_select_down(self) -> None:
        """The row below."""
        self._select(1)

    def action_evidence(self) -> None:
        """What proves the selected row."""
        from kvtui.tui.screens.evidence import EvidenceScreen

        run, p = self.live.run, self._plan
        if run is None or p is None:
            return
        checks = view_run.shown_checks(run, p.top - 1, p.inner - p.steps)
        at = self._cursor
        if at is None:
            at = next((n for n, c in enumerate(checks) if c.state != "proven"), 0)
        if at < len(checks):
            self.app.push_screen(EvidenceScreen(run.number, checks[at].setting))
        else:
            self.app.push_screen(EvidenceScreen(run.number, "speed" if at == len(checks) else "memory"))

    def action_log(self) -> None:
        """The engine's log."""
        from kvtui.tui.screens.details import LogScreen

        self.app.push_screen(LogScreen())

    def action_budget(self) -> None:
        """Memory in figures."""
        from kvtui.tui.screens.details import BudgetScreen

        self.app.push_screen(BudgetScreen())

    def action_runs(self) -> None:
        """All runs."""
        from kvtui.tui.screens.details import RunsScreen

        self.app.push_screen(RunsScreen())

    def action_next(self) -> None:
        """The recommendation in full."""
        from kvtui.tui.screens.details import NextScreen

        self.app.push_screen(NextScreen())

    def action_steps(self) -> None:
        """The steps in full."""
        from kvtui.tui.screens.details import StepsScreen

        self.app.push_screen(StepsScreen())

    def action_verdict(self) -> None:
        """The verdict."""
        from kvtui.tui.screens.details import VerdictScreen

        self.app.push_screen(VerdictScreen())

    def action_copy(self) -> None:
        """The command that counts now."""
        self.kvtui.copy_command()

    def action_pause(self) -> None:
        """Hand decisions to the operator, or back."""
        self.kvtui.toggle_pause()

    def action_accept(self) -> None:
        """Do it."""
        self.kvtui.decide("accept")

    def action_change(self) -> None:
        """Something else."""
        from kvtui.tui.screens.dialogs import ChangeDialog

        question = self.live.question
        if question is None:
            return
        self.kvtui.hold()

        def chosen(pick: tuple[str, str] | None) -> None:
            if pick is not None:
                self._decide("change", f"Change it to {pick[1]}", "goes on", *pick)

        self.app.push_screen(ChangeDialog(question.state), chosen)

    def action_skip(self) -> None:
        """Not this."""
        self._decide("skip", "Skip this recommendation", "skips")

    def action_again(self) -> None:
        """The last run once more."""
        self._decide("retry", "Run the last run again, as it was", "runs it")

    def action_insist(self) -> None:
        """What is advised against."""
        self._decide("insist", "Run it although it is advised against", "runs it")

    def _decide(
        self,
        choice: Literal["change", "skip", "retry", "insist"],
        title: str,
        enter: str,
        variable: str = "",
        value: str = "",
    ) -> None:
        """Decide, with a reason for the record."""
        from kvtui.tui.screens.dialogs import ReasonDialog

        self.kvtui.hold()

        def given(reason: str | None) -> None:
            if reason is not None:
                self.kvtui.decide(choice, variable=variable, value=value, reason=reason)

        self.app.push_screen(ReasonDialog(title, enter), given)

    def action_stop_here(self) -> None:
        """End with what is proven."""
        from kvtui.tui.screens.dialogs import ConfirmDialog

        self.kvtui.hold()

        def confirmed(yes: bool | None) -> None:
            if yes:
                self.kvtui.decide("stop")

        text = "End the procedure here? The verdict is made from the runs that count so far."
        self.app.push_screen(ConfirmDialog("Stop here", text, "stop here"), confirmed)


def _beside(lines: list[Line], rows: int) -> list[Line]:
    edge = line(Span("│", "rule"), " ")
    filled = lines[:rows] + [EMPTY] * (rows - len(lines))
    return [line(edge, item) for item in filled]
