"""The facts as the JSON document `kvtui.log/1`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from kvtui.core.findings import Finding
from kvtui.logs.facts import BufferFacts, CacheFacts, ContextFacts, EngineFacts

SCHEMA = "kvtui.log/1"


def as_json(facts: EngineFacts) -> dict[str, Any]:
    """`facts` in the shape that scripts rely on. What the log does not show is absent or null."""
    slots = facts.slots
    return {
        "schema": SCHEMA,
        "engine": facts.engine,
        "build": facts.build,
        "commit": facts.commit,
        "compiler": facts.compiler,
        "outcome": facts.outcome,
        "requested": dict(facts.requested),
        "devices": [_present(asdict(d)) for d in facts.devices],
        "contexts": [_context(c) for c in facts.contexts],
        "slots": _present(asdict(slots)) if slots else None,
        "model_buffers": _buffers(facts.model_buffers),
        "offloaded": list(facts.offloaded) if facts.offloaded else None,
        "actual": facts.actual,
        "failures": [_present(asdict(f)) for f in facts.failures],
        "findings": [finding_json(f) for f in facts.findings],
        "n_lines": facts.n_lines,
        "lines": dict(facts.lines),
    }


def finding_json(finding: Finding) -> dict[str, Any]:
    """One finding with its evidence."""
    return {
        "id": finding.id,
        "severity": finding.severity,
        "title": finding.title,
        "why": finding.why,
        "next": finding.next,
        "evidence": [{"line": e.line, "text": e.text} for e in finding.evidence],
    }


def _context(context: ContextFacts) -> dict[str, Any]:
    return {
        "role": context.role,
        "launch": context.launch,
        "n_ctx": context.n_ctx,
        "n_ctx_seq": context.n_ctx_seq,
        "n_seq_max": context.n_seq_max,
        "n_batch": context.n_batch,
        "n_ubatch": context.n_ubatch,
        "kv_unified": context.kv_unified,
        "flash_attn": context.flash_attn,
        "flash_attn_requested": context.flash_attn_requested,
        "n_ctx_train": context.n_ctx_train,
        "n_rs_seq": context.n_rs_seq,
        "graph_splits": context.graph_splits,
        "caches": [_cache(c) for c in context.caches],
        "kv_buffers": _buffers(context.kv_buffers),
        "rs_buffers": _buffers(context.rs_buffers),
        "compute_buffers": _buffers(context.compute_buffers),
        "output_buffers": _buffers(context.output_buffers),
        "lines": dict(context.lines),
    }


def _cache(cache: CacheFacts) -> dict[str, Any]:
    return _present(asdict(cache))


def _buffers(buffers: tuple[BufferFacts, ...]) -> list[dict[str, Any]]:
    return [_present(asdict(b)) for b in buffers]


def _present(values: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in values.items() if v is not None}
