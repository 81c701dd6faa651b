"""The advisor against all configurations and against a blind operator, on simulated cards."""

from __future__ import annotations

import pytest

from kvtui.procedure.variables import bits_of, changed
from tests.procedure.cards import SCENARIOS, Scenario
from tests.procedure.launches import Result, play_both, table


def test_there_are_enough_scenarios_and_each_has_a_name() -> None:
    assert len({s.name for s in SCENARIOS}) == len(SCENARIOS) >= 30


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda s: s.name)
def test_the_best_is_reached_in_half_the_launches_one_variable_at_a_time(scenario: Scenario) -> None:
    result = play_both(scenario)
    print(*table([result]), sep="\n")
    assert result.reached, f"found {result.found}, best {result.best}"
    assert 2 * result.advisor <= result.blind
    assert result.proof <= 1
    one_variable_at_a_time(result)
    values_before_keys(result)


def one_variable_at_a_time(result: Result) -> None:
    for launch in result.launches:
        if launch.change is None:
            continue
        reference = result.state.run(launch.change.against_run)
        assert reference is not None
        names = result.scenario.card.traits.variables
        moving = {v.name for v in changed(reference.config, launch.config) if not names or v.name in names}
        if reference.config.flash_attn == "auto":
            moving -= {"flash-attention"}  # spelled out, as the engine's own probe decided
        assert moving <= {launch.change.variable}, launch.advice.title


def values_before_keys(result: Result) -> None:
    for launch in result.launches:
        assert (
            bits_of(launch.config.type_k) >= bits_of(launch.config.type_v)
            or launch.config.flash_attn == "off"
        )
