"""Findings out of probes: each is there when its reason is, and none is without one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kvtui.core.findings import Finding
from kvtui.gpu.samples import Conditions
from kvtui.probes.results import ConcurrencyResult, FullPoolResult
from kvtui.procedure.findings.probes import probe_findings
from kvtui.procedure.findings.where import where_time_went
from kvtui.procedure.judge import judge
from kvtui.procedure.steps.baseline import summary
from kvtui.session.state import RunRecord
from tests.session import sample


def run(number: int) -> RunRecord:
    found = sample.state().run(number)
    assert found is not None
    return found


def found_in(record: RunRecord) -> dict[str, Finding]:
    return {finding.id: finding for finding in probe_findings(sample.state(), record)}


@pytest.mark.parametrize("number", [1, 2, 3, 4, 6])
def test_a_run_without_trouble_has_none(number: int) -> None:
    assert found_in(replace(run(number), repeated=run(number).tasks, prompts="chat")) == {}


def test_reasoning_that_ate_the_answer_is_named_as_such() -> None:
    base = run(2)
    eaten = replace(
        base.tasks[0], passed=False, ate_answer=True, why="reasoning took all 96 tokens, no answer began"
    )
    made = found_in(replace(base, tasks=(eaten, *base.tasks[1:])))
    assert list(made) == ["reasoning-ate-the-answer"]
    assert made["reasoning-ate-the-answer"].title == "Reasoning took all the room of 1 of 8 answers"
    assert eaten.timing is not None
    full = replace(eaten, timing=replace(eaten.timing, truncated=True))
    made = found_in(replace(base, tasks=(full, *base.tasks[1:])))
    assert made["reasoning-ate-the-answer"].title == "Reasoning took all the context of 1 of 8 answers"


def test_a_baseline_that_says_something_else_when_asked_again_says_so() -> None:
    base = run(2)
    other = replace(base.tasks[3], tokens=(1, 2, 3))
    made = found_in(replace(base, repeated=(*base.tasks[:3], other, *base.tasks[4:])))
    assert [e.text for e in made["baseline-not-repeatable"].evidence] == [f"{other.task}@{other.depth}"]


def test_a_template_that_was_refused_and_clocks_that_disagree() -> None:
    base = run(2)
    timings = tuple(replace(t, decode_s=3 * t.decode_s) for t in base.speeds[0].repeats)
    made = found_in(
        replace(
            base,
            prompts="raw",
            prompts_reason="no template",
            speeds=(replace(base.speeds[0], repeats=timings),),
        )
    )
    assert list(made) == ["template-refused", "clocks-disagree"]
    assert made["clocks-disagree"].evidence[0].text.startswith("at 12,288 tokens decode took 6.4")


def test_who_waited_and_what_a_full_pool_does() -> None:
    waiting = ConcurrencyResult(3, 512, 0, (), (9.5,), 4.0, first_token_s=(9.0, 1.0), queued=2)
    pool = FullPoolResult(2, 700, 64, 1024, 2, ("Context size has been exceeded.",), True, 4.0)
    made = found_in(replace(run(6), concurrency=(waiting,), full_pool=(pool,)))
    assert made["requests-queued"].title == "2 of 3 requests waited for another to end"
    assert made["requests-queued"].evidence[0].text == "first tokens after 1.0 s, 9.0 s"
    assert made["full-pool-breaks-others"].severity == "warning"
    dead = found_in(replace(run(6), full_pool=(replace(pool, recovered=False),)))
    assert dead["full-pool-breaks-others"].severity == "error"
    fine = replace(pool, failed=0, errors=())
    assert found_in(replace(run(6), concurrency=(replace(waiting, queued=0),), full_pool=(fine,))) == {}


def test_a_cliff_is_shown_with_where_the_time_went() -> None:
    slow = run(6)
    speeds = (replace(slow.speeds[0], decode_tps=3.0),)
    assert slow.memory is not None
    memory = replace(
        slow.memory, conditions=(Conditions(9, gpu_util=12, pcie_rx=3_000_000_000, phase="decode"),)
    )
    cliff = found_in(replace(slow, speeds=speeds, memory=memory))["decode-cliff"]
    assert cliff.severity == "warning"
    assert "over the bus" in cliff.why
    assert [e.text for e in cliff.evidence][1:] == [
        "GPU busy 12 % of the time in decode",
        "3,000 MB/s to the GPU in decode",
    ]


@pytest.mark.parametrize(
    ("read", "place"),
    [
        (None, "unknown"),
        ({}, "unknown"),
        ({"others_cpu": 7.0}, "unknown"),
        ({"gpu_util": 97}, "gpu"),
        ({"gpu_util": 20}, "host"),
        ({"gpu_util": 20, "pcie_rx": 10_000_000}, "host"),
        ({"gpu_util": 97, "pcie_rx": 2_000_000_000}, "bus"),
        ({"gpu_util": 97, "throttled": (("thermal", 0.9),)}, "clocks"),
        ({"gpu_util": 97, "throttled": (("thermal", 0.2),)}, "gpu"),
        ({"gpu_util": 97, "throttled": (("power cap", 1.0),)}, "gpu"),
    ],
)
def test_the_place_is_what_the_readings_prove(read: dict[str, Any] | None, place: str) -> None:
    assert where_time_went(None if read is None else Conditions(5, **read)).place == place


def test_a_pool_that_was_filled_on_purpose_is_not_the_engines_trouble() -> None:
    base = run(6)
    logged = Finding("pool-exhausted", "warning", "The unified pool of cells ran full", "")
    filled = replace(
        base,
        facts=replace(base.facts, findings=(logged,)),
        full_pool=(FullPoolResult(2, 700, 64, 1024, 2, ("x",), True, 4.0),),
    )
    by_id = {f.id: f.severity for f in judge(sample.state(), filled, None).findings}
    assert (by_id["pool-exhausted"], by_id["full-pool-breaks-others"]) == ("info", "warning")
    by_id = {f.id: f.severity for f in judge(sample.state(), replace(filled, full_pool=()), None).findings}
    assert by_id["pool-exhausted"] == "warning"


def test_tasks_without_an_expectation_neither_pass_nor_fail() -> None:
    base = run(2)
    ungraded = replace(base.tasks[0], task="own", family="own", graded=False)
    assert replace(base, tasks=(*base.tasks, ungraded)).graded == base.tasks
    assert "7 of 8 tasks pass" in summary(replace(base, tasks=(*base.tasks, ungraded)))
