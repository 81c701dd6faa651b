"""What is worked towards: the largest context first, the least change that fits, and the order of what is changed."""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby

from kvtui.procedure.rules.rule import Case
from kvtui.procedure.steps.targets import combinations, goals, targets
from kvtui.session.state import RunRecord, SessionState, StepState
from tests.procedure.outcome import VLLM_TRAITS, Card
from tests.procedure.test_rules import BASE, case, facts, run, speed

STAGES = (32768, 65536, 98304, 131072)


def at(mine: RunRecord, *others: RunRecord, card: Card | None = None, **more: object) -> Case:
    """A case in step 5 whose step 3 accepted the types of `mine`."""
    given = case(mine=mine, before=others, card=card, **more)  # type: ignore[arg-type]
    quantized = run(0, mine.config, "quantized")
    steps = tuple(StepState(n, started=True, outcome="passed" if n < 5 else None) for n in range(1, 6))
    state: SessionState = replace(given.sit.state, steps=steps, runs=(quantized, *given.sit.state.runs))
    plan = replace(given.sit.plan, stages=STAGES, target_context=131072)
    return replace(given, sit=replace(given.sit, state=state, plan=plan))


def test_the_largest_context_that_fits_is_the_first_target() -> None:
    given = at(run(2, speeds=(speed(50.0, 32000),)))
    found = [c.n_ctx for c in targets(given.sit, given.run, given.run, offload=False)]
    assert found == sorted(found, reverse=True)
    assert found[-1] == 65536


def test_types_are_kept_as_long_as_transient_memory_makes_the_room() -> None:
    given = at(run(2))
    tried = list(combinations(given.sit, given.run, 65536, offload=False))
    pairs = [pair for pair, _ in groupby(c.kv_types for c in tried)]
    assert pairs == ["q8_0/q8_0", "q8_0/q4_0", "q4_0/q4_0"]
    assert [c.n_ubatch for c in tried[:4]] == [512, 256, 128, 64]
    assert all(c.n_gpu_layers == 999 for c in tried)


def test_leaving_the_gpu_is_tried_last_and_only_where_it_may_be() -> None:
    given = at(run(2))
    layers = [
        n for n, _ in groupby(c.n_gpu_layers for c in combinations(given.sit, given.run, 65536, offload=True))
    ]
    assert layers[0] == 999
    assert layers[1:] == sorted((n for n in layers[1:] if n is not None), reverse=True)


def test_batched_tokens_go_before_graph_capture_where_there_is_no_micro_batch() -> None:
    fp8 = replace(BASE, type_k="fp8", type_v="fp8", flash_attn="auto", n_ubatch=2048)
    given = at(run(2, fp8), traits=VLLM_TRAITS)
    tried = [(c.n_batch, c.enforce_eager) for c in combinations(given.sit, given.run, 65536, offload=False)]
    assert tried[:4] == [(2048, False), (1024, False), (512, False), (256, False)]
    assert all(eager for _, eager in tried[4:])
    assert all(c.n_ubatch == c.n_batch for c in targets(given.sit, given.run, given.run, offload=False))


def test_a_pair_that_this_build_computes_on_the_cpu_is_no_target() -> None:
    given = at(run(2, facts=facts(build="9500")))
    pairs = {c.kv_types for c in combinations(given.sit, given.run, 65536, offload=False)}
    assert pairs == {"q8_0/q8_0", "q4_0/q4_0"}


def test_no_context_above_one_that_something_else_than_memory_ended() -> None:
    best = run(2)
    crashed = run(3, replace(BASE, n_ctx=98304), "transient", outcome="failed", failure="crash")
    given = at(best, crashed)
    assert goals(given.sit, best) == [65536]
    full = run(3, replace(BASE, n_ctx=98304), "transient", outcome="failed", failure="kv-oom")
    assert goals(at(best, full).sit, best) == [65536, 98304, 131072]


def test_what_was_refuted_on_the_way_is_no_target_again() -> None:
    best = run(2)
    full = run(3, replace(BASE, n_ctx=65536), "transient", outcome="failed", failure="kv-oom")
    given = at(best, full)
    found = list(targets(given.sit, best, best, offload=False))
    assert found
    assert all(replace(c, n_ctx=65536) != full.config for c in found)
