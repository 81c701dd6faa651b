"""KV types of forks: offered where the build has them, allowed where they are typed, and never taken to save bytes
that nobody knows."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kvtui.core.config import RunConfig
from kvtui.core.errors import InputError
from kvtui.engines.base import Abilities
from kvtui.procedure.situation import Situation
from kvtui.procedure.variables import BY_NAME, bits_of
from tests.procedure.simulator import NoEngine

CONFIG = RunConfig(model="m", n_ctx=4096)


def pairs(*cache_types: str) -> tuple[str, ...]:
    class Fork(NoEngine):
        def abilities(self) -> Abilities:
            return Abilities(frozenset(), cache_types=cache_types)

    engine: Any = Fork()
    return Situation.kv_pairs(SimpleNamespace(engine=engine))  # type: ignore[arg-type]


def test_a_forks_types_are_offered_after_the_ladder() -> None:
    assert pairs("f16", "q8_0", "turbo3", "kvq5") == (*pairs(), "turbo3/turbo3", "kvq5/kvq5")
    assert pairs("f32", "f16", "bf16", "iq4_nl") == pairs()


@pytest.mark.parametrize("text", ["turbo3", "q8_0/turbo3", "kvq5/kvq5", "q8_0/kvq5", "kvq5/q8_0"])
def test_a_forks_types_may_be_typed(text: str) -> None:
    config = BY_NAME["kv-types"].change(CONFIG, text)
    assert config.kv_types == (text if "/" in text else f"{text}/{text}")


def test_keys_below_values_are_refused_where_both_are_known() -> None:
    for text in ("q4_0/q8_0", "turbo3/q8_0"):
        with pytest.raises(InputError, match="keys below values"):
            BY_NAME["kv-types"].change(CONFIG, text)


@pytest.mark.parametrize(
    ("name", "bits"),
    [("f32", 32), ("bf16", 16), ("q8_0", 8.5), ("q4_0", 4.5), ("q6_0", 6.5), ("fp8_e4m3", 8), ("kvq5", 16)],
)
def test_bits_of_types(name: str, bits: float) -> None:
    assert bits_of(name) == bits
