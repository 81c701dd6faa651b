"""The facts of a log as a page that is read at a glance."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from kvtui.core.findings import Finding
from kvtui.logs.facts import BufferFacts, CacheFacts, ContextFacts, EngineFacts

WIDTH = 80
_MARK = {"error": "ERROR", "warning": "WARN ", "info": "info "}


def overview(facts: EngineFacts, name: str) -> str:
    """Facts first, findings after them; the numbers in brackets are the lines that prove it."""
    return "\n".join(
        (
            *(_fill(row, 15 if row.startswith("  ") else 11) for row in (*_head(facts, name), *_body(facts))),
            "",
            *(_fill(row, 6) for row in findings_text(facts.findings)),
        )
    )


def _fill(row: str, indent: int) -> str:
    return textwrap.fill(
        row, WIDTH, subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False
    )


def _head(facts: EngineFacts, name: str) -> Iterator[str]:
    build = f" {facts.build}" if facts.build else ""
    yield f"{name}: {facts.engine}{build}, {facts.outcome}{_at(facts.lines.get('outcome'))}"
    if facts.requested:
        yield "requested  " + ", ".join(f"{k} {v}" for k, v in facts.requested.items())


def _body(facts: EngineFacts) -> Iterator[str]:
    if facts.offloaded:
        on, of = facts.offloaded
        yield f"offloaded  {on} of {of} layers{_at(facts.lines.get('offloaded'))}"
    if facts.model_buffers:
        yield f"weights    {_buffers(facts.model_buffers)}"
    for context in facts.contexts:
        yield from _context(context)
    if facts.slots:
        slots = facts.slots
        shared = {True: ", one shared pool", False: ", each its own", None: ""}[slots.kv_unified]
        each = f" of {slots.n_ctx_slot:,} tokens" if slots.n_ctx_slot is not None else ""
        yield f"slots      {slots.n_slots if slots.n_slots is not None else '?'}{each}{shared}{_at(slots.line)}"
    for key, value in (facts.actual or {}).items():
        yield f"{key:<22} {_value(value)}{_at(facts.lines.get(f'actual.{key}'))}"


def _value(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{k} {_value(v)}" for k, v in value.items())
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int | float) else str(value)


def _context(context: ContextFacts) -> Iterator[str]:
    launch = f", start {context.launch}" if context.launch > 1 else ""
    yield f"context    {context.role}{launch}: " + (", ".join(_context_values(context)) or "sizes not shown")
    for cache in context.caches:
        yield "  " + _cache(cache)
    if context.kv_buffers:
        yield f"  KV on        {_buffers(context.kv_buffers)}"
    if context.rs_buffers:
        yield f"  state on     {_buffers(context.rs_buffers)}"
    if context.compute_buffers:
        yield f"  compute on   {_buffers(context.compute_buffers)}"


def _context_values(context: ContextFacts) -> Iterator[str]:
    for label, name in (
        ("n_ctx", "n_ctx"),
        ("per sequence", "n_ctx_seq"),
        ("sequences", "n_seq_max"),
        ("batch", "n_batch"),
        ("ubatch", "n_ubatch"),
    ):
        value = getattr(context, name)
        if value is not None:
            yield f"{label} {value:,}{_at(context.lines.get(name))}"
    if context.kv_unified is not None:
        yield f"unified {'yes' if context.kv_unified else 'no'}"
    asked = f" (asked {context.flash_attn_requested})" if context.flash_attn_requested else ""
    yield f"flash attention {context.flash_attn or 'unproven'}{asked}{_at(context.lines.get('flash_attn'))}"


def _cache(cache: CacheFacts) -> str:
    parts = [f"{cache.kind:<12}"]
    if cache.size_mib is not None:
        parts.append(f"{cache.size_mib:,.2f} MiB:")
    if cache.cells is not None:
        streams = f" x {cache.streams} streams" if cache.streams and cache.streams > 1 else ""
        parts.append(f"{cache.cells:,} cells{streams},")
    if cache.layers is not None and cache.kind != "recurrent":
        parts.append(f"{cache.layers} layers,")
    for label, kind, mib in (
        ("K", cache.type_k, cache.k_mib),
        ("V", cache.type_v, cache.v_mib),
        ("R", cache.type_r, cache.r_mib),
        ("S", cache.type_s, cache.s_mib),
    ):
        if kind is not None:
            size = f" {mib:,.2f}" if mib is not None else ""
            parts.append(f"{label} {kind}{size}")
    return " ".join(parts) + _at(cache.line)


def _buffers(buffers: Sequence[BufferFacts]) -> str:
    totals: dict[str, float] = {}
    for b in buffers:
        totals[b.device] = totals.get(b.device, 0.0) + b.mib
    return ", ".join(f"{device} {mib:,.2f} MiB" for device, mib in totals.items())


def findings_text(findings: Sequence[Finding]) -> Iterator[str]:
    """Each finding with its lines, why it matters and what to change."""
    if not findings:
        yield "no findings"
    for finding in findings:
        where = ", ".join(str(e.line) for e in finding.evidence if e.line is not None)
        yield f"{_MARK[finding.severity]} {finding.id}: {finding.title}{f' [{where}]' if where else ''}"
        yield f"      {finding.why}"
        if finding.next:
            yield f"      next: {finding.next}"


def _at(line: int | None) -> str:
    return f" [{line}]" if line is not None else ""
