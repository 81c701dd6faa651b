"""Concurrency: the requests are really simultaneous, and every way of failing is told apart."""

from __future__ import annotations

from threading import Barrier, Event

import pytest

from kvtui.core.errors import Cancelled, EngineGone, RequestError
from kvtui.probes.concurrency import measure_concurrency
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
