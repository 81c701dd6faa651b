"""Step 5: what the failure calls for, one variable at a time; simultaneous requests where they were asked for."""

from __future__ import annotations

from dataclasses import dataclass, replace

from kvtui.core.config import RunConfig
from kvtui.core.units import signed_size, tokens
from kvtui.procedure.baseline import task_probes
from kvtui.procedure.levers import LEVERS, WILL_NOT_HELP, Cause, Lever, cause_of
from kvtui.procedure.situation import Action, Close, Launch, ProbePlan, Situation
from kvtui.procedure.stages import (
    climbed,
    depth_of,
    first_trouble,
    highest_stable,
    over_budget,
    stages,
    why_not,
)
from kvtui.procedure.variables import BY_NAME
from kvtui.session.records import Recommendation
from kvtui.session.state import RunRecord


def subject(variable: str, value: str, context: int) -> str:
    """One variable at one value and context."""
    return f"{variable}:{value}@{context}"


def next_action(sit: Situation) -> Action:
    """Cure the trouble that ended the climb; without one, requests in parallel and the measured reserve."""
    attempts = _attempts(sit)
    if attempts and sit.stable(attempts[-1]).ok:
        onward = _climb_on(sit, attempts[-1])
        if onward is not None:
            return onward
    trouble = _trouble(sit)
    cure = _cure(sit, trouble) if trouble is not None else None
    if cure is not None:
        return cure
    best = highest_stable(sit)
    further = (_concurrency(sit, best) or _reserve(sit, best)) if best is not None else None
    if further is not None:
        return further
    if trouble is not None:
        return _give_up(sit, trouble)
    return (
        _nothing_to_do(sit) if best is not None else Close(5, "skipped", "no stage holds: nothing to work on")
    )


def trouble_cause(sit: Situation, run: RunRecord) -> Cause:
    """What a run that does not hold suffers from."""
    found = sit.stable(run)
    if found.trouble == "run" or found.trouble is None:
        return cause_of(run.failure)
    return found.trouble


def _attempts(sit: Situation) -> tuple[RunRecord, ...]:
    return tuple(r for r in sit.runs("transient") if r.step == 5 and not r.subject.startswith("reserve:"))


@dataclass(frozen=True, slots=True)
class _Trouble:
    """`config` does not hold because of `cause`, or (with `beyond`) holds but leaves the stage `beyond` out of reach.

    `run` is the run that showed it.
    """

    config: RunConfig
    cause: Cause
    run: RunRecord
    beyond: int | None = None


def _trouble(sit: Situation) -> _Trouble | None:
    """What to work on now: the latest attempt of this step, else where step 4 ended."""
    attempts = _attempts(sit)
    run = attempts[-1] if attempts else first_trouble(sit)
    if run is not None and not sit.stable(run).ok:
        return _Trouble(run.config, trouble_cause(sit, run), run)
    best = run or highest_stable(sit) or _last_of_step_three(sit)
    if best is None:
        return None
    beyond = _next_stage(sit, best)
    return _Trouble(best.config, "kv", best, beyond) if beyond is not None else None


def _last_of_step_three(sit: Situation) -> RunRecord | None:
    good = [r for r in sit.state.runs if r.counts and r.purpose in ("quantized", "baseline")]
    return good[-1] if good else None


def _next_stage(sit: Situation, run: RunRecord) -> int | None:
    """The stage above `run` that only memory keeps out of reach."""
    trained = sit.oracle.header.n_ctx_train
    for context in stages(sit):
        beyond_training = trained is not None and context > trained
        if context <= run.config.n_ctx or beyond_training:
            continue
        if over_budget(sit, replace(run.config, n_ctx=context)) is not None:
            return context
    return None


def _cure(sit: Situation, trouble: _Trouble) -> Action | None:
    for lever in LEVERS:
        found = _pull(sit, lever, trouble)
        if found is not None:
            return found
    return None


def _pull(sit: Situation, lever: Lever, trouble: _Trouble) -> Launch | None:
    if trouble.cause not in lever.cures:
        return None
    proposed = lever.pull(trouble.config)
    while proposed is not None:
        name = subject(lever.variable, _value(lever, proposed), proposed.n_ctx)
        reachable = (
            trouble.beyond is None or over_budget(sit, replace(proposed, n_ctx=trouble.beyond)) is None
        )
        if (
            reachable
            and sit.tried(name) is None
            and sit.skipped(name) is None
            and why_not(sit, proposed) is None
        ):
            return _launch(sit, lever, name, proposed, trouble)
        proposed = lever.pull(proposed)
    return None


def _value(lever: Lever, config: RunConfig) -> str:
    return BY_NAME[lever.variable].value(config)


def _launch(sit: Situation, lever: Lever, name: str, config: RunConfig, trouble: _Trouble) -> Launch:
    tasks = task_probes(sit, config.n_ctx).tasks if lever.lossy else ()
    reach = f"; {tokens(trouble.beyond)} comes into reach with it" if trouble.beyond is not None else ""
    return sit.launch(
        5,
        "transient",
        name,
        config,
        ProbePlan(deep=depth_of(sit, config.n_ctx), tasks=tasks),
        title=f"{tokens(config.n_ctx)} again with another {_label(lever)}",
        why=lever.why + reach,
        variable=lever.variable,
        risk=lever.risk,
        not_this=WILL_NOT_HELP[trouble.cause],
        against=trouble.run,
    )


def _label(lever: Lever) -> str:
    return BY_NAME[lever.variable].label


def _climb_on(sit: Situation, run: RunRecord) -> Action | None:
    """A cure worked: the next stage above it, with the cured configuration."""
    for context in stages(sit):
        config = replace(run.config, n_ctx=context)
        name = subject("context", str(context), context)
        if context <= run.config.n_ctx or sit.tried(name) is not None or sit.skipped(name) is not None:
            continue
        if why_not(sit, config) is not None:
            continue
        return sit.launch(
            5,
            "transient",
            name,
            config,
            ProbePlan(deep=depth_of(sit, context)),
            title=f"On to {tokens(context)} with what helped",
            why=f"{tokens(run.config.n_ctx)} holds now, so the next stage is worth trying",
            variable="context",
            risk="memory grows with every token of context; speed falls with depth",
            against=run,
        )
    return None


_NOT_MEMORY: dict[Cause, str] = {
    "speed": "decode speed is what ends the climb, and no memory lever raises it",
    "recall": "recall is what ends the climb, and no memory lever brings it back",
    "quality": "quality is what ends the climb, and no memory lever brings it back",
}


def _give_up(sit: Situation, trouble: _Trouble) -> Close:
    """The end of the step with trouble that nothing here cures."""
    wanted = tokens(trouble.beyond or trouble.config.n_ctx)
    best = highest_stable(sit)
    holds = f"{tokens(best.config.n_ctx)} is what holds" if best is not None else "no context holds"
    if trouble.cause in _NOT_MEMORY:
        measured = _measured(sit)
        text = "; ".join([f"{wanted}: {_NOT_MEMORY[trouble.cause]}", *measured])
        advice = _will_not_help(wanted, _NOT_MEMORY[trouble.cause], WILL_NOT_HELP[trouble.cause])
        return Close(5, "passed" if measured else "not-needed", text, advice)
    price = (
        "; CPU offload would make room at the price of decode speed"
        if trouble.cause in ("kv", "margin")
        else ""
    )
    solved = any(sit.stable(r).ok for r in _attempts(sit))
    text = f"nothing left to change for {wanted}: {holds}{price}"
    advice = _will_not_help(
        wanted, f"every lever for it was tried or cannot make the room; {holds}{price}", ()
    )
    return Close(5, "passed" if solved else "failed", text, advice)


def _will_not_help(wanted: str, why: str, not_this: tuple[str, ...]) -> Recommendation:
    return Recommendation(
        kind="will-not-help", title=f"Nothing here brings {wanted}", why=why, not_this=not_this
    )


def _concurrency(sit: Situation, best: RunRecord) -> Action | None:
    """As many requests at the same time as the preset asks for, then fewer."""
    wanted = sit.plan.n_parallel
    single = next((r for r in reversed(climbed(sit)) if r.config.n_parallel == 1 and sit.stable(r).ok), best)
    while wanted > 1:
        config = replace(single.config, n_parallel=wanted, kv_unified=sit.plan.kv_unified)
        name = subject("slots", str(wanted), config.n_ctx)
        run = sit.tried(name)
        if run is None and sit.skipped(name) is None and why_not(sit, config) is None:
            return sit.launch(
                5,
                "concurrency",
                name,
                config,
                ProbePlan(concurrency=wanted),
                title=f"{wanted} requests at the same time",
                why="one request holds; slots divide the context and multiply per-sequence memory",
                variable="slots",
                risk="each slot gets its share of the context",
                against=single,
            )
        if run is not None and sit.stable(run).ok:
            return None
        wanted //= 2
    return None


def _reserve(sit: Situation, best: RunRecord) -> Action | None:
    """Measure what a smaller micro-batch would give back, where the preset always wants to know."""
    if sit.plan.transients != "always":
        return None
    half = best.config.n_ubatch // 2
    name = f"reserve:{half}@{best.config.n_ctx}"
    done = any(r.subject.startswith("reserve:") for r in sit.runs("transient"))
    if done or half < 32 or sit.skipped(name) is not None:
        return None
    return sit.launch(
        5,
        "transient",
        name,
        replace(best.config, n_ubatch=half),
        ProbePlan(deep=depth_of(sit, best.config.n_ctx)),
        title="What a smaller micro-batch would give back",
        why="nothing failed; the preset measures this reserve so that its price is known before it is needed",
        variable="micro-batch",
        risk="slower prefill",
        not_this=("KV types: memory is not what limits this context",),
        against=best,
    )


def _nothing_to_do(sit: Situation) -> Close:
    measured = _measured(sit)
    if not measured:
        return Close(5, "not-needed", "nothing failed, so there is nothing to change")
    good = any(sit.stable(r).ok for r in _tried(sit))
    return Close(5, "passed" if good else "failed", "; ".join(measured))


def _tried(sit: Situation) -> tuple[RunRecord, ...]:
    return tuple(r for r in (*sit.runs("transient"), *sit.runs("concurrency")) if r.step == 5)


def _measured(sit: Situation) -> list[str]:
    """What the runs of this step showed, in words."""
    parts = []
    for run in _tried(sit):
        holds = sit.stable(run)
        if run.purpose == "concurrency":
            verdict = "hold" if holds.ok else f"do not hold: {holds.why}"
            parts.append(f"{run.config.n_parallel} requests at once {verdict}")
        elif run.subject.startswith("reserve:"):
            parts.append(_reserve_text(sit, run))
        elif holds.ok and run.change is not None:
            parts.append(f"{tokens(run.config.n_ctx)} holds with {run.change.option} {run.change.after}")
    return parts


def _reserve_text(sit: Situation, run: RunRecord) -> str:
    before = sit.state.run(run.change.against_run) if run.change else None
    if not run.counts or before is None:
        return f"micro-batch {run.config.n_ubatch}: {run.reason}"
    peaks = [r.memory.highest.engine_bytes for r in (before, run) if r.memory and r.memory.highest]
    known = [p for p in peaks if p is not None]
    freed = f"{signed_size(known[1] - known[0])} at the peak" if len(known) == 2 else "memory not measured"
    speeds = [r.speeds[-1].prompt_tps for r in (before, run) if r.speeds]
    rates = [s for s in speeds if s]
    price = f", prefill {rates[1] / rates[0] - 1:+.0%}" if len(rates) == 2 else ""
    return f"micro-batch {before.config.n_ubatch} to {run.config.n_ubatch}: {freed}{price}"
