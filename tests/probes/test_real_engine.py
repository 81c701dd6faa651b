"""What only the real engine can prove: exact depths, one prefill per depth, the same outputs again, real slots."""

from __future__ import annotations

import pytest

from kvtui.core.errors import RequestError
from kvtui.probes.concurrency import measure_concurrency, measure_full_pool
from kvtui.probes.depth import depth_for, measure_depth
from kvtui.probes.divergence import compare, summarise
from kvtui.probes.prompt import chat_style, raw_style
from kvtui.probes.speed import measure_speed
from kvtui.probes.stability import measure_stability, stability_depth
from kvtui.probes.suite import TASKS, Suite
from kvtui.probes.tasks import run_tasks
from tests.probes.alone import measure_recall, task_depth
from tests.probes.conftest import POOL, SLOT, Counting
from tests.probes.fake import Watcher

pytestmark = pytest.mark.engine

POSITIONS = (0.02, 0.5, 0.98)


@pytest.mark.parametrize("depth", [100, 513, 1800])
def test_the_engine_counts_the_depth_that_was_asked_for(ask: Counting, depth: int) -> None:
    watcher = Watcher()
    result = measure_speed(ask, raw_style(ask), depth, 16, 2, progress=watcher)
    assert [(t.prompt_tokens, t.cached_tokens, t.generated_tokens) for t in result.repeats] == [
        (depth, 0, 16)
    ] * 2
    assert "prompt tokens" not in result.note
    assert result.prompt_tps
    assert result.decode_tps
    assert result.first_token_s
    watcher.check()


def test_a_chat_prompt_is_exact_too(ask: Counting) -> None:
    result = measure_speed(ask, chat_style(ask), 700, 8, 1)
    assert result.repeats[0].prompt_tokens == 700


@pytest.mark.parametrize("room", [400, 100, 0])
def test_speed_and_recall_cost_one_prefill_even_with_a_sliding_window(ask: Counting, room: int) -> None:
    style = raw_style(ask)
    depth = depth_for(ask, style, SLOT - room, 24)
    speed, recall = measure_depth(ask, style, depth, POSITIONS, n_decode=24, repeats=2)
    assert "prompt tokens" not in speed.note
    assert (speed.repeats[0].prompt_tokens, recall.depth) == (depth, depth)
    assert not any(answer.truncated for answer in ask.answers)
    assert ask.processed < depth + 4 * 60
    assert len(recall.needles) == 3


def test_a_question_asked_alone_costs_one_prefill_as_well(ask: Counting) -> None:
    measure_recall(ask, raw_style(ask), 900, POSITIONS)
    assert ask.processed < 900 + 3 * 60


def test_a_haystack_beyond_the_slot_is_refused_by_the_engine(ask: Counting) -> None:
    with pytest.raises(RequestError, match="exceed"):
        measure_recall(ask, raw_style(ask), SLOT + 10, POSITIONS)


def test_tasks_stand_at_exact_depths_and_say_the_same_again(ask: Counting) -> None:
    style = raw_style(ask)
    first = run_tasks(ask, style, Suite((900, task_depth(SLOT, style))))
    assert [r.error for r in first] == [""] * 8
    assert [r.timing.prompt_tokens for r in first if r.timing] == [r.depth for r in first]
    assert all(r.tokens for r in first)
    again = run_tasks(ask, style, Suite((900, task_depth(SLOT, style)), fresh=True))
    compared = compare(first, again, again)
    assert [(d.first_token, d.top_agreement, d.repeats) for d in compared] == [(None, 1.0, True)] * 8
    assert [d.compared for d in compared] == [len(r.tokens) for r in first]
    assert all(d.shift is not None and d.shift < 0.01 for d in compared)
    assert summarise(compared).conclusion == "none"


def test_the_suite_costs_one_prefill_per_depth(ask: Counting) -> None:
    style = raw_style(ask)
    run_tasks(ask, style, Suite((1500,), seed=3))
    tails = (
        sum(a.timing.prompt_tokens for a in ask.answers[1:])
        - len(TASKS) * ask.answers[0].timing.prompt_tokens
    )
    assert ask.processed <= ask.answers[0].timing.prompt_tokens + tails + 8 * len(TASKS)


def test_as_many_requests_as_slots_at_once(ask: Counting) -> None:
    result = measure_concurrency(ask, raw_style(ask), 2, 800, 24)
    assert (result.failed, result.errors, len(result.decode_tps)) == (0, (), 2)
    assert sorted(a.timing.prompt_tokens for a in ask.answers) == [800, 800]


def test_more_than_a_slot_holds_fails_in_each(ask: Counting) -> None:
    result = measure_concurrency(ask, raw_style(ask), 2, SLOT - 10, 24)
    assert result.failed == 2
    assert all("of 24 tokens" in error for error in result.errors)
    result = measure_concurrency(ask, raw_style(ask), 2, SLOT + 10, 24)
    assert result.failed == 2
    assert all("exceed" in error for error in result.errors)


def test_a_full_pool_breaks_all_off_and_one_slot_too_few_makes_a_request_wait(shared_pool: Counting) -> None:
    ask, style = shared_pool, raw_style(shared_pool)
    full = measure_full_pool(ask, style, 2, POOL, 64)
    assert (full.failed, full.recovered) == (2, True)
    assert all("exceeded" in error for error in full.errors)
    assert measure_concurrency(ask, style, 2, 300, 128).queued == 0
    waiting = measure_concurrency(ask, style, 3, 300, 128)
    assert (waiting.failed, waiting.queued, len(waiting.first_token_s)) == (0, 1, 3)


def test_a_nearly_full_slot_again_and_again(ask: Counting) -> None:
    depth = stability_depth(SLOT, 32)
    result = measure_stability(ask, raw_style(ask), depth, 32, 2, lambda: 1)
    assert (result.failed, len(result.requests)) == (0, 2)
    assert [(t.prompt_tokens, t.cached_tokens) for r in result.requests if (t := r.timing)] == [
        (depth, 0)
    ] * 2
