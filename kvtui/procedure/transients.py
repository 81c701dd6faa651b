"""Step 5: what the failure calls for, one variable at a time; simultaneous requests where they were asked for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from kvtui.core.config import RunConfig
from kvtui.core.units import tokens
from kvtui.procedure.baseline import task_probes
from kvtui.procedure.diagnosis import case_of, failures_at, has_run, next_goal, reaches
from kvtui.procedure.ending import end
from kvtui.procedure.rules import CHANGES, will_not_help
from kvtui.procedure.rules.offload import OFFLOAD
from kvtui.procedure.rules.rule import Case, Rule, meaningful
from kvtui.procedure.rules.transient import SLOTS
from kvtui.procedure.rules.types import EQUAL_PAIR
from kvtui.procedure.situation import Action, Launch, Offer, ProbePlan, Situation
from kvtui.procedure.stages import climbed, depth_of, highest_stable, holds, preference, why_not
from kvtui.procedure.variables import BY_NAME
from kvtui.session.events import Decided
from kvtui.session.state import RunRecord


def subject(variable: str, config: RunConfig) -> str:
    """One variable, and the configuration that it is tried in."""
    value = BY_NAME[variable].value(config)
    return f"{variable}:{value}@{config.n_ctx}:{config.kv_types}:{config.n_ubatch}"


def next_action(sit: Situation) -> Action:
    """Weigh, climb, cure; then simultaneous requests, the measured reserve and the proof; then the end of the step."""
    best = highest_stable(sit)
    for find in (_weigh, _climb, _cure, _offload, _concurrency, _reserve, _prove):
        action = find(sit, best)
        if action is not None:
            return action
    return end(sit, best)


def _here(sit: Situation, best: RunRecord | None) -> list[RunRecord]:
    """The stable single-sequence runs at the best context, the preferred one first."""
    if best is None:
        return []
    same = [
        r
        for r in climbed(sit)
        if r.config.n_ctx == best.config.n_ctx and r.config.n_parallel == 1 and holds(sit, r)
    ]
    return sorted(same, key=lambda r: preference(sit, r), reverse=True)


def _weigh(sit: Situation, best: RunRecord | None) -> Action | None:
    """A mixed pair that holds and is slow: its equal pair at the same context."""
    for run in _here(sit, best):
        case = case_of(sit, run)
        if EQUAL_PAIR.holds(case):
            found = _pull(EQUAL_PAIR, case)
            if found is not None:
                return found
    return None


def _climb(sit: Situation, best: RunRecord | None) -> Action | None:
    """The next context with a configuration that holds at the best one."""
    goal = next_goal(sit, best)
    if goal is None:
        return None
    for run in _here(sit, best):
        config = replace(run.config, n_ctx=goal)
        name = subject("context", config)
        if has_run(sit, config) or sit.skipped(name) is not None or why_not(sit, config) is not None:
            continue
        return sit.launch(
            5,
            "transient",
            name,
            config,
            ProbePlan(deep=depth_of(sit, goal)),
            title=f"On to {tokens(goal)} with what helped",
            why=f"{tokens(run.config.n_ctx)} holds with it, so the next stage is worth trying",
            variable="context",
            risk="memory grows with every token of context; speed falls with depth",
            against=run,
        )
    return None


def cases(sit: Situation, best: RunRecord | None) -> Iterator[Case]:
    """What is to be worked on: runs that failed at the goal, attempts that failed on the way, the goal out of reach."""
    goal = next_goal(sit, best)
    if goal is None:
        return
    for run in failures_at(sit, goal):
        yield case_of(sit, run)
    base = best or _last_of_step_three(sit)
    if base is None or failures_at(sit, goal):
        return
    for run in failures_at(sit, base.config.n_ctx):
        yield replace(case_of(sit, run), goal=goal)
    for run in _here(sit, best) or [base]:
        yield case_of(sit, run, goal)


def _last_of_step_three(sit: Situation) -> RunRecord | None:
    good = [r for r in sit.state.runs if r.counts and r.purpose in ("quantized", "baseline")]
    return good[-1] if good else None


def _cure(sit: Situation, best: RunRecord | None) -> Action | None:
    for case in cases(sit, best):
        for rule in CHANGES:
            found = _pull(rule, case) if rule.holds(case) else None
            if found is not None:
                return found
    return None


def _offload(sit: Situation, best: RunRecord | None) -> Action | None:
    """Leaving the GPU: run where the preset puts capacity above latency, else named for an operator who insists."""
    for case in cases(sit, best):
        for rule in OFFLOAD:
            found = _pull(rule, case) if rule.kind == "change" and rule.holds(case) else None
            if found is None:
                continue
            if sit.plan.offload == "run":
                return found
            if not any(sit.declined(d.subject) for d in _about(sit, rule)):
                return Offer.of(found, f"Leave out {rule.label}: {tokens(case.goal)} would cost decode speed")
    return None


def _about(sit: Situation, rule: Rule) -> list[Decided]:
    return [d for d in sit.state.decided if d.subject.startswith(f"{rule.variable}:")]


def _pull(rule: Rule, case: Case) -> Launch | None:
    """The first configuration of `rule` that was not tried, is not refused, fits, and brings the goal into reach."""
    sit = case.sit
    for config in rule.values(case):
        usable = (
            not has_run(sit, config)
            and sit.skipped(subject(rule.variable, config)) is None
            and why_not(sit, config) is None
            and (not case.beyond or reaches(sit, config, case.goal))
        )
        if usable:
            return _launch(rule, case, config)
    return None


def _launch(rule: Rule, case: Case, config: RunConfig) -> Launch:
    sit = case.sit
    lossy = rule.lossy or rule.variable in ("gpu-layers", "cpu-moe")
    reach = f"; {tokens(case.goal)} comes into reach with it" if case.beyond else ""
    return sit.launch(
        5,
        "transient",
        subject(rule.variable, config),
        config,
        ProbePlan(
            deep=depth_of(sit, config.n_ctx), tasks=task_probes(sit, config.n_ctx).tasks if lossy else ()
        ),
        title=f"{tokens(config.n_ctx)} again with {rule.label} {rule.direction}",
        why=rule.text(case) + reach,
        variable=rule.variable,
        speed=rule.speed,
        risk=rule.risk,
        not_this=will_not_help(case),
        against=case.run,
        rule=rule.id,
        source=rule.source,
    )


def _concurrency(sit: Situation, best: RunRecord | None) -> Action | None:
    """As many requests at the same time as the preset asks for, then fewer: slots before anything else."""
    here = _here(sit, best)
    wanted = sit.plan.n_parallel
    while here and wanted > 1 and meaningful(case_of(sit, here[0]), "slots"):
        config = replace(here[0].config, n_parallel=wanted, kv_unified=sit.plan.kv_unified)
        name = subject("slots", config)
        run = sit.tried(name)
        if run is None and sit.skipped(name) is None and why_not(sit, config) is None:
            return _simultaneous(sit, here[0], config, name)
        if run is not None and sit.stable(run).ok:
            return None
        wanted //= 2
    return None


def _simultaneous(sit: Situation, single: RunRecord, config: RunConfig, name: str) -> Launch:
    failed = next((r for r in reversed(sit.runs("concurrency")) if not sit.stable(r).ok), None)
    why = "one request holds; slots divide the context and multiply per-sequence memory"
    share = config.n_ctx if config.kv_unified else config.n_ctx // config.n_parallel
    return sit.launch(
        5,
        "concurrency",
        name,
        config,
        ProbePlan(concurrency=config.n_parallel, deep=depth_of(sit, share)),
        title=f"{config.n_parallel} requests at the same time",
        why=why if failed is None else SLOTS.why,
        variable="slots",
        risk="each slot gets its share of the context",
        not_this=() if failed is None else will_not_help(case_of(sit, failed)),
        against=single,
        rule="" if failed is None else SLOTS.id,
        source=SLOTS.source,
    )


def _reserve(sit: Situation, best: RunRecord | None) -> Action | None:
    """Measure what a smaller micro-batch would give back, where the preset always wants to know."""
    if best is None or sit.plan.transients != "always":
        return None
    half = best.config.n_ubatch // 2
    name = f"reserve:{half}@{best.config.n_ctx}"
    done = any(r.subject.startswith("reserve:") for r in sit.runs("transient"))
    if (
        done
        or half < 32
        or sit.skipped(name) is not None
        or not meaningful(case_of(sit, best), "micro-batch")
    ):
        return None
    return sit.launch(
        5,
        "transient",
        name,
        replace(best.config, n_ubatch=half),
        ProbePlan(deep=depth_of(sit, best.config.n_ctx // best.config.n_parallel)),
        title="What a smaller micro-batch would give back",
        why="nothing failed; the preset measures this reserve so that its price is known before it is needed",
        variable="micro-batch",
        speed="slower prefill",
        risk="slower prefill",
        not_this=("KV types: memory is not what limits this context",),
        against=best,
    )


def _prove(sit: Situation, best: RunRecord | None) -> Action | None:
    """The chosen configuration, filled again and again: an allocation that holds once may still grow."""
    requests = sit.plan.stability_requests
    if best is None or not requests:
        return None
    name = f"stability:{best.config.n_ctx}:{best.config.kv_types}:{best.config.n_ubatch}:{best.config.n_parallel}"
    proven = any(r.config == best.config for r in sit.runs("stability"))
    if proven or sit.skipped(name) is not None:
        return None
    return sit.launch(
        5,
        "stability",
        name,
        best.config,
        ProbePlan(stability=requests),
        title=f"Fill {tokens(best.config.n_ctx)} to 95 %, {requests} times",
        why="an allocation that holds once may still grow: memory must stay where it is, and the margin must hold",
        risk="the time of as many full prompts",
        against=best,
        source="llama.cpp #23446, #23620 (memory that ratchets up with every long turn)",
    )
