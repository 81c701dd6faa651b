"""Step 3: the same prompts at the same depths with quantized KV, proven by the log."""

from __future__ import annotations

from kvtui.core.units import signed_size
from kvtui.probes.divergence import brief
from kvtui.procedure.compare import baseline_of, quality
from kvtui.procedure.rules import BY_ID
from kvtui.procedure.rules.rule import Case, Cause
from kvtui.procedure.rules.types import KEYS_BACK
from kvtui.procedure.situation import Action, Close, Situation
from kvtui.procedure.steps.baseline import task_probes
from kvtui.session.records import Recommendation
from kvtui.session.state import RunRecord


def subject(pair: str) -> str:
    """Step 3 with one pair of types."""
    return f"quantized:{pair}"


def wanted_types(sit: Situation) -> tuple[str, str]:
    """The pair to try first: the preset's, or the engine's first below full precision where it does not have that.

    Values stay as they are where flash attention is off, since quantized values need it.
    """
    ladder = sit.engine.traits.kv_ladder
    asked = (sit.plan.kv_type, sit.plan.kv_type)
    pair = asked if asked in ladder or len(ladder) < 2 or not _names(ladder, asked[0]) else ladder[1]
    return (pair[0], sit.full_precision[1]) if flash_attention_off(sit) else pair


def _names(ladder: tuple[tuple[str, str], ...], kind: str) -> bool:
    """True when none of the ladder's pairs speaks the preset's language of types."""
    return not any(kind in pair for pair in ladder)


def flash_attention_off(sit: Situation) -> bool:
    """True when the engine itself switched flash attention off in an earlier run of this session."""
    for run in reversed(sit.state.runs):
        if run.counts and run.facts.main is not None and run.facts.main.flash_attn is not None:
            return run.facts.main.flash_attn == "disabled"
    return False


def next_action(sit: Situation) -> Action:
    """The wanted pair, then pairs with better keys while low-bit keys lose; the gate is proof and no task lost."""
    pair, after = wanted_types(sit), None
    while True:
        name = subject("/".join(pair))
        run = sit.tried(name)
        skipped = sit.skipped(name)
        if run is None and skipped is not None:
            return Close(3, "skipped", f"skipped by the operator: {skipped}")
        if run is None:
            return _propose(sit, pair, after)
        problem = _problem(sit, run)
        if problem is None:
            return Close(3, "passed", summary(sit, run), _too_short(sit, run))
        better = _better_keys(sit, run)
        if better is None:
            full = "/".join(sit.full_precision)
            return Close(3, "failed", f"{problem}; later steps keep {full} KV")
        pair, after = better, run


def _problem(sit: Situation, run: RunRecord) -> str | None:
    """Why the pair of `run` is not used by later steps."""
    if run.outcome != "ok":
        return run.reason
    found = quality(sit.state, run)
    if found is not None and found.regressed:
        return f"{run.config.kv_types} loses {', '.join(found.regressed)}"
    holds = sit.stable(run)
    return f"{run.config.kv_types}: {holds.why}" if holds.trouble in ("recall", "kernel") else None


def _case(sit: Situation, run: RunRecord) -> Case:
    lost = sit.stable(run).trouble
    cause: Cause = "recall" if lost == "recall" else "quality" if lost == "quality" else "other"
    return Case(sit, run, run.config, cause, run.config.n_ctx)


def _better_keys(sit: Situation, run: RunRecord) -> tuple[str, str] | None:
    case = _case(sit, run)
    if run.outcome != "ok" or not KEYS_BACK.holds(case):
        return None
    config = next(KEYS_BACK.values(case))
    return config.type_k, config.type_v


def _too_short(sit: Situation, run: RunRecord) -> Recommendation | None:
    """Says so where no gain can be visible at this context."""
    rule, case = BY_ID["context-too-short-to-show"], _case(sit, run)
    if not rule.holds(case):
        return None
    title = f"{run.config.kv_types} shows no gain at {run.config.n_ctx:,} tokens"
    return Recommendation("will-not-help", title, rule.text(case), rule=rule.id, source=rule.source)


def accepted_types(sit: Situation) -> tuple[str, str]:
    """The pair that later steps use: step 3's when it passed, else full precision."""
    runs = sit.runs("quantized")
    if sit.state.steps[2].outcome == "passed" and runs:
        return runs[-1].config.type_k, runs[-1].config.type_v
    return sit.full_precision


def _propose(sit: Situation, pair: tuple[str, str], after: RunRecord | None) -> Action:
    """`after` is the run whose low-bit keys lost, None for the first pair."""
    base = baseline_of(sit.state)
    context = base.config.n_ctx if base else sit.plan.baseline_context
    type_k, type_v = pair
    off = flash_attention_off(sit)
    config = sit.base(
        n_ctx=context, type_k=type_k, type_v=type_v, flash_attn="off" if off else "on", n_parallel=1
    )
    why = "halves the memory per token with little loss; same prompts at the same depths show what it does to outputs"
    if not off:
        why += "; -fa on spells out what the engine's own probe had decided already"
    not_this: tuple[str, ...] = ()
    if off:
        why = "this device has no flash attention for this model, which quantized values need: only keys are quantized"
        not_this = (f"{sit.plan.kv_type} values: the engine would refuse them without flash attention",)
    if after is not None:
        why = KEYS_BACK.why
    return sit.launch(
        3,
        "quantized",
        subject("/".join(pair)),
        config,
        task_probes(sit, context),
        title=f"Quantize KV: {type_k}/{type_v}, nothing else",
        why=why,
        variable="kv-types",
        risk="outputs may differ in wording; verdicts are compared with the baseline",
        not_this=not_this,
        against=base,
        rule=KEYS_BACK.id if after is not None else "",
        source=KEYS_BACK.source if after is not None else "",
    )


def saved_bytes(sit: Situation, run: RunRecord) -> int | None:
    """KV bytes of `run` minus those of the baseline, both as the log proves them."""
    base = baseline_of(sit.state)
    mine = run.facts.main.kv_mib if run.facts.main else None
    theirs = base.facts.main.kv_mib if base is not None and base.facts.main else None
    return None if mine is None or theirs is None else round((mine - theirs) * (1 << 20))


def summary(sit: Situation, run: RunRecord) -> str:
    """One line for the checklist."""
    saved = saved_bytes(sit, run)
    found = quality(sit.state, run)
    parts = [f"{run.config.kv_types} proven"]
    if found is not None and found.recall_found is not None and found.baseline_recall_found is not None:
        parts.append(
            f"recall {found.recall_found} of {found.recall_total} ({found.baseline_recall_found} at f16)"
        )
    if saved is not None:
        parts.append(f"KV {signed_size(saved)}")
    if found is not None:
        parts.append(brief(found.summary))
    return ", ".join(parts)
