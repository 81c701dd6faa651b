"""Step 5: what the failure calls for, one variable at a time; simultaneous requests where they were asked for."""

from __future__ import annotations

from dataclasses import replace

from kvtui.core.config import RunConfig
from kvtui.core.units import tokens
from kvtui.procedure.baseline import task_probes
from kvtui.procedure.diagnosis import case_of, failures_at, has_run, next_goal
from kvtui.procedure.ending import end
from kvtui.procedure.rules import CHANGES, will_not_help
from kvtui.procedure.rules.offload import OFFLOAD
from kvtui.procedure.rules.rule import Case, Rule, meaningful
from kvtui.procedure.rules.transient import SLOTS
from kvtui.procedure.rules.types import EQUAL_PAIR
from kvtui.procedure.situation import Action, Launch, Offer, ProbePlan, Situation
from kvtui.procedure.stages import (
    climbed,
    depth_of,
    highest_stable,
    holds,
    preference,
    proof_of,
    stage_config,
    why_not,
)
from kvtui.procedure.targets import curable, targets
from kvtui.procedure.variables import BY_NAME, VARIABLES, changed
from kvtui.session.state import RunRecord

OFF_GPU = ("gpu-layers:", "cpu-moe:")
_ORDER = [
    *dict.fromkeys(rule.variable for rule in CHANGES),
    *(v.name for v in VARIABLES if all(rule.variable != v.name for rule in CHANGES)),
]
"""Variables in the order in which they are changed: that of the rules."""
_OFFLOADED = sorted(_ORDER, key=lambda name: f"{name}:" not in OFF_GPU)
"""The order where leaving the GPU is what is decided about."""


def subject(variable: str, config: RunConfig) -> str:
    """One variable, and the configuration that it is tried in."""
    value = BY_NAME[variable].value(config)
    return f"{variable}:{value}@{config.n_ctx}:{config.kv_types}:{config.n_ubatch}"


def next_action(sit: Situation) -> Action:
    """Weigh, advance, name what leaves the GPU; then simultaneous requests, the measured reserve and the proof."""
    best = highest_stable(sit)
    for find in (_weigh, _advance, _offload, _concurrency, _reserve, _prove):
        action = find(sit, best)
        if action is not None:
            return action
    return end(sit, best)


def _here(sit: Situation, best: RunRecord | None) -> list[RunRecord]:
    """The stable single-sequence runs at the best context, the preferred one first; before any, the latest run that
    counts and that a cure may start from."""
    if best is None:
        purposes = ("quantized", "baseline", "transient")
        count = [r for r in sit.state.runs if r.counts and r.purpose in purposes]
        good = [r for r in count if sit.stable(r).ok] or [r for r in count if curable(sit, r)]
        if not good:
            return []
        best = max(good, key=lambda r: (r.config.kv_types == stage_config(sit, 0).kv_types, r.number))
    tried = {r.number: r for r in climbed(sit) if r.config.n_ctx == best.config.n_ctx and holds(sit, r)}
    single = [r for r in (tried | {best.number: best}).values() if r.config.n_parallel == 1]
    return sorted(single, key=lambda r: preference(sit, r), reverse=True)


def _weigh(sit: Situation, best: RunRecord | None) -> Action | None:
    """A mixed pair that holds and is slow: its equal pair at the same context."""
    for run in _here(sit, best):
        case = case_of(sit, run)
        if not EQUAL_PAIR.holds(case):
            continue
        for config in EQUAL_PAIR.values(case):
            if _open(sit, "kv-types", config):
                return _launch(case, config, "kv-types")
    return None


def _advance(sit: Situation, best: RunRecord | None) -> Action | None:
    """One variable towards the most wanted target that all on the GPU can reach."""
    return _towards(sit, best, offload=False)


def _offload(sit: Situation, best: RunRecord | None) -> Action | None:
    """Leaving the GPU: run where the preset puts capacity above latency, else named for an operator who insists."""
    launch = _towards(sit, best, offload=True)
    if launch is None or sit.plan.offload == "run":
        return launch
    if any(sit.declined(d.subject) for d in sit.state.decided if d.subject.startswith(OFF_GPU)):
        return None
    if not launch.subject.startswith(OFF_GPU):
        return launch if _left_gpu(sit) else None
    goal = tokens(next_goal(sit, best) or launch.config.n_ctx)
    return Offer.of(launch, f"Leave out fewer layers on the GPU: {goal} would cost decode speed")


def _left_gpu(sit: Situation) -> bool:
    """True when the operator insisted on leaving the GPU before."""
    return any(d.choice == "insist" and d.subject.startswith(OFF_GPU) for d in sit.state.decided)


def _towards(sit: Situation, best: RunRecord | None, *, offload: bool) -> Launch | None:
    here, goal = _here(sit, best), next_goal(sit, best)
    if not here or goal is None:
        return None
    for target in targets(sit, best, here[0], offload=offload):
        found = _step_at(sit, replace(target, n_ctx=goal)) or _step_from(
            sit, here, target, goal, _OFFLOADED if offload else _ORDER
        )
        if found is not None:
            return found
    return None


def _step_at(sit: Situation, wanted: RunConfig) -> Launch | None:
    """`wanted` against a run at its own context that did not hold, where one variable tells them apart."""
    for run in failures_at(sit, wanted.n_ctx):
        moving = _moving(sit, run, wanted)
        if len(moving) == 1 and curable(sit, run) and _open(sit, moving[0], wanted):
            return _launch(case_of(sit, run), wanted, moving[0])
    return None


def _step_from(
    sit: Situation, here: list[RunRecord], target: RunConfig, goal: int, order: list[str]
) -> Launch | None:
    """One variable from the run that is nearest to `target` and holds; the next context when nothing else differs."""
    for run in sorted(here, key=lambda r: len(_moving(sit, r, target))):
        moving = [name for name in _moving(sit, run, target) if name != "context"]
        onward = replace(target, n_ctx=goal)
        if not moving:
            if _open(sit, "context", onward) and why_not(sit, onward) is None:
                return _onward(sit, run, onward)
            continue
        for name in sorted(moving, key=order.index):
            fields = {f: getattr(target, f) for f in BY_NAME[name].fields}
            config = sit.engine.traits.tied(replace(run.config, **fields))
            if _open(sit, name, config) and why_not(sit, config) is None:
                return _launch(case_of(sit, run, target.n_ctx), config, name)
    return None


def _moving(sit: Situation, run: RunRecord, target: RunConfig) -> list[str]:
    """The variables in which `target` differs; flash attention does not where the engine's own probe said yes."""
    means = sit.engine.traits.variables
    names = [v.name for v in changed(run.config, target) if not means or v.name in means]
    return [n for n in names if n != "flash-attention" or run.config.flash_attn == "off"]


def _open(sit: Situation, variable: str, config: RunConfig) -> bool:
    """True when `config` was neither run nor skipped."""
    return not has_run(sit, config) and sit.skipped(subject(variable, config)) is None


def _onward(sit: Situation, run: RunRecord, config: RunConfig) -> Launch:
    return sit.launch(
        5,
        "transient",
        subject("context", config),
        config,
        ProbePlan(deep=depth_of(sit, config.n_ctx), stability=proof_of(sit, config)),
        title=f"On to {tokens(config.n_ctx)} with what helped",
        why=f"{tokens(run.config.n_ctx)} holds with it, so the next stage is worth trying",
        variable="context",
        risk="memory grows with every token of context; speed falls with depth",
        against=run,
    )


def _rule_of(case: Case, config: RunConfig, variable: str) -> Rule:
    """The rule that proposes `config`, one whose condition holds before others."""
    rules = [r for r in (*CHANGES, *OFFLOAD) if r.variable == variable]
    tied = case.sit.engine.traits.tied
    proposing = [r for r in rules if any(tied(c) == config for c in r.values(case))]
    return next((r for r in proposing if r.holds(case)), (proposing or rules)[0])


def _launch(case: Case, config: RunConfig, variable: str) -> Launch:
    sit, rule = case.sit, _rule_of(case, config, variable)
    lossy = rule.lossy or variable in ("gpu-layers", "cpu-moe")
    reach = f"; {tokens(case.goal)} comes into reach with it" if case.beyond else ""
    return sit.launch(
        5,
        "transient",
        subject(variable, config),
        config,
        ProbePlan(
            deep=depth_of(sit, config.n_ctx),
            tasks=task_probes(sit, config.n_ctx).tasks if lossy else (),
            stability=proof_of(sit, config),
        ),
        title=f"{tokens(config.n_ctx)} again with {rule.label} {rule.direction}",
        why=rule.text(case) + reach,
        variable=variable,
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
    proven = any(r.config == best.config and r.stability for r in sit.state.runs)
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
