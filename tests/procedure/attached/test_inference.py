"""KV types inferred from memory: conclusions only where they are certain, and against the real engine."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvtui.core.units import GIB, MIB
from kvtui.model.geometry import geometry
from kvtui.model.header import read_header
from kvtui.model.request import ContextRequest
from kvtui.procedure.attached.inference import (
    USUAL,
    Candidate,
    Range,
    candidates,
    compute_bytes,
    gpu_rest,
    host_rest,
    infer,
    written,
)


def candidate(k: str, v: str, kv_mib: int, spread_mib: int = 100) -> Candidate:
    return Candidate((k, v), kv_mib * MIB, Range((1000 + kv_mib) * MIB, (1000 + kv_mib + spread_mib) * MIB))


WIDE_APART = (candidate("q8_0", "q8_0", 2448), candidate("f16", "f16", 4608), candidate("q4_0", "q4_0", 1296))
CLOSE = (candidate("q8_0", "q8_0", 120), candidate("f16", "f16", 220), candidate("q5_0", "q5_0", 80))


@pytest.mark.parametrize(
    ("measured", "types"),
    [
        (3500, "q8_0/q8_0"),
        (3448, "q8_0/q8_0"),
        (3548, "q8_0/q8_0"),
        (3447, None),
        (5650, "f16/f16 or bf16/bf16"),
        (2300, "q4_0/q4_0 or iq4_nl/iq4_nl"),
        (4500, None),
        (0, None),
    ],
)
def test_a_conclusion_needs_exactly_one_size_that_fits(measured: int, types: str | None) -> None:
    found = infer(measured * MIB, "gpu", WIDE_APART)
    assert found.types == types
    assert found.measured_bytes == measured * MIB
    assert found.tolerance_bytes == 50 * MIB


def test_the_runner_up_is_named_with_its_distance() -> None:
    found = infer(3500 * MIB, "gpu", WIDE_APART)
    assert (found.runner_up, found.runner_up_away_bytes) == ("q4_0/q4_0 or iq4_nl/iq4_nl", 1104 * MIB)
    assert found.expected_bytes == 3498 * MIB
    assert "3.42 GiB measured" in found.why


def test_candidates_closer_than_the_tolerance_give_no_conclusion_but_what_is_excluded() -> None:
    found = infer(1150 * MIB, "host", CLOSE)
    assert found.types is None
    assert found.runner_up_away_bytes == 0
    assert "possible with" in found.why
    assert "not possible: f16/f16 or bf16/bf16" in found.why


def test_pairs_of_the_same_size_are_one_conclusion() -> None:
    both = (candidate("f16", "f16", 500), candidate("bf16", "bf16", 500), candidate("f32", "f32", 1000))
    assert infer(1550 * MIB, "gpu", both).types == "f16/f16 or bf16/bf16"


def test_nothing_to_compare_with() -> None:
    found = infer(GIB, "gpu", ())
    assert (found.types, found.runner_up) == (None, None)


def test_written() -> None:
    assert written(("q8_0", "q4_0")) == "q8_0/q4_0"
    assert written(("f16", "f16")) == "f16/f16 or bf16/bf16"


class TestRanges:
    def test_each_pair_has_its_own_exact_kv(self, tiny_model: Path) -> None:
        header = read_header(tiny_model)
        request = ContextRequest(ctx=4096, type_k="q5_0", type_v="q4_0", flash_attn="on")
        found = candidates(header, geometry(header), request, Range(10, 20), "gpu")
        assert [c.pair for c in found] == [("q5_0", "q4_0"), *USUAL]
        by_pair = {c.pair: c for c in found}
        width, layers = 64, 2
        assert by_pair["f16", "f16"].kv_bytes == 4096 * layers * width * 2 * 2
        assert by_pair["f16", "f16"].total.low == 10 + by_pair["f16", "f16"].kv_bytes
        copied = by_pair["q8_0", "q8_0"].total.high - by_pair["q8_0", "q8_0"].total.low
        assert (
            copied - (by_pair["f16", "f16"].total.high - by_pair["f16", "f16"].total.low)
            == 4096 * 2 * width * 2
        )

    def test_scores_of_all_heads_count_where_flash_attention_may_be_off(self, tiny_model: Path) -> None:
        header = read_header(tiny_model)
        on = ContextRequest(ctx=4096, flash_attn="on")
        auto = ContextRequest(ctx=4096)
        with_fa, without = (compute_bytes(header, r, 4096, "gpu", has_worked=True) for r in (on, auto))
        assert without - with_fa == 4096 * 512 * 2 * 4

    def test_a_host_that_only_warmed_up_touched_little(self, tiny_model: Path) -> None:
        header, request = read_header(tiny_model), ContextRequest(ctx=4096)
        idle, used = (compute_bytes(header, request, 4096, "host", has_worked=w) for w in (False, True))
        assert idle * 20 < used

    def test_saved_prompts_and_devices_widen_the_range(self, tiny_model: Path) -> None:
        header = read_header(tiny_model)
        idle, worked = (host_rest(header, repack=True, prompt_cache_bytes=n) for n in (0, 8 * GIB))
        assert worked.high - idle.high == 8 * GIB
        assert worked.low == idle.low
        assert gpu_rest(2).high == 2 * gpu_rest(1).high
