"""A recorded session once more: the same launches whatever is measured, and nothing taken over unseen."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kvtui.core.errors import InputError
from kvtui.probes.own_tasks import OwnTask
from kvtui.procedure import replay
from kvtui.procedure.preset import load_preset
from kvtui.procedure.replay import Replay, options_of, prepare_replay
from kvtui.procedure.setup import TuneRequest
from kvtui.report.comparison import compare_sessions
from kvtui.report.comparison_words import sentence
from kvtui.session.codec import to_builtins
from kvtui.session.state import SessionState
from tests.procedure import simulator
from tests.procedure.outcome import Card
from tests.procedure.simulator import Play
from tests.report import states
from tests.session import sample


def _again(recorded: SessionState, card: Card, monkeypatch: pytest.MonkeyPatch) -> tuple[Play, SessionState]:
    runs = tuple(r for r in recorded.runs if r.outcome in ("ok", "failed", "void"))
    monkeypatch.setattr(simulator, "next_action", Replay(replace(recorded, runs=runs)))
    play = Play(card)
    return play, play.run()


def _asked(play: Play) -> list[Any]:
    return [
        (launch.step, launch.purpose, launch.subject, launch.config, launch.probes)
        for launch in play.launches
    ]


CARDS = [Card(), Card(total=10.0), Card(gpu=False)]


@pytest.mark.parametrize("card", CARDS, ids=range(len(CARDS)))
def test_the_same_launches_and_the_same_end(card: Card, monkeypatch: pytest.MonkeyPatch) -> None:
    first = Play(card)
    recorded = first.run()
    play, state = _again(recorded, card, monkeypatch)
    assert _asked(play) == _asked(first)
    assert [r.change for r in state.runs] == [r.change for r in recorded.runs]
    found = compare_sessions(recorded, state)
    assert (found.same_verdict, found.same_facts) == (True, True)
    assert sentence(found).startswith("Same verdict, same facts in ")


def test_other_measurements_do_not_change_what_is_run(monkeypatch: pytest.MonkeyPatch) -> None:
    first = Play(Card())
    recorded = first.run()
    play, state = _again(recorded, Card(total=7.0), monkeypatch)
    assert _asked(play) == _asked(first)
    assert state.verdict is not None
    assert all(step.outcome is not None for step in state.steps)
    assert compare_sessions(recorded, state).same_verdict is False


@pytest.mark.parametrize(
    ("runs", "said"), [(3, "not run in the session that"), (5, "the procedure would go on with")]
)
def test_a_session_that_was_cut_short_is_replayed_as_far_as_it_went(
    runs: int, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = Play(Card())
    recorded = first.run()
    cut = replace(recorded, runs=recorded.runs[:runs], verdict=None)
    play, state = _again(cut, Card(), monkeypatch)
    assert _asked(play) == _asked(first)[:runs]
    assert state.verdict is not None
    assert any(said in step.summary for step in state.steps)


def test_what_the_engine_is_given_besides_is_listed_and_never_a_gpu_of_the_other_box() -> None:
    run = states.run(sample.state(), 6)
    env = (("CUDA_VISIBLE_DEVICES", "GPU-1"), ("LD_PRELOAD", "/tmp/evil.so"))
    state = states.with_run(sample.state(), 6, config=replace(run.config, env=env, extra=("--lora", "x")))
    found = options_of(state)
    assert found.env == (("LD_PRELOAD", "/tmp/evil.so"),)
    assert found.extra == ("--lora", "x")
    hidden = states.with_run(sample.state(), 6, config=replace(run.config, extra=("--api-key", "REDACTED")))
    with pytest.raises(InputError, match="leaves out values"):
        options_of(hidden)


def _recorded(**changes: Any) -> SessionState:
    plan = to_builtins(load_preset("coding-agent"))
    state = sample.state()
    state = replace(state, started=replace(state.started, plan={**plan, **changes.pop("plan", {})}))
    run = states.run(state, 1)
    return states.with_run(state, 1, config=replace(run.config, **changes)) if changes else state


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"plan": {"n_batch": -1}}, "--batch-size: -1 is not a whole number"),
        ({"plan": {"stages": "no"}}, "the plan of that session cannot be followed"),
        ({"n_ctx": 1 << 40}, "n_ctx is 1099511627776, which no engine takes"),
        ({"threads": -3}, "threads is -3"),
        ({"type_k": "--model"}, "type_k is not the name of a cache type"),
        ({"env": (("A=B", "x"),)}, "A=B is no name of a variable"),
        ({"extra": ("a\0b",)}, "a character that no option can"),
    ],
)
def test_settings_that_cannot_be_are_refused_before_anything_is_looked_at(changes: Any, said: str) -> None:
    with pytest.raises(InputError, match=said):
        prepare_replay(_recorded(**changes), TuneRequest(), lambda _: None)


def test_own_tasks_are_those_of_the_session_and_no_folder_it_names_is_read(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="tasks of the operator's own"):
        prepare_replay(_recorded(plan={"tasks": "/etc"}), TuneRequest(), lambda _: None)
    own = ({"name": "a", "prompt": "Say\thello.", "expect": ["/h/"]},)
    recorded = _recorded(plan={"tasks": "/etc", "own_tasks": own})
    assert replay._plan(recorded, TuneRequest()).own_tasks == (OwnTask("a", "Say\thello.", ("/h/",)),)
    (tmp_path / "b.txt").write_text("Another.")
    assert replay._plan(recorded, TuneRequest(tasks=str(tmp_path))).own_tasks == (OwnTask("b", "Another."),)


def test_there_must_be_something_to_repeat() -> None:
    with pytest.raises(InputError, match="nothing to repeat"):
        prepare_replay(states.bare(), TuneRequest(), lambda _: None)
