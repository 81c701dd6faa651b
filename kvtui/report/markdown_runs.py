"""One run in Markdown: what was asked, what the log proves with its lines, what was measured."""

from __future__ import annotations

from pathlib import PurePosixPath

from kvtui.core.findings import Finding
from kvtui.core.units import MIB, signed_size, size
from kvtui.report import words
from kvtui.report.escape import code, fence, table, text
from kvtui.report.facts import SessionFacts
from kvtui.report.run_facts import RunFacts


def run_section(session: SessionFacts, run: RunFacts, log_dir: str) -> list[str]:
    """Everything about one run."""
    record = run.record
    return [
        f"### Run {record.number}: step {record.step}, {text(words.purpose(record.purpose))}",
        "",
        *_summary(session, run, log_dir),
        *fence(run.command, "sh"),
        "",
        *_checks(run),
        *_moved(run),
        *_memory(run),
        *_speeds(run),
        *_tasks(run),
        *_concurrency(run),
        *_full_pool(run),
        *_stability(run),
        *_failures(run),
    ]


def _summary(session: SessionFacts, run: RunFacts, log_dir: str) -> list[str]:
    record, started = run.record, session.state.started
    outcome = words.outcome(record)
    if record.failure:
        outcome += f" ({record.failure})"
    if record.reason:
        outcome += f": {text(record.reason)}"
    rows = [
        ("changed", text(words.changed(run))),
        ("outcome", outcome),
        ("quantization", text(words.quantization(started.model.quant, run))),
        ("engine", text(_build(session, run))),
        ("context", words.context(run.context)),
        ("KV bytes", text(words.kv(run.kv))),
        ("all-layers formula", words.kv_bytes(run.kv.conventional, "no forecast")),
        ("draft or MTP", _side_contexts(run)),
        ("spill to the host", _spill(run, on_host=started.device.kind == "host")),
        ("tokens of timed requests", _tokens(run)),
        ("recall", words.share(run.recall)),
        ("sampling", f"temperature {record.temperature:g}, seed {record.seed}"),
        ("time", f"load {words.seconds(record.load_s)}, whole run {words.seconds(record.wall_s or None)}"),
        ("from, to", f"{code(record.started_at)}, {code(record.finished_at or 'not ended')}"),
        ("raw log", code(f"{log_dir}/{PurePosixPath(record.log).name}") if record.log else "none"),
    ]
    if record.exit_code is not None:
        rows.insert(2, ("exit status of the engine", str(record.exit_code)))
    rows += [("left out", f"{code(m.option)}, and with it: {text(m.lost)}") for m in record.missing]
    rows += [("then", code(line)) for line in record.follow]
    return table(("what", ""), rows)


def _build(session: SessionFacts, run: RunFacts) -> str:
    label = session.state.started.engine.label
    if run.build is None:
        return f"{label}; its build is not in the log"
    return f"{label}; log: build {run.build}" + (f" ({run.commit})" if run.commit else "")


def _side_contexts(run: RunFacts) -> str:
    if run.side_contexts is None:
        return words.NOT_PROVEN
    each = (
        f"{text(c.role)}: {words.count(c.n_ctx)} tokens, {text(c.kv_types or 'types not proven')}, "
        f"{words.kv_bytes(c.kv_bytes)}"
        for c in run.side_contexts
    )
    return "; ".join(each) or "none in the log"


def _spill(run: RunFacts, *, on_host: bool) -> str:
    spill = run.spill
    if on_host:
        return "does not apply: no GPU here"
    kv = words.kv_bytes(spill.kv_host_bytes)
    layers = words.NOT_PROVEN if spill.layers_on_cpu is None else str(spill.layers_on_cpu)
    host = words.bytes_(run.memory.host_peak)
    return f"KV on the host: {kv}; layers on the CPU: {layers}; host memory at most {host}"


def _tokens(run: RunFacts) -> str:
    if run.prompt_tokens is None or run.generated_tokens is None:
        return words.NOT_MEASURED
    return f"{run.prompt_tokens:,} prompt, {run.generated_tokens:,} generated"


def _checks(run: RunFacts) -> list[str]:
    texts = run.record.facts.texts
    rows = [
        (
            check.setting,
            code(check.asked),
            code(check.actual),
            check.state,
            "" if check.line is None else str(check.line),
            code(texts[check.line]) if check.line in texts else text(check.note),
        )
        for check in run.checks
    ]
    return table(("setting", "asked", "actual", "state", "log line", "evidence"), rows)


def _moved(run: RunFacts) -> list[str]:
    change = run.record.change
    if change is None or not run.moved:
        return []
    meant = {m.variable for m in run.moved} - {m.variable for m in run.hidden}
    rows = [
        (
            text(words.label(m.variable)),
            code(m.before),
            code(m.after),
            "yes" if m.variable in meant else "**no**",
        )
        for m in run.moved
    ]
    return table((f"actual setting, against run {change.against_run}", "before", "after", "meant"), rows)


def _memory(run: RunFacts) -> list[str]:
    points, parts, record = run.memory, run.breakdown, run.record.memory
    if record is None:
        return ["Memory: not measured.", ""]
    rows = [
        ("before, held by others", words.bytes_(points.before)),
        ("after load", words.bytes_(points.after_load)),
        ("after warm-up", words.bytes_(points.after_warm_up)),
        ("peak in prefill", words.bytes_(points.peak_prefill)),
        ("peak in decode", words.bytes_(points.peak_decode)),
        (
            "highest of all" + (f", in {points.peak_phase}" if points.peak_phase else ""),
            words.bytes_(points.peak),
        ),
        ("at the peak: weights", words.bytes_(parts.weights)),
        ("at the peak: KV", words.bytes_(parts.kv)),
        ("at the peak: compute buffers", words.bytes_(parts.compute)),
        ("at the peak: the engine's rest", words.bytes_(parts.other)),
        ("at the peak: others", words.bytes_(parts.others)),
        ("at the peak: free", words.bytes_(parts.free)),
        ("forecast for the whole engine", words.forecast(run)),
    ]
    how = f"every {record.interval_s:g} s, {words.NOT_MEASURED if points.basis is None else points.basis}"
    lost = f", {record.lost} readings lost" if record.lost else ""
    return table((f"memory ({how}{lost})", ""), rows)


def _speeds(run: RunFacts) -> list[str]:
    rows = [
        (
            f"{s.depth:,}",
            words.spread(s.prompt_tps, s.prompt_range),
            words.spread(s.decode_tps, s.decode_range),
            words.seconds(s.first_token_s),
            str(len(s.repeats)),
            "not measured" if s.gpu_util is None else f"{s.gpu_util} %",
            text(s.note),
        )
        for s in run.record.speeds
    ]
    head = (
        "depth",
        "prompt (spread)",
        "decode (spread)",
        "time to first token",
        "repeats",
        "GPU busy",
        "note",
    )
    return table(head, rows) or ["Speed: not measured.", ""]


def _tasks(run: RunFacts) -> list[str]:
    rows = [
        (
            code(t.task),
            f"{t.depth:,}",
            "passed" if t.passed else "**failed**",
            text(t.error or t.why),
            str(len(t.tokens)),
        )
        for t in run.record.tasks
    ]
    return table(("task", "depth", "verdict", "what it missed", "tokens"), rows) or [
        "Tasks: not measured.",
        "",
    ]


def _concurrency(run: RunFacts) -> list[str]:
    rows = [
        (
            str(c.requested),
            f"{c.depth:,}",
            str(c.failed),
            ", ".join(words.speed(rate) for rate in c.decode_tps) or words.NOT_MEASURED,
            "; ".join(text(e) for e in c.errors) or "none",
        )
        for c in run.record.concurrency
    ]
    return table(("requests at once", "tokens each", "failed", "decode, each", "errors"), rows)


def _full_pool(run: RunFacts) -> list[str]:
    rows = [
        (
            str(p.requested),
            f"{p.depth:,} + {p.answer:,}",
            f"{p.pool:,}",
            str(p.failed),
            "yes" if p.recovered else "**no**",
            "; ".join(text(e) for e in p.errors) or "none",
        )
        for p in run.record.full_pool
    ]
    head = ("requests at once", "tokens each", "cells they share", "failed", "one works afterwards", "errors")
    return table(head, rows)


def _stability(run: RunFacts) -> list[str]:
    rows = []
    for result in run.record.stability:
        levels = [r.memory_bytes for r in result.requests if r.memory_bytes is not None]
        grown = levels[-1] - result.start_bytes if levels and result.start_bytes is not None else None
        rows.append(
            (
                f"{result.depth:,} + {result.n_decode:,}",
                f"{len(result.requests)} of {result.asked}",
                str(result.failed),
                words.measured(grown, signed_size),
            )
        )
    return table(("nearly full: tokens", "requests", "failed", "memory, last against first"), rows)


def _failures(run: RunFacts) -> list[str]:
    rows = [
        (
            f.phase,
            f.kind,
            text(f.device or ""),
            "" if f.wanted_mib is None else size(f.wanted_mib * MIB),
            "" if f.line is None else str(f.line),
            code(f.text),
        )
        for f in run.record.facts.failures
    ]
    return table(("failed in", "how", "device", "wanted", "log line", "text"), rows)


def finding_lines(run: int, finding: Finding) -> list[str]:
    """One finding as a list item, its evidence below it."""
    why = text(finding.why).removesuffix(".")
    head = f"- **{finding.severity}**, run {run}: {text(finding.title)} ({code(finding.id)}). {why}."
    lines = [head + (f" Change next: {code(finding.next)}." if finding.next else "")]
    for evidence in finding.evidence:
        where = "measured" if evidence.line is None else f"log line {evidence.line}"
        lines.append(f"  - {where}: {code(evidence.text)}")
    return lines
