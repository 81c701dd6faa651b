"""What a run suffers from, how much memory it misses, and what is to be reached next."""

from __future__ import annotations

from dataclasses import replace

from kvtui.core.config import RunConfig
from kvtui.core.units import GIB
from kvtui.procedure.forecast import transient_bytes
from kvtui.procedure.rules.rule import Case, Cause, cause_of
from kvtui.procedure.rules.transient import SMALLEST_MICRO_BATCH
from kvtui.procedure.situation import Situation
from kvtui.procedure.stability import Trouble, free_at_peak
from kvtui.procedure.steps.stages import climbed, stages, usable_bytes
from kvtui.session.state import RunRecord

_OF_TROUBLE: dict[Trouble, Cause] = {
    "context": "kv",
    "margin": "margin",
    "spill": "spill",
    "concurrency": "concurrency",
    "leak": "leak",
    "kernel": "kernel",
    "speed": "speed",
    "recall": "recall",
    "quality": "quality",
}


def cause_of_run(sit: Situation, run: RunRecord) -> Cause:
    """What a run that does not hold suffers from."""
    found = sit.stable(run)
    if found.trouble is None or found.trouble == "run":
        cause = cause_of(run.failure)
        several = run.config.n_parallel > 1 and run.purpose == "concurrency"
        return "concurrency" if several and cause in ("prefill", "kv") else cause
    return _OF_TROUBLE[found.trouble]


def case_of(sit: Situation, run: RunRecord, goal: int | None = None) -> Case:
    """The case of a run that failed, or of one that holds and leaves the context `goal` out of reach."""
    context = goal or run.config.n_ctx
    beyond = context > run.config.n_ctx
    cause: Cause = "budget" if beyond else cause_of_run(sit, run)
    return Case(
        sit=sit,
        run=run,
        config=run.config,
        cause=cause,
        goal=context,
        missing=_missing(sit, run, replace(run.config, n_ctx=context), cause),
        freeable=_freeable(sit, run),
    )


def _missing(sit: Situation, run: RunRecord, config: RunConfig, cause: Cause) -> int | None:
    if cause == "margin":
        free = free_at_peak(sit.state, run)
        return None if free is None else round(sit.plan.margin_gib * GIB) - free
    forecast = sit.oracle.forecast(sit.state, config)
    over = forecast.short_bytes
    if over is None and forecast.total_bytes is not None:
        over = forecast.total_bytes - usable_bytes(sit)
    return over if over is not None and over > 0 else None


def _freeable(sit: Situation, run: RunRecord) -> int | None:
    transient = transient_bytes(sit.state, run)
    if transient is None or run.config.n_ubatch <= SMALLEST_MICRO_BATCH:
        return None if transient is None else 0
    return round(transient * (1 - SMALLEST_MICRO_BATCH / run.config.n_ubatch))


def next_goal(sit: Situation, best: RunRecord | None) -> int | None:
    """The smallest planned context above `best` that the model was trained for; None when nothing is left."""
    trained = sit.oracle.n_ctx_train
    above = best.config.n_ctx if best is not None else 0
    return next((c for c in stages(sit) if c > above and (trained is None or c <= trained)), None)


def failures_at(sit: Situation, context: int) -> list[RunRecord]:
    """Single-sequence runs at `context` that do not hold, the latest first."""
    tried = [r for r in climbed(sit) if r.config.n_ctx == context and r.purpose != "concurrency"]
    return [r for r in reversed(tried) if not sit.stable(r).ok]


def has_run(sit: Situation, config: RunConfig) -> bool:
    """True when this very configuration has been run to an end."""
    config = sit.engine.traits.tied(config)
    return any(r.config == config and r.outcome in ("ok", "failed", "void") for r in sit.state.runs)
