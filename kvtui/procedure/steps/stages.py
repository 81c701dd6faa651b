"""Step 4: context in stages, up to the first that does not hold."""

from __future__ import annotations

import math
from dataclasses import replace

from kvtui.core.config import RunConfig
from kvtui.core.units import GIB, rate, size, tokens
from kvtui.procedure.situation import Action, Close, Launch, ProbePlan, Situation, Skip
from kvtui.procedure.speeds import is_slow
from kvtui.procedure.steps.baseline import deepest_prompt
from kvtui.procedure.steps.quantized import accepted_types, flash_attention_off
from kvtui.procedure.variables import bits_of
from kvtui.session.state import RunRecord


def subject(context: int) -> str:
    """One stage."""
    return f"stage:{context}"


def stages(sit: Situation) -> tuple[int, ...]:
    """The planned contexts up to the target, the target included, ascending; all live tokens must fit in one."""
    target = sit.plan.target_context
    if sit.plan.max_live_tokens is not None:
        target = min(target or sit.plan.max_live_tokens, sit.plan.max_live_tokens)
    planned = {s for s in sit.plan.stages if target is None or s <= target}
    return tuple(sorted(planned | ({target} if target else set())))


def stage_run(sit: Situation, context: int) -> RunRecord | None:
    """The run that tried the stage `context`: its own, or an earlier one of the same configuration as deep."""
    own = sit.tried(subject(context))
    if own is not None:
        return own
    config, depth = stage_config(sit, context), deepest_prompt(sit, context)
    same = [
        r
        for r in sit.runs("quantized")
        if r.config == config and any(s.depth >= 0.9 * depth for s in r.speeds)
    ]
    return same[-1] if same and same[-1].outcome == "ok" else None


def stage_config(sit: Situation, context: int) -> RunConfig:
    """The configuration of one stage: step 3's types, one sequence."""
    type_k, type_v = accepted_types(sit)
    return sit.base(
        n_ctx=context,
        type_k=type_k,
        type_v=type_v,
        flash_attn="off" if flash_attention_off(sit) else "on",
        n_parallel=1,
    )


def next_action(sit: Situation) -> Action:
    """The next stage that was neither run nor skipped, until one does not hold."""
    left_out = {s.context for s in sit.state.skipped}
    for context in stages(sit):
        run = stage_run(sit, context)
        if run is not None:
            if not sit.stable(run).ok:
                break
            continue
        if context in left_out:
            continue
        config = stage_config(sit, context)
        given = sit.skipped(subject(context))
        if given is not None:
            return Skip(context, f"skipped by the operator: {given}")
        reason = why_not(sit, config)
        if reason is None:
            return _propose(sit, config)
        # Larger stages miss by more: who did not insist on the first is not asked again.
        return Skip(context, reason, None if left_out else _insisting(_propose(sit, config), reason))
    best = highest_stable(sit)
    if best is None:
        return Close(4, "failed", first_trouble_text(sit) or "no stage could be run")
    return Close(4, "passed", _summary(sit, best))


def _insisting(launch: Launch, reason: str) -> Launch:
    """The launch of a stage that is advised against, with the advice to leave it out."""
    advice = replace(
        launch.advice, kind="skip", title=f"Leave out {tokens(launch.config.n_ctx)} of context", why=reason
    )
    return replace(launch, advice=advice)


def why_not(sit: Situation, config: RunConfig) -> str | None:
    """Why a context is not worth launching: beyond what was trained, refused by the engine, or over the budget."""
    trained = sit.oracle.n_ctx_train
    if trained is not None and config.n_ctx > trained:
        return f"the model was trained for {trained:,} tokens: cells beyond that are allocated and never used"
    expected = sit.oracle.context(config)
    if expected.refused is not None:
        return f"the engine would refuse it: {expected.refused}"
    over = over_budget(sit, config)
    if over is not None:
        return over
    return None


def over_budget(sit: Situation, config: RunConfig) -> str | None:
    """The figure by which the forecast misses the budget; None when it fits or cannot be told."""
    forecast = sit.oracle.forecast(sit.state, config)
    if forecast.short_bytes is not None:
        short = forecast.short_bytes
        return f"needs {size(short)} more than the engine's pool holds" if short else None
    if forecast.total_bytes is None:
        return None
    usable = usable_bytes(sit)
    if forecast.total_bytes <= usable:
        return None
    return f"needs {size(forecast.total_bytes)}, {size(usable)} usable: {size(forecast.total_bytes - usable)} over"


def usable_bytes(sit: Situation) -> int:
    """The card (or host memory) minus what others held before the launch and minus the safety margin."""
    device = sit.state.started.device
    measured = [
        r.memory.baseline_used_bytes for r in sit.state.runs if r.memory and r.memory.baseline_used_bytes
    ]
    reserve = max(measured[-1] if measured else 0, round((sit.plan.reserve_gib or 0) * GIB))
    return device.total_bytes - reserve - round(sit.plan.margin_gib * GIB)


def _propose(sit: Situation, config: RunConfig) -> Launch:
    context = config.n_ctx
    return sit.launch(
        4,
        "stage",
        subject(context),
        config,
        ProbePlan(deep=deepest_prompt(sit, context), stability=proof_of(sit, config)),
        title=f"Stage: {tokens(context)} of context",
        why="one stage after the other: the highest that holds wins, not the highest that started",
        variable="context",
        risk="memory grows with every token of context; speed falls with depth",
    )


def proof_of(sit: Situation, config: RunConfig) -> int:
    """How often to fill the context of `config` for the proof of stability: where it is the last there is to reach."""
    trained = sit.oracle.n_ctx_train
    last = max((c for c in stages(sit) if trained is None or c <= trained), default=0)
    alone = sit.plan.n_parallel == 1 and sit.plan.transients != "always"
    return sit.plan.stability_requests if alone and config.n_ctx == last else 0


def climbed(sit: Situation) -> tuple[RunRecord, ...]:
    """Every run that tried a context of its own: stages, and what step 5 did to the one that failed."""
    purposes = ("stage", "transient", "concurrency", "stability", "operator")
    standing_in = [
        r for c in stages(sit) if (r := stage_run(sit, c)) is not None and r.purpose == "quantized"
    ]
    return tuple(
        r
        for r in sit.state.runs
        if (r.purpose in purposes and r.outcome in ("ok", "failed", "void")) or r in standing_in
    )


def preference(sit: Situation, run: RunRecord) -> tuple[float, ...]:
    """Which of two runs that hold is the better answer: more context, more of it on the GPU, no slow pair of types,
    better types (8 bits and more count alike: their verdicts are the same), more simultaneous requests, then the
    earlier one, which has fewer changes."""
    config = run.config
    bits = sum(min(bits_of(t), 8.0) for t in (config.type_k, config.type_v))
    on_gpu = (math.inf if config.n_gpu_layers is None else config.n_gpu_layers) - (config.n_cpu_moe or 0)
    return (config.n_ctx, on_gpu, not is_slow(sit.state, run), bits, config.n_parallel, -run.number)


def holds(sit: Situation, run: RunRecord) -> bool:
    """True when `run` holds and nothing showed later that its configuration does not hold when it is filled again."""
    refuted = any(r.config == run.config and not sit.stable(r).ok for r in sit.runs("stability"))
    return not refuted and sit.stable(run).ok


def highest_stable(sit: Situation) -> RunRecord | None:
    """The run that holds with the largest context; see `preference` for equals."""
    stable = [r for r in climbed(sit) if holds(sit, r)]
    return max(stable, key=lambda r: preference(sit, r), default=None)


def first_trouble(sit: Situation) -> RunRecord | None:
    """The stage at which the climb ended, None when all that were run held."""
    for context in stages(sit):
        run = stage_run(sit, context)
        if run is not None and not sit.stable(run).ok:
            return run
    return None


def first_trouble_text(sit: Situation) -> str:
    """What went wrong there, in words."""
    run = first_trouble(sit)
    return f"{tokens(run.config.n_ctx)}: {sit.stable(run).why}" if run is not None else ""


def _summary(sit: Situation, best: RunRecord) -> str:
    text = f"{tokens(best.config.n_ctx)} holds"
    if best.speeds:
        text += f" at {rate(best.speeds[-1].decode_tps)}"
    trouble = first_trouble_text(sit)
    if trouble:
        return f"{text}; stopped at {trouble}"
    skipped = len(sit.state.skipped)
    return f"{text}; {skipped} stage{'s' if skipped > 1 else ''} skipped" if skipped else text
