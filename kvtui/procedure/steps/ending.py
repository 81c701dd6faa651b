"""The end of step 5 in words: what was measured, what nothing here brings, and what would be left to try."""

from __future__ import annotations

from kvtui.core.units import signed_size, tokens
from kvtui.procedure.rules import first, will_not_help
from kvtui.procedure.rules.limits import MEASURE_FIRST, STOP
from kvtui.procedure.rules.offload import OFFLOAD
from kvtui.procedure.rules.rule import MEMORY_CAUSES, Case, meaningful
from kvtui.procedure.situation import Close, Situation
from kvtui.procedure.speeds import deepest_decode
from kvtui.procedure.steps.diagnosis import case_of, failures_at, next_goal
from kvtui.procedure.variables import BY_NAME
from kvtui.session.records import Recommendation
from kvtui.session.state import RunRecord


def end(sit: Situation, best: RunRecord | None) -> Close:
    """Close the step: with trouble that nothing here cures, or with what was measured."""
    goal = next_goal(sit, best)
    if goal is not None:
        failed = failures_at(sit, goal)
        if failed:
            return _give_up(sit, best, case_of(sit, failed[-1]))
        if best is not None:
            return _give_up(sit, best, case_of(sit, best, goal))
    if best is None:
        return Close(5, "skipped", "no stage holds: nothing to work on")
    return _nothing_to_do(sit)


def _give_up(sit: Situation, best: RunRecord | None, case: Case) -> Close:
    wanted = tokens(case.goal)
    holds = f"{tokens(best.config.n_ctx)} is what holds" if best is not None else "no context holds"
    limit = first(STOP, case)
    measured = _measured(sit)
    if limit is not None:
        text = "; ".join([f"{wanted}: {limit.text(case)}", *measured])
        advice = _nothing_brings(wanted, limit.text(case), will_not_help(case), limit.id, limit.source)
        return Close(5, "passed" if measured else "not-needed", text, advice)
    unsure = first(MEASURE_FIRST, case)
    offers = case.cause in MEMORY_CAUSES and meaningful(case, "gpu-layers") and sit.on_gpu
    left = "; CPU offload would make room at the price of decode speed" if offers else ""
    named = tuple(rule.text(case) for rule in OFFLOAD if rule.kind == "named" and rule.holds(case))
    why = f"every change for it was tried or cannot make the room; {holds}{left}"
    advice = _nothing_brings(
        wanted,
        "; ".join([why, *named, *([unsure.text(case)] if unsure else [])]),
        will_not_help(case),
        "",
        "",
    )
    solved = any(sit.stable(r).ok and not r.subject.startswith("reserve:") for r in _tried(sit))
    text = f"nothing left to change for {wanted}: {holds}{left}"
    return Close(5, "passed" if solved else "failed", "; ".join([text, *measured]), advice)


def _nothing_brings(
    wanted: str, why: str, not_this: tuple[str, ...], rule: str, source: str
) -> Recommendation:
    return Recommendation(
        kind="will-not-help",
        title=f"Nothing here brings {wanted}",
        why=why,
        not_this=not_this,
        rule=rule,
        source=source,
    )


def _nothing_to_do(sit: Situation) -> Close:
    measured = _measured(sit)
    if not measured:
        return Close(5, "not-needed", "nothing failed, so there is nothing to change")
    good = any(sit.stable(r).ok for r in _tried(sit))
    return Close(5, "passed" if good else "failed", "; ".join(measured))


def _tried(sit: Situation) -> tuple[RunRecord, ...]:
    purposes = ("transient", "concurrency", "stability")
    return tuple(
        r for r in sit.state.runs if r.step == 5 and r.purpose in purposes and r.outcome != "cancelled"
    )


def _measured(sit: Situation) -> list[str]:
    """What the runs of this step showed, in words."""
    parts = []
    for run in _tried(sit):
        holds = sit.stable(run)
        if run.purpose == "concurrency":
            verdict = "hold" if holds.ok else f"do not hold: {holds.why}"
            parts.append(f"{run.config.n_parallel} requests at once {verdict}")
        elif run.purpose == "stability":
            asked = run.stability[-1].asked if run.stability else 0
            verdict = f"{asked} times 95 % full, and stable" if holds.ok else f"not stable: {holds.why}"
            parts.append(f"{tokens(run.config.n_ctx)}: {verdict}")
        elif run.subject.startswith("reserve:"):
            parts.append(_reserve_text(sit, run))
        elif holds.ok and run.change is not None:
            variable = BY_NAME.get(run.change.variable)
            what = variable.label if variable is not None else run.change.option
            price = _price(sit, run)
            parts.append(f"{tokens(run.config.n_ctx)} holds with {what} {run.change.after}{price}")
    return parts


def _price(sit: Situation, run: RunRecord) -> str:
    """What leaving the GPU cost in decode speed, empty for every other change."""
    if run.change is None or run.change.variable not in ("gpu-layers", "cpu-moe"):
        return ""
    before = next(
        (r for r in reversed(sit.state.runs) if r.counts and r.number < run.number and r.speeds), None
    )
    then, now = deepest_decode(before) if before else None, deepest_decode(run)
    if then is None or now is None:
        return ", its price in decode speed was not measured"
    return f", decode {now[1] / then[1] - 1:+.0%} against run {before.number if before else '?'}"


def _reserve_text(sit: Situation, run: RunRecord) -> str:
    before = sit.state.run(run.change.against_run) if run.change else None
    if not run.counts or before is None:
        return f"micro-batch {run.config.n_ubatch}: {run.reason}"
    peaks = [r.memory.highest.engine_bytes for r in (before, run) if r.memory and r.memory.highest]
    known = [p for p in peaks if p is not None]
    freed = f"{signed_size(known[1] - known[0])} at the peak" if len(known) == 2 else "memory not measured"
    speeds = [r.speeds[-1].prompt_tps for r in (before, run) if r.speeds]
    rates = [s for s in speeds if s]
    price = f", prefill {rates[1] / rates[0] - 1:+.0%}" if len(rates) == 2 else ""
    return f"micro-batch {before.config.n_ubatch} to {run.config.n_ubatch}: {freed}{price}"
