"""One variable at a time towards a target, from the run that is nearest to it."""

from __future__ import annotations

from dataclasses import replace

from kvtui.core.config import RunConfig
from kvtui.core.units import tokens
from kvtui.procedure.rules import CHANGES, will_not_help
from kvtui.procedure.rules.offload import OFFLOAD
from kvtui.procedure.rules.rule import Case, Rule
from kvtui.procedure.situation import Launch, ProbePlan, Situation
from kvtui.procedure.steps.baseline import deepest_prompt, task_probes
from kvtui.procedure.steps.diagnosis import case_of, failures_at, has_run, next_goal
from kvtui.procedure.steps.stages import climbed, holds, preference, proof_of, stage_config, why_not
from kvtui.procedure.steps.targets import curable, targets
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


def here(sit: Situation, best: RunRecord | None) -> list[RunRecord]:
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


def towards(sit: Situation, best: RunRecord | None, *, offload: bool) -> Launch | None:
    held, goal = here(sit, best), next_goal(sit, best)
    if not held or goal is None:
        return None
    for target in targets(sit, best, held[0], offload=offload):
        found = _step_at(sit, replace(target, n_ctx=goal)) or _step_from(
            sit, held, target, goal, _OFFLOADED if offload else _ORDER
        )
        if found is not None:
            return found
    return None


def _step_at(sit: Situation, wanted: RunConfig) -> Launch | None:
    """`wanted` against a run at its own context that did not hold, where one variable tells them apart."""
    for run in failures_at(sit, wanted.n_ctx):
        moving = _moving(sit, run, wanted)
        if len(moving) == 1 and curable(sit, run) and is_open(sit, moving[0], wanted):
            return launch(case_of(sit, run), wanted, moving[0])
    return None


def _step_from(
    sit: Situation, held: list[RunRecord], target: RunConfig, goal: int, order: list[str]
) -> Launch | None:
    """One variable from the run that is nearest to `target` and holds; the next context when nothing else differs."""
    for run in sorted(held, key=lambda r: len(_moving(sit, r, target))):
        moving = [name for name in _moving(sit, run, target) if name != "context"]
        onward = replace(target, n_ctx=goal)
        if not moving:
            if is_open(sit, "context", onward) and why_not(sit, onward) is None:
                return _onward(sit, run, onward)
            continue
        for name in sorted(moving, key=order.index):
            fields = {f: getattr(target, f) for f in BY_NAME[name].fields}
            config = sit.engine.traits.tied(replace(run.config, **fields))
            if is_open(sit, name, config) and why_not(sit, config) is None:
                return launch(case_of(sit, run, target.n_ctx), config, name)
    return None


def _moving(sit: Situation, run: RunRecord, target: RunConfig) -> list[str]:
    """The variables in which `target` differs; flash attention does not where the engine's own probe said yes."""
    means = sit.engine.traits.variables
    names = [v.name for v in changed(run.config, target) if not means or v.name in means]
    return [n for n in names if n != "flash-attention" or run.config.flash_attn == "off"]


def is_open(sit: Situation, variable: str, config: RunConfig) -> bool:
    """True when `config` was neither run nor skipped."""
    return not has_run(sit, config) and sit.skipped(subject(variable, config)) is None


def _onward(sit: Situation, run: RunRecord, config: RunConfig) -> Launch:
    return sit.launch(
        5,
        "transient",
        subject("context", config),
        config,
        ProbePlan(deep=deepest_prompt(sit, config.n_ctx), stability=proof_of(sit, config)),
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


def launch(case: Case, config: RunConfig, variable: str) -> Launch:
    sit, rule = case.sit, _rule_of(case, config, variable)
    lossy = rule.lossy or variable in ("gpu-layers", "cpu-moe")
    reach = f"; {tokens(case.goal)} comes into reach with it" if case.beyond else ""
    return sit.launch(
        5,
        "transient",
        subject(variable, config),
        config,
        ProbePlan(
            deep=deepest_prompt(sit, config.n_ctx),
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
