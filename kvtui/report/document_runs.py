"""One run as it stands in the JSON document; kvtui.report.document lists the keys."""

from __future__ import annotations

from typing import Any

from kvtui.probes.results import RecallResult, TaskResult
from kvtui.procedure.memory import Breakdown
from kvtui.report.facts import SessionFacts
from kvtui.report.run_facts import RunFacts
from kvtui.report.words import quantization
from kvtui.session.codec import to_builtins


def without(value: Any, *names: str) -> dict[str, Any]:
    """The fields of a recorded value, those called `names` left out."""
    fields: dict[str, Any] = to_builtins(value)
    return {name: item for name, item in fields.items() if name not in names}


def run_document(session: SessionFacts, run: RunFacts) -> dict[str, Any]:
    """One run; its keys are listed in kvtui.report.document."""
    record = run.record
    return {
        "run": record.number,
        "step": record.step,
        "purpose": record.purpose,
        "subject": record.subject,
        "outcome": record.outcome,
        "counts": record.counts,
        "interrupted": record.interrupted,
        "reason": record.reason,
        "failure": record.failure,
        "exit_code": record.exit_code,
        "started_at": record.started_at,
        "finished_at": record.finished_at,
        "wall_s": record.wall_s or None,
        "engine_s": record.engine_s if record.wall_s else None,
        "load_s": record.load_s,
        **_identity(session, run),
        **_settings(run),
        **_measured(run),
        "config": to_builtins(record.config),
        "argv": record.argv,
        "env": record.env,
        "command": run.command,
        "follow": record.follow,
        "missing": to_builtins(record.missing),
        "sampling": {"temperature": record.temperature, "seed": record.seed},
        "facts": to_builtins(record.facts),
    }


def _identity(session: SessionFacts, run: RunFacts) -> dict[str, Any]:
    started = session.state.started
    return {
        "change": to_builtins(run.record.change),
        "moved": to_builtins(run.moved),
        "hidden": to_builtins(run.hidden),
        "quantization": quantization(started.model.quant, run),
        "weight_quant": started.model.quant,
        "kv_types_asked": run.record.config.kv_types,
        "kv_types": run.kv_types,
        "device": started.device.name,
        "driver": started.device.driver,
        "cuda": started.device.cuda,
        "engine": started.engine.label,
        "build": run.build,
        "commit": run.commit,
        "model": {
            "file_name": started.model.file_name,
            "file_bytes": started.model.file_bytes,
            "header_sha256": started.model.header_sha256,
        },
    }


def _settings(run: RunFacts) -> dict[str, Any]:
    config, main, slots = run.record.config, run.record.facts.main, run.record.facts.slots
    texts = run.record.facts.texts
    return {
        "context": to_builtins(run.context),
        "slots": {"asked": config.n_parallel, "actual": slots.n_slots if slots else None},
        "unified": {"asked": config.kv_unified, "actual": main.kv_unified if main else None},
        "n_batch": {"asked": config.n_batch, "actual": main.n_batch if main else None},
        "n_ubatch": {"asked": config.n_ubatch, "actual": main.n_ubatch if main else None},
        "flash_attn": {"asked": config.flash_attn, "actual": run.flash_attn},
        "gpu_layers": {
            "asked": config.n_gpu_layers,
            "actual": run.offloaded[0] if run.offloaded else None,
            "total": run.offloaded[1] if run.offloaded else None,
        },
        "side_contexts": to_builtins(run.side_contexts),
        "checks": [
            {**to_builtins(c), "text": texts.get(c.line) if c.line is not None else None} for c in run.checks
        ],
    }


def _measured(run: RunFacts) -> dict[str, Any]:
    record, deepest, memory = run.record, run.deepest, run.record.memory
    return {
        "prompt_tokens": run.prompt_tokens,
        "generated_tokens": run.generated_tokens,
        "at_depth": deepest.depth if deepest else None,
        "prompt_tps": deepest.prompt_tps if deepest else None,
        "decode_tps": deepest.decode_tps if deepest else None,
        "first_token_s": deepest.first_token_s if deepest else None,
        "speeds": to_builtins(record.speeds),
        "kv": {
            "forecast_bytes": run.kv.forecast,
            "proven_bytes": run.kv.proven,
            "difference_bytes": run.kv.difference,
            "rounding_bytes": run.kv.rounding,
            "conventional_bytes": run.kv.conventional,
            "exactness": run.kv.exactness,
        },
        "memory": {
            "basis": run.memory.basis,
            "before_bytes": run.memory.before,
            "after_load_bytes": run.memory.after_load,
            "after_warm_up_bytes": run.memory.after_warm_up,
            "peak_prefill_bytes": run.memory.peak_prefill,
            "peak_decode_bytes": run.memory.peak_decode,
            "peak_bytes": run.memory.peak,
            "peak_phase": run.memory.peak_phase,
            "host_peak_bytes": run.memory.host_peak,
            "interval_s": memory.interval_s if memory else None,
            "lost": memory.lost if memory else None,
            "phases": to_builtins(memory.peaks) if memory else [],
        },
        "forecast": to_builtins(record.forecast),
        "breakdown": _breakdown(run.breakdown),
        "spill": to_builtins(run.spill),
        "recall": [_recall(r) for r in record.recalls],
        "tasks": [_task(t) for t in record.tasks],
        "concurrency": to_builtins(record.concurrency),
        "full_pool": to_builtins(record.full_pool),
        "stability": to_builtins(record.stability),
        "repeated": [_task(t) for t in record.repeated],
        "prompts": record.prompts or None,
        "prompts_reason": record.prompts_reason,
        "quality": _quality(run),
        "findings": to_builtins(record.findings),
        "failures": to_builtins(record.facts.failures),
    }


def _breakdown(parts: Breakdown) -> dict[str, Any]:
    return {
        "total_bytes": parts.total,
        "weights_bytes": parts.weights,
        "kv_bytes": parts.kv,
        "compute_bytes": parts.compute,
        "other_bytes": parts.other,
        "others_bytes": parts.others,
        "free_bytes": parts.free,
        "proven": parts.proven,
    }


def _recall(result: RecallResult) -> dict[str, Any]:
    return {
        "depth": result.depth,
        "found": result.found,
        "total": len(result.needles),
        "seconds": result.seconds,
        "needles": to_builtins(result.needles),
    }


def _task(result: TaskResult) -> dict[str, Any]:
    return {**without(result, "choices"), "generated_tokens": len(result.tokens)}


def _quality(run: RunFacts) -> dict[str, Any] | None:
    if run.quality is None:
        return None
    return {
        "baseline_run": run.quality.baseline_run,
        "identical": run.quality.identical,
        "total": run.quality.total,
        "regressed": run.quality.regressed,
        "baseline_failed": run.quality.baseline_failed,
        "divergences": to_builtins(run.quality.divergences),
        "not_repeated": run.quality.summary.not_repeated,
        "top_agreement": run.quality.summary.top_agreement,
        "shift": run.quality.summary.shift,
        "conclusion": run.quality.summary.conclusion,
    }
