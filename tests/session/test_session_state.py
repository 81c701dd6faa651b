"""State is a fold: what each event does to it, and that any beginning of a session is a state."""

from __future__ import annotations

import pytest

from kvtui.core.errors import SessionError
from kvtui.logs.facts import EngineFacts
from kvtui.probes.results import ConcurrencyResult, FullPoolResult, StabilityRequest, StabilityResult
from kvtui.session import events as ev
from kvtui.session.state import apply, fold
from tests.session import sample


def test_the_sample_session_folds_to_what_happened() -> None:
    state = sample.state()
    assert [r.outcome for r in state.runs] == ["ok", "ok", "ok", "ok", "failed", "ok"]
    assert [s.outcome for s in state.steps] == ["passed", "passed", "passed", "failed", "passed"]
    assert [s.context for s in state.skipped] == [65536, 98304]
    assert [d.choice for d in state.decided] == ["accept"] * 6 + ["skip"]
    assert state.verdict is not None
    assert state.verdict.run == 6
    assert state.notes == ("memory was read at 10 Hz",)
    assert (state.wall_s, state.own_cpu_s) == (812.0, 9.6)
    assert state.current_step is None
    assert state.current_run is None
    failed = state.run(5)
    assert failed is not None
    assert (failed.failure, failed.exit_code, failed.counts) == ("prefill-oom", -6, False)
    assert failed.facts.failures[0].line == 131
    baseline = state.run(2)
    assert baseline is not None
    assert (len(baseline.tasks), len(baseline.recalls), len(baseline.speeds)) == (8, 1, 1)
    assert baseline.change is not None
    assert baseline.change.against_run == 1
    assert baseline.seed == 42


def test_the_fold_is_the_same_step_by_step_and_at_once() -> None:
    recorded = sample.events()
    state = fold(recorded[:1])
    for count, event in enumerate(recorded[1:], 2):
        state = apply(event, state)
        assert state == fold(recorded[:count])


def test_a_run_in_progress_and_its_interruption() -> None:
    state = sample.unfinished()
    assert state.current_run is not None
    assert state.current_run.number == 5
    assert state.current_step is not None
    assert state.current_step.number == 4
    resumed = apply(ev.SessionResumed("t", "0.1.0", 5), state)
    assert resumed.current_run is None
    assert resumed.runs[-1].interrupted
    assert resumed.resumed == 1
    assert not any(r.interrupted for r in resumed.runs[:-1])


def test_a_run_repeated_under_its_number_leaves_the_interrupted_one_alone() -> None:
    recorded = sample.events()
    first = next(e for e in recorded if isinstance(e, ev.RunStarted))
    state = fold([recorded[0], first, ev.SessionResumed("t", "0.1.0", 1), first])
    done = apply(ev.RunFinished("t", 1, "ok", "", EngineFacts()), state)
    assert [(r.number, r.outcome, r.interrupted) for r in done.runs] == [(1, None, True), (1, "ok", False)]
    assert done.run(1) is done.runs[1]


def test_concurrency_is_kept_and_events_of_no_run_change_nothing() -> None:
    state = sample.state()
    result = ConcurrencyResult(2, 8192, 0, (), (18.0, 17.5), 20.0)
    more = apply(ev.ConcurrencyMeasured("t", 6, result), state)
    assert more.runs[5].concurrency == (result,)
    assert apply(ev.ConcurrencyMeasured("t", 99, result), state) == state
    assert apply(ev.EngineReady("t", 99, 1.0, EngineFacts()), state) == state
    assert apply(ev.Event("t"), state) == state


@pytest.mark.parametrize("recorded", [[], [ev.StepStarted("t", 1)], sample.events()[1:]])
def test_a_session_without_its_beginning_is_refused(recorded: list[ev.Event]) -> None:
    with pytest.raises(SessionError, match="no beginning"):
        fold(recorded)


def test_repeats_full_pools_and_stability_are_kept_with_their_run() -> None:
    state = sample.state()
    pool = FullPoolResult(2, 700, 64, 1024, 2, ("broken off",), True, 4.0)
    steady = StabilityResult(900, 64, 1, None, (StabilityRequest(None, None, "late"),), 9.0)
    for event in (
        ev.PromptsChosen("t", 2, "raw", "the template was refused"),
        ev.TasksRepeated("t", 2, sample.tasks()),
        ev.FullPoolMeasured("t", 6, pool),
        ev.StabilityMeasured("t", 6, steady),
    ):
        state = apply(event, state)
    assert state.runs[1].repeated == sample.tasks()
    assert (state.runs[1].prompts, state.runs[1].prompts_reason) == ("raw", "the template was refused")
    assert (state.runs[5].full_pool, state.runs[5].stability) == ((pool,), (steady,))
    assert steady.failed == 1
