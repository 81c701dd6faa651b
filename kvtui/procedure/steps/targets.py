"""Configurations worth working towards: the largest context first, and at each the least change that fits by forecast.

The order among changes is that of the rules: transients before types, values before keys, leaving the GPU last. Each
target is reached by changing one variable in a launch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from kvtui.core.config import RunConfig
from kvtui.procedure.rules.offload import OFFLOAD
from kvtui.procedure.rules.rule import MEMORY_CAUSES, Case
from kvtui.procedure.rules.transient import BATCHED_TOKENS, GRAPHS, MICRO_BATCH
from kvtui.procedure.rules.types import LOSING, TYPES, mixed_pair_is_slow
from kvtui.procedure.situation import Situation
from kvtui.procedure.speeds import is_slow
from kvtui.procedure.steps.diagnosis import case_of, cause_of_run, failures_at, next_goal
from kvtui.procedure.steps.stages import stage_config, stages, why_not
from kvtui.procedure.variables import bits_of
from kvtui.session.state import RunRecord


def targets(sit: Situation, best: RunRecord | None, base: RunRecord, *, offload: bool) -> Iterator[RunConfig]:
    """Configurations above `best` that the forecast lets fit and no run has refuted, the most wanted first."""
    reachable = goals(sit, best)
    lowest = min(reachable, default=0)
    for goal in sorted(reachable, reverse=True):
        for found in combinations(sit, base, goal, offload=offload):
            config = sit.engine.traits.tied(found)
            if goal > lowest and not _is_told(sit, config):
                continue
            if not _refuted(sit, best, config) and why_not(sit, config) is None:
                yield config


def _is_told(sit: Situation, config: RunConfig) -> bool:
    """True when the forecast tells whether `config` fits, or no configuration is told anything of."""

    def known(c: RunConfig) -> bool:
        forecast = sit.oracle.forecast(sit.state, c)
        return forecast.total_bytes is not None or forecast.short_bytes is not None

    return known(config) or not known(stage_config(sit, config.n_ctx))


def goals(sit: Situation, best: RunRecord | None) -> list[int]:
    """The planned contexts above `best`, up to the first that something else than memory or low-bit types ended."""
    lowest, trained = next_goal(sit, best), sit.oracle.n_ctx_train
    found: list[int] = []
    for context in stages(sit):
        if lowest is None or context < lowest or (trained is not None and context > trained):
            continue
        if any(not curable(sit, run) for run in failures_at(sit, context)):
            break
        found.append(context)
    return found


def curable(sit: Situation, run: RunRecord) -> bool:
    """True when memory is what `run` suffers from, or types that can be taken back."""
    cause = cause_of_run(sit, run)
    low_keys = bits_of(run.config.type_k) < bits_of("q8_0") or bits_of(run.config.type_v) < bits_of("q8_0")
    if cause in MEMORY_CAUSES:
        return True
    return (cause in LOSING and low_keys) or (
        cause in ("speed", "kernel") and mixed_pair_is_slow(case_of(sit, run))
    )


def combinations(sit: Situation, base: RunRecord, goal: int, *, offload: bool) -> Iterator[RunConfig]:
    """The stage's own configuration at `goal`, then every combination of what the rules may change in it."""
    start = stage_config(sit, goal)
    case = replace(case_of(sit, base, goal), config=start, cause="budget")
    for placed in (start, *(_offloaded(case) if offload else ())):
        for typed in _typed(replace(case, config=placed)):
            yield from _transient(replace(case, config=typed))


def _offloaded(case: Case) -> Iterator[RunConfig]:
    for rule in OFFLOAD:
        if rule.kind == "change" and rule.holds(case):
            yield from rule.values(case)


def _typed(case: Case) -> list[RunConfig]:
    """The present pair and those below it; pairs that were measured to be slow come last."""
    lower = [
        config for rule in TYPES if rule.id in ("values-lower", "keys-lower") for config in rule.values(case)
    ]
    unique = list(dict.fromkeys((case.config, *lower)))
    slow = {r.config.kv_types for r in case.sit.state.runs if r.counts and is_slow(case.sit.state, r)}
    return sorted(unique, key=lambda config: config.type_k != config.type_v and config.kv_types in slow)


def _transient(case: Case) -> Iterator[RunConfig]:
    """The present configuration, then with less transient memory, the nearest first."""
    yield case.config
    case = replace(case, missing=None)
    batches = [c for rule in (MICRO_BATCH, BATCHED_TOKENS) if rule.holds(case) for c in rule.values(case)]
    yield from batches
    if GRAPHS.holds(case):
        for config in (case.config, *batches):
            yield from GRAPHS.values(replace(case, config=config))


def _refuted(sit: Situation, best: RunRecord | None, config: RunConfig) -> bool:
    """True when this configuration was run without holding, at its own context or a smaller one on the way to it."""
    above = best.config.n_ctx if best is not None else 0
    return any(
        replace(r.config, n_ctx=config.n_ctx) == config and above < r.config.n_ctx <= config.n_ctx
        for r in sit.state.runs
        if r.outcome in ("ok", "failed", "void") and r.purpose not in ("floor", "baseline", "quantized")
    )
