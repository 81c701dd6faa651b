"""Everything a report shows, derived from the state of a session. No words, no units, no formatting."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kvtui.report.run_facts import RunFacts, run_facts
from kvtui.session.events import Decided, Recommended
from kvtui.session.state import SessionState


@dataclass(frozen=True, slots=True)
class Advice:
    """What was advised and what became of it; either may be missing (a session that was cut short)."""

    recommended: Recommended | None
    decided: Decided | None


@dataclass(frozen=True, slots=True)
class SessionFacts:
    """A session. `final` is the run that the verdict stands on; `command` the command line it hands over.

    `engine_s` and `runs_s` add up the runs that ended; `wall_s` is the whole session, None while unfinished.
    """

    state: SessionState
    runs: tuple[RunFacts, ...]
    final: RunFacts | None
    command: str | None
    advice: tuple[Advice, ...]
    not_measured: tuple[str, ...]
    engine_s: float | None
    runs_s: float | None
    wall_s: float | None

    @property
    def engine_share(self) -> float | None:
        """The share of the session's time (of the runs' time while it is unfinished or was resumed) that was spent
        inside the engine, 0.0 to 1.0."""
        whole = self.wall_s or self.runs_s
        return min(1.0, self.engine_s / whole) if whole and self.engine_s is not None else None


def derive(state: SessionState) -> SessionFacts:
    """The facts of one session."""
    runs = tuple(run_facts(state, run) for run in state.runs)
    verdict = state.verdict
    final = None
    if verdict is not None and verdict.run is not None:
        final = next((r for r in reversed(runs) if r.record.number == verdict.run), None)
    ended = [r for r in state.runs if r.wall_s > 0]
    return SessionFacts(
        state=state,
        runs=runs,
        final=final,
        command=_command(state, final),
        advice=_advice(state),
        not_measured=tuple(dict.fromkeys(_not_measured(state, final))),
        engine_s=sum(r.engine_s for r in ended) if ended else None,
        runs_s=sum(r.wall_s for r in ended) if ended else None,
        wall_s=state.wall_s if state.wall_s > 0 and not state.resumed else None,
    )


def _command(state: SessionState, final: RunFacts | None) -> str | None:
    verdict = state.verdict
    if verdict is not None and verdict.command and verdict.command.isprintable():
        return verdict.command
    return final.command if final is not None else None


def _advice(state: SessionState) -> tuple[Advice, ...]:
    """Each decision belongs to the advice that was recorded last before it."""
    found: list[Advice] = []
    both: list[Recommended | Decided] = [*state.recommended, *state.decided]
    for event in sorted(both, key=lambda e: (e.at, isinstance(e, Decided))):
        if isinstance(event, Recommended):
            found.append(Advice(event, None))
        elif found and found[-1].decided is None:
            found[-1] = Advice(found[-1].recommended, event)
        else:
            found.append(Advice(None, event))
    return tuple(found)


def _not_measured(state: SessionState, final: RunFacts | None) -> Iterator[str]:
    if state.verdict is not None:
        yield from state.verdict.not_measured
    yield from (f"step {s.number}" for s in state.steps if not s.started and s.outcome is None)
    if final is not None:
        yield from _missing_of(final)
    for run in state.runs:
        yield from (f"{m.lost} (the build does not know {m.option})" for m in run.missing)


def _missing_of(run: RunFacts) -> Iterator[str]:
    deepest = run.deepest
    known: tuple[tuple[str, object], ...] = (
        ("prompt speed", deepest and deepest.prompt_tps),
        ("decode speed", deepest and deepest.decode_tps),
        ("time to first token", deepest and deepest.first_token_s),
        ("recall", run.recall),
        ("task suite", run.tasks),
        ("KV bytes", run.kv.proven),
        ("KV types", run.kv_types),
        ("usable context per slot", run.context.per_slot),
        ("flash attention", run.flash_attn),
        ("memory after load", run.memory.after_load),
        ("memory after warm-up", run.memory.after_warm_up),
        ("peak memory in prefill", run.memory.peak_prefill),
        ("peak memory in decode", run.memory.peak_decode),
    )
    yield from (f"{name} of run {run.record.number}" for name, value in known if value is None)
    yield from (
        f"{check.setting} of run {run.record.number} (no proof in the log)"
        for check in run.checks
        if check.state == "unproven"
    )
