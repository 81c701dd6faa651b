"""Step 5: what the failure calls for, one variable at a time; simultaneous requests where they were asked for."""

from __future__ import annotations

from dataclasses import replace

from kvtui.core.config import RunConfig
from kvtui.core.units import tokens
from kvtui.procedure.rules import will_not_help
from kvtui.procedure.rules.rule import meaningful
from kvtui.procedure.rules.transient import SLOTS
from kvtui.procedure.rules.types import EQUAL_PAIR
from kvtui.procedure.situation import Action, Launch, Offer, ProbePlan, Situation
from kvtui.procedure.steps.advance import OFF_GPU, here, is_open, launch, subject, towards
from kvtui.procedure.steps.baseline import deepest_prompt
from kvtui.procedure.steps.diagnosis import case_of, next_goal
from kvtui.procedure.steps.ending import end
from kvtui.procedure.steps.stages import highest_stable, why_not
from kvtui.session.state import RunRecord


def next_action(sit: Situation) -> Action:
    """Weigh, advance, name what leaves the GPU; then simultaneous requests, the measured reserve and the proof."""
    best = highest_stable(sit)
    for find in (_weigh, _advance, _offload, _concurrency, _reserve, _prove):
        action = find(sit, best)
        if action is not None:
            return action
    return end(sit, best)


def _weigh(sit: Situation, best: RunRecord | None) -> Action | None:
    """A mixed pair that holds and is slow: its equal pair at the same context."""
    for run in here(sit, best):
        case = case_of(sit, run)
        if not EQUAL_PAIR.holds(case):
            continue
        for config in EQUAL_PAIR.values(case):
            if is_open(sit, "kv-types", config):
                return launch(case, config, "kv-types")
    return None


def _advance(sit: Situation, best: RunRecord | None) -> Action | None:
    """One variable towards the most wanted target that all on the GPU can reach."""
    return towards(sit, best, offload=False)


def _offload(sit: Situation, best: RunRecord | None) -> Action | None:
    """Leaving the GPU: run where the preset puts capacity above latency, else named for an operator who insists."""
    found = towards(sit, best, offload=True)
    if found is None or sit.plan.offload == "run":
        return found
    if any(sit.declined(d.subject) for d in sit.state.decided if d.subject.startswith(OFF_GPU)):
        return None
    if not found.subject.startswith(OFF_GPU):
        return found if _left_gpu(sit) else None
    goal = tokens(next_goal(sit, best) or found.config.n_ctx)
    return Offer.of(found, f"Leave out fewer layers on the GPU: {goal} would cost decode speed")


def _left_gpu(sit: Situation) -> bool:
    """True when the operator insisted on leaving the GPU before."""
    return any(d.choice == "insist" and d.subject.startswith(OFF_GPU) for d in sit.state.decided)


def _concurrency(sit: Situation, best: RunRecord | None) -> Action | None:
    """As many requests at the same time as the preset asks for, then fewer: slots before anything else."""
    held = here(sit, best)
    wanted = sit.plan.n_parallel
    while held and wanted > 1 and meaningful(case_of(sit, held[0]), "slots"):
        config = replace(held[0].config, n_parallel=wanted, kv_unified=sit.plan.kv_unified)
        name = subject("slots", config)
        run = sit.tried(name)
        if run is None and sit.skipped(name) is None and why_not(sit, config) is None:
            return _simultaneous(sit, held[0], config, name)
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
        ProbePlan(concurrency=config.n_parallel, deep=deepest_prompt(sit, share)),
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
        ProbePlan(deep=deepest_prompt(sit, best.config.n_ctx // best.config.n_parallel)),
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
