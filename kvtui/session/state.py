"""The state of a session: a fold over its events, the same for the live screen, resume, replay and report."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import singledispatch

from kvtui.core.config import RunConfig
from kvtui.core.errors import SessionError
from kvtui.core.findings import Finding
from kvtui.engines.base import Missing
from kvtui.gpu.samples import MemoryRecord
from kvtui.logs.facts import EngineFacts
from kvtui.probes.results import (
    ConcurrencyResult,
    FullPoolResult,
    RecallResult,
    SpeedResult,
    StabilityResult,
    TaskResult,
)
from kvtui.session import events as ev
from kvtui.session.records import (
    Change,
    FailureKind,
    Forecast,
    Recommendation,
    RunOutcome,
    StepOutcome,
    Verdict,
)

STEPS = (1, 2, 3, 4, 5)


@dataclass(frozen=True, slots=True)
class RunRecord:
    """One run: what was asked, what was proven, what was measured. `outcome` is None while it runs or when it
    was interrupted (then `interrupted`); only a run with an outcome counts."""

    number: int
    step: int
    purpose: str
    config: RunConfig
    argv: tuple[str, ...]
    env: tuple[tuple[str, str], ...]
    started_at: str
    change: Change | None = None
    missing: tuple[Missing, ...] = ()
    follow: tuple[str, ...] = ()
    forecast: Forecast | None = None
    pid: int | None = None
    pid_started: float | None = None
    load_s: float | None = None
    facts: EngineFacts = field(default_factory=EngineFacts)
    speeds: tuple[SpeedResult, ...] = ()
    recalls: tuple[RecallResult, ...] = ()
    tasks: tuple[TaskResult, ...] = ()
    concurrency: tuple[ConcurrencyResult, ...] = ()
    prompts: str = ""
    prompts_reason: str = ""
    repeated: tuple[TaskResult, ...] = ()
    full_pool: tuple[FullPoolResult, ...] = ()
    stability: tuple[StabilityResult, ...] = ()
    outcome: RunOutcome | None = None
    reason: str = ""
    failure: FailureKind | None = None
    exit_code: int | None = None
    memory: MemoryRecord | None = None
    findings: tuple[Finding, ...] = ()
    finished_at: str | None = None
    wall_s: float = 0.0
    engine_s: float = 0.0
    interrupted: bool = False
    seed: int = 0
    temperature: float = 0.0
    subject: str = ""
    log: str = ""

    @property
    def counts(self) -> bool:
        """True when its measurements may be used: it ended well and its types were proven."""
        return self.outcome == "ok"

    @property
    def graded(self) -> tuple[TaskResult, ...]:
        """Tasks that can pass or fail; the others count for divergence only."""
        return tuple(t for t in self.tasks if t.graded)


@dataclass(frozen=True, slots=True)
class StepState:
    """One of the five steps."""

    number: int
    started: bool = False
    outcome: StepOutcome | None = None
    summary: str = ""


@dataclass(frozen=True, slots=True)
class SessionState:
    """Everything known about a session."""

    started: ev.SessionStarted
    steps: tuple[StepState, ...] = tuple(StepState(n) for n in STEPS)
    runs: tuple[RunRecord, ...] = ()
    skipped: tuple[ev.StageSkipped, ...] = ()
    recommended: tuple[ev.Recommended, ...] = ()
    decided: tuple[ev.Decided, ...] = ()
    verdict: Verdict | None = None
    finished_at: str | None = None
    wall_s: float = 0.0
    own_cpu_s: float = 0.0
    notes: tuple[str, ...] = ()
    resumed: int = 0
    torn: bool = False

    @property
    def current_step(self) -> StepState | None:
        """The step that is open, else the first that has not begun, None when all are closed."""
        return next((s for s in self.steps if s.outcome is None), None)

    @property
    def current_run(self) -> RunRecord | None:
        """The run in progress."""
        run = self.runs[-1] if self.runs else None
        return run if run is not None and run.outcome is None and not run.interrupted else None

    @property
    def recommendation(self) -> Recommendation | None:
        """The latest one."""
        return self.recommended[-1].recommendation if self.recommended else None

    def run(self, number: int) -> RunRecord | None:
        """The run with that number; the latest, should one have been repeated under its number."""
        return next((r for r in reversed(self.runs) if r.number == number), None)


def fold(events: Iterable[ev.Event], *, torn: bool = False) -> SessionState:
    """All events of one session as its state. Raises SessionError when the first is not its start."""
    iterator = iter(events)
    first = next(iterator, None)
    if not isinstance(first, ev.SessionStarted):
        raise SessionError("the session has no beginning", hint="nothing of it can be used; start a new one")
    state = SessionState(first, torn=torn)
    for event in iterator:
        state = apply(event, state)
    return state


def _appended(state: SessionState, number: int, field: str, *results: object) -> SessionState:
    """`results` behind what run `number` has in `field` already; a run that is not there changes nothing."""
    run = state.run(number)
    return _edit(state, number, **{field: (*getattr(run, field), *results)}) if run else state


def _edit(state: SessionState, number: int, **changes: object) -> SessionState:
    target = state.run(number)
    runs = tuple(replace(r, **changes) if r is target else r for r in state.runs)  # type: ignore[arg-type]
    return replace(state, runs=runs)


def _edit_step(state: SessionState, number: int, **changes: object) -> SessionState:
    steps = tuple(replace(s, **changes) if s.number == number else s for s in state.steps)  # type: ignore[arg-type]
    return replace(state, steps=steps)


@singledispatch
def apply(event: ev.Event, state: SessionState) -> SessionState:
    """`state` after `event`. Events of unknown kinds change nothing."""
    return state


@apply.register
def _(event: ev.SessionResumed, state: SessionState) -> SessionState:
    runs = tuple(replace(r, interrupted=True) if r.outcome is None else r for r in state.runs)
    return replace(state, runs=runs, resumed=state.resumed + 1)


@apply.register
def _(event: ev.StepStarted, state: SessionState) -> SessionState:
    # A closed step begins again where a run of it is repeated.
    return _edit_step(state, event.step, started=True, outcome=None, summary="")


@apply.register
def _(event: ev.Recommended, state: SessionState) -> SessionState:
    return replace(state, recommended=(*state.recommended, event))


@apply.register
def _(event: ev.Decided, state: SessionState) -> SessionState:
    return replace(state, decided=(*state.decided, event))


@apply.register
def _(event: ev.RunStarted, state: SessionState) -> SessionState:
    run = RunRecord(
        number=event.run,
        step=event.step,
        purpose=event.purpose,
        config=event.config,
        argv=event.argv,
        env=event.env,
        started_at=event.at,
        change=event.change,
        missing=event.missing,
        follow=event.follow,
        forecast=event.forecast,
        seed=event.seed,
        temperature=event.temperature,
        subject=event.subject,
    )
    earlier = tuple(replace(r, interrupted=True) if r.outcome is None else r for r in state.runs)
    return replace(state, runs=(*earlier, run))


@apply.register
def _(event: ev.EngineLaunched, state: SessionState) -> SessionState:
    return _edit(state, event.run, pid=event.pid, pid_started=event.started, log=event.log)


@apply.register
def _(event: ev.EngineReady, state: SessionState) -> SessionState:
    return _edit(state, event.run, load_s=event.load_s, facts=event.facts)


@apply.register
def _(event: ev.SpeedMeasured, state: SessionState) -> SessionState:
    return _appended(state, event.run, "speeds", event.result)


@apply.register
def _(event: ev.RecallMeasured, state: SessionState) -> SessionState:
    return _appended(state, event.run, "recalls", event.result)


@apply.register
def _(event: ev.TasksMeasured, state: SessionState) -> SessionState:
    return _appended(state, event.run, "tasks", *event.results)


@apply.register
def _(event: ev.ConcurrencyMeasured, state: SessionState) -> SessionState:
    return _appended(state, event.run, "concurrency", event.result)


@apply.register
def _(event: ev.PromptsChosen, state: SessionState) -> SessionState:
    return _edit(state, event.run, prompts=event.style, prompts_reason=event.reason)


@apply.register
def _(event: ev.TasksRepeated, state: SessionState) -> SessionState:
    return _appended(state, event.run, "repeated", *event.results)


@apply.register
def _(event: ev.FullPoolMeasured, state: SessionState) -> SessionState:
    return _appended(state, event.run, "full_pool", event.result)


@apply.register
def _(event: ev.StabilityMeasured, state: SessionState) -> SessionState:
    return _appended(state, event.run, "stability", event.result)


@apply.register
def _(event: ev.RunFinished, state: SessionState) -> SessionState:
    return _edit(
        state,
        event.run,
        outcome=event.outcome,
        reason=event.reason,
        facts=event.facts,
        failure=event.failure,
        exit_code=event.exit_code,
        memory=event.memory,
        findings=event.findings,
        finished_at=event.at,
        wall_s=event.wall_s,
        engine_s=event.engine_s,
    )


@apply.register
def _(event: ev.StepFinished, state: SessionState) -> SessionState:
    return _edit_step(state, event.step, started=True, outcome=event.outcome, summary=event.summary)


@apply.register
def _(event: ev.StageSkipped, state: SessionState) -> SessionState:
    return replace(state, skipped=(*state.skipped, event))


@apply.register
def _(event: ev.SessionFinished, state: SessionState) -> SessionState:
    return replace(
        state,
        verdict=event.verdict,
        finished_at=event.at,
        wall_s=event.wall_s,
        own_cpu_s=event.own_cpu_s,
        notes=event.notes,
    )
