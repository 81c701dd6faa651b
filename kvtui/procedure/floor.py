"""Step 1: what weights and runtime alone take, and where they landed."""

from __future__ import annotations

from kvtui.core.units import MIB, size
from kvtui.procedure.checks import on_host
from kvtui.procedure.memory import log_bytes
from kvtui.procedure.situation import Action, Close, ProbePlan, Situation
from kvtui.procedure.steps import FLOOR_STOP_SHARE, FLOOR_WARN_SHARE
from kvtui.session.records import FailureKind
from kvtui.session.state import RunRecord

SUBJECT = "floor"
SPEED_DEPTH = 256

_ADVICE: dict[FailureKind, str] = {
    "weights-oom": "the weights do not fit: choose a smaller quant or a smaller model; KV types will not help",
    "kv-oom": "not even the smallest context fits beside the weights: choose a smaller quant or model",
    "compute-oom": "the compute buffer does not fit: a smaller micro-batch (-ub), or a smaller quant",
    "prefill-oom": "memory ran out in the first prefill: a smaller micro-batch (-ub), or a smaller quant",
}


def next_action(sit: Situation) -> Action:
    """Run the floor once, then judge it."""
    run = sit.tried(SUBJECT)
    skipped = sit.skipped(SUBJECT)
    if run is None and skipped is not None:
        return Close(1, "skipped", f"skipped by the operator: {skipped}")
    if run is None:
        return _propose(sit)
    if run.outcome != "ok":
        advice = _ADVICE.get(run.failure, "") if run.failure else ""
        return Close(1, "failed", f"{run.reason}; {advice}" if advice else run.reason)
    problem = placement_problem(sit, run) or floor_problem(sit, run)
    if problem:
        return Close(1, "failed", problem)
    return Close(1, "passed", summary(sit, run))


def _propose(sit: Situation) -> Action:
    plan = sit.plan
    config = sit.base(n_ctx=plan.floor_context, type_k="f16", type_v="f16", flash_attn="auto", n_parallel=1)
    depth = min(SPEED_DEPTH, plan.floor_context // 2)
    return sit.launch(
        1,
        "floor",
        SUBJECT,
        config,
        ProbePlan(speed=depth),
        title=f"Measure the floor: {plan.floor_context:,} tokens of f16 KV, one sequence",
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
    if stranded > 0 and run.config.kv_offload:
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
