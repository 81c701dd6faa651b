"""What comes next: a pure function of what is recorded. A resumed session goes on where the record ends."""

from __future__ import annotations

from collections.abc import Callable

from kvtui.core.units import rate, size, tokens
from kvtui.procedure import baseline, floor, quantized, stages, transients
from kvtui.procedure.situation import Action, Close, Finish, Situation
from kvtui.procedure.stability import free_at_peak, recall_reference
from kvtui.session.records import Verdict, VerdictOutcome
from kvtui.session.state import RunRecord

_STEPS: dict[int, Callable[[Situation], Action]] = {
    1: floor.next_action,
    2: baseline.next_action,
    3: quantized.next_action,
    4: stages.next_action,
    5: transients.next_action,
}


def next_action(sit: Situation) -> Action:
    """The next launch, skip or closing of a step, or the end with its verdict."""
    step = sit.state.current_step
    if any(d.choice == "stop" for d in sit.state.decided):
        return Finish(verdict(sit, stopped=True))
    if step is None:
        return Finish(verdict(sit))
    hopeless = _hopeless(sit)
    if hopeless is not None and step.number > 1:
        return Close(step.number, "skipped", hopeless)
    return _STEPS[step.number](sit)


def _hopeless(sit: Situation) -> str | None:
    if sit.state.steps[0].outcome == "failed":
        return "step 1 found no room to work in"
    return None


def best_run(sit: Situation) -> RunRecord | None:
    """The run whose configuration the verdict names."""
    best = stages.highest_stable(sit)
    if best is not None:
        return best
    good = [
        r for r in sit.state.runs if r.counts and sit.stable(r).ok and r.purpose in ("quantized", "baseline")
    ]
    return good[-1] if good else None


def warnings_of(sit: Situation) -> int:
    """How many findings of the runs that count ask for attention."""
    return sum(f.severity != "info" for r in sit.state.runs if r.counts for f in r.findings)


def verdict(sit: Situation, *, stopped: bool = False) -> Verdict:
    """The answer of the session: which configuration holds, proven by which run."""
    best = best_run(sit)
    missing = _not_measured(sit)
    if best is None:
        why = next((s.summary for s in sit.state.steps if s.outcome == "failed"), "no run was finished")
        return Verdict("failed", "No configuration holds", why, not_measured=missing)
    quant = sit.state.started.model.quant or "unquantized"
    title = f"{tokens(best.config.n_ctx)} of context holds: {quant} weights, {best.config.kv_types} KV"
    outcome: VerdictOutcome = "done"
    if stopped:
        outcome = "stopped"
    elif warnings_of(sit) or _short_of_target(sit, best):
        outcome = "findings"
    return Verdict(
        outcome=outcome,
        title=title,
        why=_why(sit, best, stopped=stopped),
        run=best.number,
        config=best.config,
        command=sit.command(best.config),
        not_measured=missing,
    )


def _short_of_target(sit: Situation, best: RunRecord) -> bool:
    wanted = max(stages.stages(sit), default=0)
    trained = sit.oracle.header.n_ctx_train
    return best.config.n_ctx < (min(wanted, trained) if trained else wanted)


def _why(sit: Situation, best: RunRecord, *, stopped: bool) -> str:
    parts = [f"run {best.number} proved the types in the engine's own log"]
    if best.speeds:
        speed = best.speeds[-1]
        parts.append(f"decodes {rate(speed.decode_tps)} at a depth of {speed.depth:,} tokens")
    free = free_at_peak(sit.state, best)
    if free is not None and sit.on_gpu:
        parts.append(f"leaves {size(free)} free at the peak")
    if best.recalls:
        recall = best.recalls[-1]
        reference = recall_reference(sit.state)
        at_f16 = f" ({reference.found} of {len(reference.needles)} at the f16 baseline)" if reference else ""
        parts.append(f"recalls {recall.found} of {len(recall.needles)} planted facts{at_f16}")
    if _short_of_target(sit, best):
        trouble = stages.first_trouble_text(sit)
        if trouble:
            parts.append(f"the next stage does not hold ({trouble})")
    if stopped:
        parts.append("ended by the operator before the last step")
    return "; ".join(parts)


def _not_measured(sit: Situation) -> tuple[str, ...]:
    missing = []
    if not sit.on_gpu:
        missing.append("GPU memory: there is no GPU here, host memory of the engine's process stands in")
    missing += [f"step {s.number}: {s.summary}" for s in sit.state.steps if s.outcome == "skipped"]
    missing += [f"{tokens(s.context)} of context: {s.reason}" for s in sit.state.skipped]
    return tuple(missing)
