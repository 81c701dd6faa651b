"""Step 1: what weights and runtime alone take, and where they landed."""

from __future__ import annotations

from kvtui.core.config import RunConfig
from kvtui.core.units import MIB, size
from kvtui.procedure.checks import on_host
from kvtui.procedure.memory import log_bytes
from kvtui.procedure.rules import BY_ID, will_not_help
from kvtui.procedure.rules.offload import OFFLOAD
from kvtui.procedure.rules.rule import Case, Cause, Rule, cause_of
from kvtui.procedure.situation import Action, Close, Launch, Offer, ProbePlan, Situation
from kvtui.procedure.steps import FLOOR_STOP_SHARE, FLOOR_WARN_SHARE
from kvtui.procedure.variables import BY_NAME
from kvtui.session.records import FailureKind, Recommendation
from kvtui.session.state import RunRecord

SUBJECT = "floor"
SPEED_DEPTH = 256

_SMALLER = "choose a smaller quant or a smaller model"
_ADVICE: dict[FailureKind, str] = {
    "kv-oom": f"not even the smallest context fits beside the weights: {_SMALLER}",
    "compute-oom": f"the compute buffer does not fit: a smaller micro-batch, or {_SMALLER}",
    "prefill-oom": f"memory ran out in the first prefill: a smaller micro-batch, or {_SMALLER}",
}


def next_action(sit: Situation) -> Action:
    """Run the floor once, then judge it; with less of the model on the GPU where the operator puts capacity first."""
    runs = sit.runs("floor")
    skipped = sit.skipped(SUBJECT)
    if not runs and skipped is not None:
        return Close(1, "skipped", f"skipped by the operator: {skipped}")
    if not runs:
        return _propose(sit)
    run = runs[-1]
    problem = _problem(sit, run)
    if problem is None:
        return Close(1, "passed", summary(sit, run))
    return _elsewhere(sit, run) or Close(1, "failed", problem, _will_not_help(sit, run, problem))


def _problem(sit: Situation, run: RunRecord) -> str | None:
    if run.outcome == "ok":
        return placement_problem(sit, run) or floor_problem(sit, run)
    if run.failure == "weights-oom":
        rule = BY_ID["types-do-not-shrink-weights"]
        return f"{run.reason}; {_SMALLER}. These will not help: {rule.text(_case(sit, run))}"
    advice = _ADVICE.get(run.failure, "") if run.failure else ""
    return f"{run.reason}; {advice}" if advice else run.reason


def _case(sit: Situation, run: RunRecord) -> Case:
    cause: Cause = cause_of(run.failure) if run.outcome != "ok" else "weights"
    return Case(sit, run, run.config, cause, run.config.n_ctx)


def _will_not_help(sit: Situation, run: RunRecord, problem: str) -> Recommendation | None:
    """What not to try, where memory is the problem."""
    not_this = will_not_help(_case(sit, run))
    if not not_this:
        return None
    return Recommendation(
        "will-not-help", "This model leaves no room on this card", problem, not_this=not_this
    )


def _elsewhere(sit: Situation, run: RunRecord) -> Action | None:
    """The floor with experts or layers on the CPU: run where the preset says so, else for an operator who insists."""
    case = _case(sit, run)
    for rule in OFFLOAD:
        if rule.kind != "change" or not rule.holds(case):
            continue
        for config in rule.values(case):
            name = f"{SUBJECT}:{BY_NAME[rule.variable].value(config)}"
            over = (
                sit.oracle.weights_bytes(config, on_gpu=True)
                > FLOOR_STOP_SHARE * sit.state.started.device.total_bytes
            )
            if over or sit.tried(name) is not None:
                continue
            launch = _launch(sit, config, name, case, rule)
            if sit.plan.offload == "run":
                return launch
            return (
                None
                if sit.declined(name)
                else Offer.of(launch, f"Leave out {rule.label}: it costs decode speed")
            )
    return None


def _launch(sit: Situation, config: RunConfig, name: str, case: Case, rule: Rule) -> Launch:
    return sit.launch(
        1,
        "floor",
        name,
        config,
        ProbePlan(speed=min(SPEED_DEPTH, config.n_ctx // 2)),
        title=f"The floor with {rule.label} {rule.direction}",
        why=rule.text(case),
        variable=rule.variable,
        speed=rule.speed,
        risk=rule.risk,
        not_this=will_not_help(case),
        against=case.run,
        rule=rule.id,
        source=rule.source,
    )


def _propose(sit: Situation) -> Action:
    plan, (type_k, type_v) = sit.plan, sit.full_precision
    config = sit.base(n_ctx=plan.floor_context, type_k=type_k, type_v=type_v, flash_attn="auto", n_parallel=1)
    depth = min(SPEED_DEPTH, plan.floor_context // 2)
    return sit.launch(
        1,
        "floor",
        SUBJECT,
        config,
        ProbePlan(speed=depth),
        title=f"Measure the floor: {plan.floor_context:,} tokens of {type_k} KV, one sequence",
        why="weights and runtime come off every later budget; flash attention is left to the engine's own probe, "
        "the only proof that the device has it",
    )


def floor_bytes(sit: Situation, run: RunRecord) -> int | None:
    """Weights plus runtime of the floor run in bytes: the engine after warm-up, without its KV."""
    warm = run.memory.peak("warm-up") if run.memory else None
    peak = warm or (run.memory.highest if run.memory else None)
    _, kv, _ = log_bytes(run.facts, sit.state.started.device)
    if peak is None or peak.engine_bytes is None or kv is None:
        return None
    return peak.engine_bytes - kv


def placement_problem(sit: Situation, run: RunRecord) -> str | None:
    """Layers or KV on the CPU though the GPU was asked for; None without a GPU or when all is where it should be."""
    if not sit.on_gpu or run.config.n_gpu_layers == 0:
        return None
    wanted = run.config.n_gpu_layers
    if run.facts.offloaded is not None and wanted in (None, 999):
        done, total = run.facts.offloaded
        if done < total:
            return f"only {done} of {total} layers are on the GPU: choose a smaller quant or model"
    buffers = run.facts.main.kv_buffers if run.facts.main else ()
    stranded = sum(b.mib for b in buffers if on_host(b.device))
    if stranded > 0 and run.config.kv_offload and wanted in (None, 999):
        return f"{size(stranded * MIB)} of KV is in host memory: choose a smaller quant or model"
    return None


def floor_problem(sit: Situation, run: RunRecord) -> str | None:
    """Weights and runtime that leave no healthy room on the card."""
    floor = floor_bytes(sit, run)
    total = sit.state.started.device.total_bytes
    if floor is None or not sit.on_gpu or floor <= FLOOR_STOP_SHARE * total:
        return None
    return (
        f"weights and runtime take {size(floor)} of {size(total)} ({floor / total:.1%}): "
        "no healthy room for KV is left, choose a smaller quant or model"
    )


def summary(sit: Situation, run: RunRecord) -> str:
    """One line for the checklist."""
    floor = floor_bytes(sit, run)
    offloaded = run.facts.offloaded
    place = "host memory (no GPU)"
    if sit.on_gpu:
        place = "all on the GPU" if offloaded and offloaded[0] == offloaded[1] else "placement not proven"
    if floor is None:
        return f"memory not measured, {place}"
    share = floor / sit.state.started.device.total_bytes
    tight = ", tight" if sit.on_gpu and share > FLOOR_WARN_SHARE else ""
    return f"{size(floor)} without KV, {place}{tight}"
