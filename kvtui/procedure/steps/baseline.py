"""Step 2: the operator's own outputs at full-precision KV, to hold every later KV type against."""

from __future__ import annotations

from kvtui.core.config import RunConfig
from kvtui.probes.divergence import compare, summarise
from kvtui.probes.results import TaskResult
from kvtui.procedure.situation import Action, Close, ProbePlan, Situation
from kvtui.session.state import RunRecord

SMALLEST = 1024


def subject(context: int) -> str:
    """The baseline at one context."""
    return f"baseline:{context}"


def task_probes(sit: Situation, context: int) -> ProbePlan:
    """The task suite and one deep measurement that a run of `context` tokens can carry.

    Where the context is a stage of its own, the measurement goes as deep as the stage's would, and stands for it.
    """
    room = room_for_answers(sit)
    depths = tuple(d for d in sit.plan.baseline_depths if d + room <= context)
    deep = deepest_prompt(sit, context) if context in sit.plan.stages else max(depths, default=None)
    return ProbePlan(tasks=depths, deep=deep)


def deepest_prompt(sit: Situation, context: int) -> int:
    """The deepest prompt that leaves room for the answer in a context of that many tokens."""
    return max(64, context - sit.plan.decode_tokens - 48)


def room_for_answers(sit: Situation) -> int:
    """Tokens that must stay free behind the deepest prompt."""
    return max(sit.plan.decode_tokens, 160) + 16


def next_action(sit: Situation) -> Action:
    """Run it at the planned context; where f16 does not fit, at half of it, down to a floor."""
    context = sit.plan.baseline_context
    while True:
        name = subject(context)
        skipped = sit.skipped(name)
        run = sit.tried(name)
        if run is None and skipped is not None:
            return Close(2, "skipped", f"skipped by the operator: {skipped}; later runs have no baseline")
        if run is None and _beyond_the_card(sit, context) and context // 2 >= _smallest(sit):
            context //= 2
            continue
        if run is None:
            return _propose(sit, context)
        if run.outcome == "ok":
            return Close(2, "passed", summary(run))
        smaller = context // 2
        no_memory = run.failure in ("kv-oom", "compute-oom", "prefill-oom")
        if not no_memory or smaller < _smallest(sit):
            return Close(2, "failed", run.reason)
        context = smaller


def _smallest(sit: Situation) -> int:
    return max(SMALLEST, sit.plan.floor_context // 2)


def _beyond_the_card(sit: Situation, context: int) -> bool:
    """True when the forecast, from what the floor measured, does not even fit without a margin."""
    device = sit.state.started.device
    forecast = sit.oracle.forecast(sit.state, _config(sit, context))
    if forecast.short_bytes:
        return True
    total = forecast.total_bytes
    return device.kind != "host" and total is not None and total > device.total_bytes


def _config(sit: Situation, context: int) -> RunConfig:
    type_k, type_v = sit.full_precision
    return sit.base(n_ctx=context, type_k=type_k, type_v=type_v, flash_attn="auto", n_parallel=1)


def _propose(sit: Situation, context: int) -> Action:
    floor = sit.tried("floor")
    proven_on = (
        floor is not None and floor.facts.main is not None and floor.facts.main.flash_attn == "enabled"
    )
    config = _config(sit, context)
    note = "" if proven_on or floor is None else "; flash attention is off on this device, so it stays off"
    return sit.launch(
        2,
        "baseline",
        subject(context),
        config,
        task_probes(sit, context),
        title=f"Baseline: your tasks at f16 KV, {context:,} tokens",
        why="outputs at full precision are what quantized KV is held against; a task that fails here is a matter of "
        f"model or template{note}",
        variable="context",
    )


def failed(tasks: tuple[TaskResult, ...]) -> tuple[str, ...]:
    """The tasks of a run that did not pass, as task@depth."""
    return tuple(f"{t.task}@{t.depth}" for t in tasks if t.graded and not t.passed)


def summary(run: RunRecord) -> str:
    """One line for the checklist."""
    bad = failed(run.tasks)
    graded = [t for t in run.tasks if t.graded]
    parts = [f"{len(run.tasks)} outputs kept, {sum(t.passed for t in graded)} of {len(graded)} tasks pass"]
    if bad:
        parts.append(f"not blamed on KV later: {', '.join(bad)}")
    differing = summarise(compare(run.tasks, run.tasks, run.repeated)).not_repeated
    if differing:
        parts.append(f"do not repeat, nothing is concluded from them: {', '.join(differing)}")
    return "; ".join(parts)
