"""What the operator may do instead of the advice, and that it is recorded with its reason."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kvtui.core.config import RunConfig
from kvtui.core.errors import InputError
from kvtui.procedure.preset import load_preset
from kvtui.procedure.variables import BY_NAME
from kvtui.session import events as ev
from kvtui.session.records import Recommendation
from kvtui.session.state import SessionState
from tests.procedure.outcome import AT, OLLAMA_TRAITS, Card
from tests.procedure.simulator import Play

TIGHT = Card(total=10.0, weights=4.6)
CONFIG = RunConfig("/models/model.gguf", 32768, "q8_0", "q8_0", "on")


def choosing(card: Card, answers: dict[str, tuple[str, str, str]], **plan: Any) -> Play:
    """A play in which the advice with that title is answered once by (choice, variable, value)."""

    def choose(advice: Recommendation, state: SessionState) -> ev.Decided:
        for start, (choice, variable, value) in list(answers.items()):
            if advice.title.startswith(start):
                del answers[start]
                return ev.Decided(AT, 1, choice, "operator", variable, value, "because")  # type: ignore[arg-type]
        return ev.Decided(AT, 1, "accept", "operator")

    wanted = {"stages": (32768, 65536), "target_context": 65536, "min_decode_tps": None} | plan
    return Play(card, replace(load_preset("coding-agent"), **wanted), choose)


def test_a_stage_that_cannot_fit_is_run_when_the_operator_insists() -> None:
    game = choosing(TIGHT, {"Leave out 64K": ("insist", "", "")})
    state = game.run()
    (insisted,) = [r for r in state.runs if r.subject == "stage:65536"]
    assert insisted.outcome == "failed"
    assert [d.reason for d in state.decided if d.choice == "insist"] == ["because"]
    assert [s.context for s in state.skipped] == []


def test_a_stage_that_cannot_fit_is_left_out_with_its_figure_otherwise() -> None:
    state = choosing(TIGHT, {}).run()
    assert [s.context for s in state.skipped] == [65536]
    assert "over" in state.skipped[0].reason
    (asked,) = [r.recommendation for r in state.recommended if r.recommendation.kind == "skip"][:1]
    assert asked.command
    assert asked.why == state.skipped[0].reason


def test_who_did_not_insist_on_one_stage_is_not_asked_about_larger_ones() -> None:
    game = choosing(TIGHT, {}, stages=(65536, 98304, 131072), target_context=131072)
    state = game.run()
    assert len(state.skipped) == 3
    stages = [r for r in state.recommended if r.recommendation.title.startswith("Leave out") and r.step == 4]
    assert len(stages) == 1


def test_the_last_run_can_be_repeated_as_it_was_with_the_probes_it_had() -> None:
    game = choosing(Card(total=48.0, weights=4.6), {"Quantize KV": ("retry", "", "")})
    state = game.run()
    first, again = [x for x in game.launches if x.purpose == "baseline"]
    assert (again.config, again.probes, again.subject) == (first.config, first.probes, first.subject)
    assert state.verdict is not None
    assert state.verdict.outcome == "done"
    assert [d.choice for d in state.decided if d.reason] == ["retry"]


def test_a_run_of_a_closed_step_opens_the_step_again() -> None:
    crash = Card(total=48.0, weights=4.6, crashes_at=frozenset({65536}))
    state = choosing(crash, {}).run()
    subjects = [r.subject for r in state.runs]
    assert subjects.count("stage:65536") == 2
    assert [s.outcome for s in state.steps] == ["passed"] * 4 + ["not-needed"]


def test_what_leaves_the_gpu_is_named_and_run_when_the_operator_insists() -> None:
    plain = choosing(TIGHT, {}, stages=(32768, 131072), target_context=131072)
    state = plain.run()
    assert all(r.config.n_gpu_layers == 999 for r in state.runs)
    assert any("layers on the GPU" in r.recommendation.title for r in state.recommended)
    game = choosing(
        TIGHT,
        {"Leave out fewer layers": ("insist", "", "")},
        stages=(32768, 131072),
        target_context=131072,
    )
    state = game.run()
    moved = [r for r in state.runs if r.config.n_gpu_layers != 999]
    assert moved
    assert state.verdict is not None
    assert state.verdict.config is not None
    assert state.verdict.config.n_ctx == 131072
    assert "decode -" in state.steps[4].summary


def test_any_other_option_is_added_and_stays() -> None:
    game = choosing(Card(total=48.0, weights=4.6), {"Stage: 64K": ("change", "option", "--poll 0 --prio 2")})
    state = game.run()
    own = [r for r in state.runs if r.purpose == "operator"]
    assert [r.config.extra for r in own] == [("--poll", "0", "--prio", "2")]
    assert own[0].change is not None
    assert (own[0].change.variable, own[0].change.before) == ("option", "none")
    assert state.runs[-1].config.extra == ("--poll", "0", "--prio", "2")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("-c 4096", "variable of its own"),
        ("--flash-attn=off", "variable of its own"),
        ("--poll 0 -ctk q4_0", "variable of its own"),
        ("--port 1", "stays as it is"),
        ("poll", "does not begin with an option"),
        ("", "does not begin with an option"),
        ("--poll '0", "no closing quotation"),
        ("--poll \x1b[2J", "does not begin with an option"),
    ],
)
def test_options_that_are_something_else_are_refused(text: str, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        BY_NAME["option"].change(CONFIG, text)


def test_options_are_added_to_those_before_and_can_be_taken_back() -> None:
    option = BY_NAME["option"]
    one = option.change(CONFIG, "--poll 0")
    assert option.change(one, "--prio 2").extra == ("--poll", "0", "--prio", "2")
    assert option.change(one, "none").extra == ()


def test_keys_below_values_are_refused_with_the_reason_when_typed() -> None:
    with pytest.raises(InputError) as refused:
        BY_NAME["kv-types"].change(CONFIG, "q4_0/q8_0")
    assert "keys below values" in refused.value.what
    assert "values first" in refused.value.hint


def test_what_means_nothing_to_the_engine_cannot_be_changed() -> None:
    card = Card(total=48.0, weights=4.6, traits=OLLAMA_TRAITS)
    with pytest.raises(InputError, match="not a variable that can be changed"):
        choosing(card, {"Baseline": ("change", "swa-full", "on")}).run()
    advice = choosing(card, {}).run().recommended[0].recommendation
    assert advice.variables == OLLAMA_TRAITS.variables
    assert advice.kv_pairs == ("f16/f16", "q8_0/q8_0", "q4_0/q4_0")
