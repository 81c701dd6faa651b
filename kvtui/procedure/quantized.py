"""Step 3: the same prompts at the same depths with quantized KV, proven by the log."""

from __future__ import annotations

from kvtui.core.units import signed_size
from kvtui.procedure.baseline import task_probes
from kvtui.procedure.compare import baseline_of, quality
from kvtui.procedure.situation import Action, Close, Situation
from kvtui.session.state import RunRecord


def subject(pair: str) -> str:
    """Step 3 with one pair of types."""
    return f"quantized:{pair}"


def wanted_types(sit: Situation) -> tuple[str, str]:
    """The pair to try: values stay f16 where flash attention is off, since quantized values need it."""
    kind = sit.plan.kv_type
    return (kind, "f16") if flash_attention_off(sit) else (kind, kind)


def flash_attention_off(sit: Situation) -> bool:
    """True when the engine itself switched flash attention off in an earlier run of this session."""
    for run in reversed(sit.state.runs):
        if run.counts and run.facts.main is not None and run.facts.main.flash_attn is not None:
            return run.facts.main.flash_attn == "disabled"
    return False


def next_action(sit: Situation) -> Action:
    """Run it once; the gate is proof of the types and no task lost."""
    pair = "/".join(wanted_types(sit))
    name = subject(pair)
    run = sit.tried(name)
    skipped = sit.skipped(name)
    if run is None and skipped is not None:
        return Close(3, "skipped", f"skipped by the operator: {skipped}")
    if run is None:
        return _propose(sit, name)
    if run.outcome != "ok":
        return Close(3, "failed", f"{run.reason}; later steps keep f16 KV")
    found = quality(sit.state, run)
    if found is not None and found.regressed:
        return Close(3, "failed", f"{pair} loses {', '.join(found.regressed)}; later steps keep f16 KV")
    holds = sit.stable(run)
    if holds.trouble == "recall":
        return Close(3, "failed", f"{pair}: {holds.why}; later steps keep f16 KV")
    return Close(3, "passed", summary(sit, run))


def accepted_types(sit: Situation) -> tuple[str, str]:
    """The pair that later steps use: step 3's when it passed, else full precision."""
    step = sit.state.steps[2]
    if step.outcome == "passed":
        run = sit.tried(subject("/".join(wanted_types(sit))))
        if run is not None:
            return run.config.type_k, run.config.type_v
    return "f16", "f16"


def _propose(sit: Situation, name: str) -> Action:
    base = baseline_of(sit.state)
    context = base.config.n_ctx if base else sit.plan.baseline_context
    type_k, type_v = wanted_types(sit)
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
    return sit.launch(
        3,
        "quantized",
        name,
        config,
        task_probes(sit, context),
        title=f"Quantize KV: {type_k}/{type_v}, nothing else",
        why=why,
        variable="kv-types",
        risk="outputs may differ in wording; verdicts are compared with the baseline",
        not_this=not_this,
        against=base,
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
        parts.append(f"{found.identical} of {found.total} outputs identical, no verdict lost")
    return ", ".join(parts)
