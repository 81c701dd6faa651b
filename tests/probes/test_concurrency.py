"""Concurrency: the requests are really simultaneous, and every way of failing is told apart."""

from __future__ import annotations

from dataclasses import dataclass
from threading import Barrier, Event, Lock, Semaphore
from time import sleep
from typing import Any

import pytest

from kvtui.core.errors import Cancelled, EngineGone, RequestError
from kvtui.probes.asking import Completion
from kvtui.probes.concurrency import measure_concurrency, measure_full_pool
from kvtui.probes.prompt import raw_style
from tests.probes.fake import DECODE_TPS, FakeEngine


def test_all_requests_are_in_work_at_the_same_moment() -> None:
    meeting = Barrier(4)
    ask = FakeEngine(before_answer=lambda: meeting.wait(10) and None)
    result = measure_concurrency(ask, raw_style(ask), 4, 400, 16)
    assert (result.requested, result.depth, result.failed, result.errors) == (4, 400, 0, ())
    assert result.decode_tps == (DECODE_TPS,) * 4
    assert {len(r.prompt) for r in ask.requests} == {400}
    assert len({r.prompt[1] for r in ask.requests}) == 4


def test_a_refused_request_is_a_failure_with_its_reason() -> None:
    left = iter([None, RequestError("Context size has been exceeded."), None])

    def fail_once() -> None:
        error = next(left)
        if error is not None:
            raise error

    ask = FakeEngine(before_answer=fail_once)
    result = measure_concurrency(ask, raw_style(ask), 3, 200, 16)
    assert (result.failed, result.errors, len(result.decode_tps)) == (
        1,
        ("Context size has been exceeded.",),
        2,
    )


def test_an_answer_cut_short_by_a_full_pool_is_a_failure() -> None:
    ask = FakeEngine(slot=210)
    result = measure_concurrency(ask, raw_style(ask), 2, 200, 16)
    assert (result.failed, result.errors) == (2, ("ended after 9 of 16 tokens",) * 2)


@pytest.mark.parametrize("error", [EngineGone("the connection broke"), Cancelled()])
def test_the_end_of_the_engine_or_of_the_work_reaches_the_caller(error: Exception) -> None:
    def fail() -> None:
        raise error

    ask = FakeEngine(before_answer=fail)
    with pytest.raises(type(error)):
        measure_concurrency(ask, raw_style(ask), 3, 200, 16)
    assert len(ask.requests) == 3


def test_cancelling_before_the_start_sends_nothing() -> None:
    stopped = Event()
    stopped.set()
    ask = FakeEngine()
    with pytest.raises(Cancelled):
        measure_concurrency(ask, raw_style(ask), 2, 200, 16, cancel=stopped)
    assert ask.requests == []


@dataclass
class Slots:
    """An engine with `slots` of them: a further request begins when one has ended."""

    engine: FakeEngine
    slots: int
    pool: int | None = None
    """Cells that all slots share; when all that are in work need more, each of them is broken off."""
    meeting: Barrier | None = None
    """No request ends before all have begun."""

    def __post_init__(self) -> None:
        self._free = Semaphore(self.slots)
        self._asked = 0
        self._lock = Lock()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.engine, name)

    def complete(self, prompt: list[int], n_predict: int, **more: Any) -> Completion:
        with self._free:
            with self._lock:
                self._asked += len(prompt) + n_predict
            answer = self.engine.complete(prompt, n_predict, **more)
            if self.meeting is not None and len(prompt) > 64:
                self.meeting.wait(10)
            sleep(0.05)
            if self.pool is not None and self._asked > self.pool and len(prompt) > 64:
                raise RequestError("Context size has been exceeded.")
            return answer


def test_who_waited_for_a_slot_is_counted() -> None:
    result = measure_concurrency(Slots(FakeEngine(), 1), raw_style(FakeEngine()), 3, 400, 16, lambda: 7)
    assert (result.queued, result.failed, result.memory_bytes) == (2, 0, 7)
    assert len(result.first_token_s) == 3
    ask = FakeEngine()
    begun = measure_concurrency(Slots(ask, 3, meeting=Barrier(3)), raw_style(ask), 3, 400, 16)
    assert (begun.queued, begun.memory_bytes) == (0, None)


def test_a_full_pool_breaks_all_and_the_engine_is_asked_again() -> None:
    ask = FakeEngine()
    result = measure_full_pool(Slots(ask, 2, 1000, Barrier(2)), raw_style(ask), 2, 1000, 64)
    assert (result.requested, result.depth, result.answer, result.pool) == (2, 468, 64, 1000)
    assert result.requested * (result.depth + result.answer) > result.pool > result.depth + result.answer
    assert (result.failed, set(result.errors)) == (2, {"Context size has been exceeded."})
    assert result.recovered
    fine = measure_full_pool(Slots(FakeEngine(), 2, 9000, Barrier(2)), raw_style(FakeEngine()), 2, 1000, 64)
    assert (fine.failed, fine.errors) == (0, ())
