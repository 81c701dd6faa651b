"""The planner on simulated cards: what it tries, in which order, where it stops and what it answers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kvtui.procedure.checks import setting_checks
from kvtui.procedure.preset import load_preset
from kvtui.procedure.variables import changed
from kvtui.session import events as ev
from kvtui.session.records import Recommendation
from kvtui.session.state import SessionState
from tests.procedure.simulator import AT, Card, Play, play, runs_of_step

STAGES = (32768, 65536, 98304, 131072)
ROOMY = Card(total=48.0, weights=5.0)


def test_a_roomy_card_reaches_the_target_and_stops_there() -> None:
    state, launches = play(ROOMY, stages=STAGES, target_context=131072)
    assert [launch.purpose for launch in launches] == [
        *("floor", "baseline", "quantized"),
        *(["stage"] * 3),
    ]
    assert state.verdict is not None
    assert state.verdict.outcome == "done"
    assert state.verdict.config is not None
    assert (state.verdict.config.n_ctx, state.verdict.config.kv_types) == (131072, "q8_0/q8_0")
    assert [s.outcome for s in state.steps] == ["passed"] * 4 + ["not-needed"]
    assert state.runs[-1].stability
    assert "filled to 95 % 3 times" in state.verdict.why


def test_stages_that_the_budget_excludes_are_skipped_with_the_figure_and_transients_go_first() -> None:
    card = Card(total=16.0, weights=9.0)
    state, launches = play(card, stages=STAGES, target_context=131072)
    skipped = {s.context: s.reason for s in state.skipped}
    assert 131072 in skipped
    assert "over" in skipped[131072]
    assert "GiB" in skipped[131072]
    variables = [x.variable for x in launches if x.purpose == "transient"]
    assert variables[0] == "micro-batch"
    assert variables.index("micro-batch") < variables.index("kv-types")
    for launch in launches:
        assert not (launch.config.type_k.startswith("q4") and launch.config.type_v == "q8_0")


def test_types_go_down_values_first_where_no_transient_memory_is_left() -> None:
    card = Card(total=16.0, weights=9.0, compute_per_ubatch_mib=0.05)
    state, launches = play(card, stages=(65536, 81920), target_context=81920)
    kv_types = [x.config.kv_types for x in launches if x.variable == "kv-types" and x.step == 5]
    assert kv_types == ["q8_0/q4_0"]
    assert state.verdict is not None
    assert state.verdict.config is not None
    assert (state.verdict.config.n_ctx, state.verdict.config.kv_types) == (81920, "q8_0/q4_0")


def test_prefill_out_of_memory_is_answered_by_the_micro_batch_and_nothing_else() -> None:
    card = Card(total=16.0, weights=10.5, prefill_growth_mib_per_ubatch=3.5)
    state, launches = play(card, stages=(32768,), target_context=32768, n_ubatch=512, margin_gib=0.25)
    transients = [x for x in launches if x.purpose == "transient"]
    assert transients
    assert {x.change.variable for x in transients if x.change} == {"micro-batch", "context"}
    assert state.verdict is not None
    assert state.verdict.config is not None
    assert state.verdict.config.n_ubatch < 512
    assert state.steps[4].outcome == "passed"


def test_weights_that_do_not_fit_end_the_procedure_at_step_one() -> None:
    state, launches = play(Card(total=16.0, weights=15.6))
    assert len(launches) == 1
    assert state.verdict is not None
    assert state.verdict.outcome == "failed"
    assert "smaller quant" in state.verdict.why
    assert [s.outcome for s in state.steps[1:]] == ["skipped"] * 4


def test_weights_that_leave_no_healthy_room_end_it_too() -> None:
    state, _ = play(
        Card(total=16.0, weights=14.0, runtime=1.1, desktop=0.1, compute_per_ubatch_mib=0.1),
        floor_context=256,
    )
    assert state.steps[0].outcome == "failed"
    assert "no healthy room" in state.steps[0].summary


def test_layers_left_on_the_cpu_end_it_too() -> None:
    state, launches = play(replace(ROOMY, offloaded=(20, 33)))
    assert len(launches) == 1
    assert "20 of 33 layers" in state.steps[0].summary


def test_types_that_the_log_does_not_prove_make_a_run_void() -> None:
    state, _ = play(replace(ROOMY, hide_kv_lines=True), stages=STAGES)
    assert all(r.outcome == "void" for r in state.runs)
    assert state.verdict is not None
    assert state.verdict.outcome == "failed"
    types = [c for c in setting_checks(state.runs[0]) if c.setting == "K cache type"]
    assert types[0].state == "unproven"


def test_a_silent_fallback_to_f16_is_seen_and_the_run_does_not_count() -> None:
    state, _ = play(replace(ROOMY, f16_fallback=True), stages=(32768,), target_context=32768)
    (run,) = runs_of_step(state, 3)
    assert run.outcome == "void"
    assert "q8_0 asked, f16 allocated" in run.reason
    assert state.verdict is not None
    assert state.verdict.config is not None
    assert state.verdict.config.kv_types == "f16/f16"


def test_a_lost_task_keeps_f16_and_says_which() -> None:
    state, launches = play(
        replace(ROOMY, loses_at=frozenset({"q8_0"})), stages=(32768,), target_context=32768
    )
    assert state.steps[2].outcome == "failed"
    assert "tool-selection@" in state.steps[2].summary
    assert {x.config.kv_types for x in launches if x.purpose == "stage"} == {"f16/f16"}


def test_a_task_that_fails_at_the_baseline_is_not_blamed_on_kv() -> None:
    state, _ = play(replace(ROOMY, fails_at_baseline=True), stages=(32768,), target_context=32768)
    assert "not blamed on KV later: code-edit@" in state.steps[1].summary
    assert state.steps[2].outcome == "passed"


def test_without_flash_attention_only_keys_are_quantized() -> None:
    card = replace(ROOMY, flash_attention=False)
    _, launches = play(card, stages=(32768,), target_context=32768)
    (quantized,) = [x for x in launches if x.purpose == "quantized"]
    assert quantized.config.kv_types == "q8_0/f16"
    assert quantized.config.flash_attn == "off"
    assert quantized.advice.not_this


def test_the_speed_floor_ends_the_climb_and_no_memory_lever_is_pulled() -> None:
    state, launches = play(ROOMY, stages=STAGES, target_context=131072, min_decode_tps=22.0)
    assert state.verdict is not None
    assert state.verdict.config is not None
    assert state.verdict.config.n_ctx == 65536
    assert state.verdict.outcome == "findings"
    assert not [x for x in launches if x.purpose == "transient"]
    assert "below your floor" in state.verdict.why


def test_what_no_memory_lever_cures_is_said() -> None:
    plan = replace(load_preset("coding-agent"), stages=STAGES, target_context=131072, min_decode_tps=22.0)
    game = Play(ROOMY, plan)
    game.run()
    (advice,) = game.advice
    assert advice.kind == "will-not-help"
    assert "decode speed" in advice.why
    assert advice.not_this


def test_all_requests_together_stay_within_the_live_tokens_of_the_preset() -> None:
    _, launches = play(
        ROOMY, preset="multi-user", stages=STAGES, target_context=131072, max_live_tokens=65536
    )
    assert max(x.config.n_ctx for x in launches) == 65536


def test_recall_that_breaks_with_depth_ends_the_climb() -> None:
    state, _ = play(replace(ROOMY, recall_limit=70000), stages=STAGES, target_context=131072)
    assert state.verdict is not None
    assert state.verdict.config is not None
    assert state.verdict.config.n_ctx == 65536
    assert "recall" in state.steps[3].summary


def test_recall_lost_to_quantized_kv_at_the_same_depth_keeps_f16() -> None:
    card = replace(ROOMY, recall_lost_at=frozenset({"q8_0"}))
    state, launches = play(card, stages=(32768,), target_context=32768)
    assert state.steps[2].outcome == "failed"
    assert "recall at" in state.steps[2].summary
    assert {x.config.kv_types for x in launches if x.purpose == "stage"} == {"f16/f16"}


def test_several_requests_are_tried_and_halved_until_they_hold() -> None:
    card = replace(ROOMY, fails_above_slots=2)
    state, launches = play(card, preset="multi-user", n_parallel=4, stages=(32768,), target_context=32768)
    assert [x.config.n_parallel for x in launches if x.purpose == "concurrency"] == [4, 2]
    assert "2 requests at once hold" in state.steps[4].summary


def test_more_context_than_was_trained_is_skipped_and_said() -> None:
    state, launches = play(replace(ROOMY, n_ctx_train=40000), stages=STAGES, target_context=131072)
    assert max(x.config.n_ctx for x in launches) == 32768
    assert all("trained for 40,000" in s.reason for s in state.skipped)
    assert state.verdict is not None
    assert "trained" in " ".join(state.verdict.not_measured)


@pytest.mark.parametrize("total", [8.0, 12.0, 16.0, 24.0])
@pytest.mark.parametrize("weights", [3.0, 6.0, 9.0, 12.0])
@pytest.mark.parametrize("growth", [0.0, 1.5])
def test_no_advice_ever_moves_two_variables(total: float, weights: float, growth: float) -> None:
    card = Card(total=total, weights=weights, prefill_growth_mib_per_ubatch=growth)
    state, launches = play(card, stages=STAGES, target_context=131072)
    assert state.verdict is not None
    for launch in launches:
        if launch.change is None:
            continue
        reference = state.run(launch.change.against_run)
        assert reference is not None
        moving = {v.name for v in changed(reference.config, launch.config)} - {"flash-attention"}
        assert moving <= {launch.change.variable}
        assert launch.advice.command
        assert launch.advice.why


def choosing(answers: dict[str, tuple[str, str, str]]) -> Play:
    """A play in which the advice with that title is answered once by (choice, variable, value)."""

    def choose(advice: Recommendation, state: SessionState) -> ev.Decided:
        for start, (choice, variable, value) in list(answers.items()):
            if advice.title.startswith(start):
                del answers[start]
                return ev.Decided(AT, 1, choice, "operator", variable, value, "because")  # type: ignore[arg-type]
        return ev.Decided(AT, 1, "accept", "operator")

    plan = replace(load_preset("coding-agent"), stages=(49152, 65536), target_context=65536)
    return Play(ROOMY, plan, choose)


def test_a_skipped_stage_is_recorded_with_the_operators_reason() -> None:
    state = choosing({"Stage: 48K": ("skip", "", "")}).run()
    assert [(s.context, s.reason) for s in state.skipped] == [(49152, "skipped by the operator: because")]
    assert state.verdict is not None


def test_another_value_of_the_advised_variable_takes_the_place_of_the_stage() -> None:
    game = choosing({"Stage: 48K": ("change", "context", "40960")})
    state = game.run()
    assert [x.config.n_ctx for x in game.launches if x.purpose == "stage"] == [40960, 65536]
    assert state.verdict is not None


def test_another_variable_is_a_run_of_its_own_and_stays_when_it_held() -> None:
    game = choosing({"Stage: 48K": ("change", "micro-batch", "256")})
    game.run()
    own = [x for x in game.launches if x.purpose == "operator"]
    assert [x.config.n_ubatch for x in own] == [256]
    assert {x.config.n_ubatch for x in game.launches if x.purpose == "stage"} == {256}


def test_stopping_early_names_what_was_proven_so_far() -> None:
    state = choosing({"Stage: 64K": ("stop", "", "")}).run()
    assert state.verdict is not None
    assert state.verdict.outcome == "stopped"
    assert state.verdict.config is not None
    assert state.verdict.config.n_ctx == 49152
