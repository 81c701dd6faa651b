"""What comes next: a pure function of what is recorded. A resumed session goes on where the record ends."""

from __future__ import annotations

from dataclasses import replace

from kvtui.core.units import rate, signed_size, size, tokens
from kvtui.procedure.choice import last_ended
from kvtui.procedure.proposals import propose, repeat
from kvtui.procedure.rules import first
from kvtui.procedure.rules.limits import REPEAT
from kvtui.procedure.rules.rule import Case, cause_of
from kvtui.procedure.situation import Action, Close, Finish, Situation
from kvtui.procedure.stability import free_at_peak, growth_per_request, recall_reference
from kvtui.procedure.steps import stages
from kvtui.session.records import Verdict, VerdictOutcome
from kvtui.session.state import RunRecord


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
    return _same_again(sit) or propose(sit, step.number)


def _same_again(sit: Situation) -> Action | None:
    """A run that crashed without a word about memory, once more; not a third time, and not when it was skipped."""
    run = last_ended(sit)
    if run is None or run.outcome != "failed" or sit.skipped(run.subject) is not None:
        return None
    crashed = [r for r in sit.state.runs if r.subject == run.subject and r.outcome is not None]
    case = Case(sit, run, run.config, cause_of(run.failure), run.config.n_ctx)
    rule = first(REPEAT, case)
    if rule is None or len(crashed) > 1:
        return None
    launch = repeat(sit, run)
    advice = replace(
        launch.advice,
        title=f"The same again: {run.reason}",
        why=rule.text(case),
        risk=rule.risk,
        rule=rule.id,
        source=rule.source,
    )
    return replace(launch, advice=advice)


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
    missing = _not_measured(sit, best)
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
    trained = sit.oracle.n_ctx_train
    return best.config.n_ctx < (min(wanted, trained) if trained else wanted)


def _why(sit: Situation, best: RunRecord, *, stopped: bool) -> str:
    parts = [f"run {best.number} proved the types in the engine's own log"]
    if best.speeds:
        speed = best.speeds[-1]
        caveat = f" ({speed.note})" if speed.note else ""
        parts.append(f"decodes {rate(speed.decode_tps)} at a depth of {speed.depth:,} tokens{caveat}")
    free = free_at_peak(sit.state, best)
    if free is not None and sit.on_gpu:
        parts.append(f"leaves {size(free)} free at the peak")
    proof = proven_stable(sit, best)
    if proof is not None:
        growth = growth_per_request(proof)
        slope = "" if growth is None else f", memory {signed_size(growth)} a request"
        parts.append(f"was filled to 95 % {proof.stability[-1].asked} times{slope}")
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


def proven_stable(sit: Situation, run: RunRecord) -> RunRecord | None:
    """The run that filled the configuration of `run` again and again, and held."""
    runs = (r for r in reversed(sit.state.runs) if r.config == run.config and r.stability)
    return next((r for r in runs if sit.stable(r).ok), None)


def _not_measured(sit: Situation, best: RunRecord | None) -> tuple[str, ...]:
    missing = []
    if best is not None and proven_stable(sit, best) is None:
        missing.append(
            "stability: the configuration was not filled again and again, so memory may still grow"
        )
    if not sit.on_gpu:
        missing.append("GPU memory: there is no GPU here, host memory of the engine's process stands in")
    missing += [f"step {s.number}: {s.summary}" for s in sit.state.steps if s.outcome == "skipped"]
    missing += [f"{tokens(s.context)} of context: {s.reason}" for s in sit.state.skipped]
    return tuple(missing)
