"""A session as Markdown, for a person: the verdict, the command line, then everything it stands on."""

from __future__ import annotations

from kvtui.core.units import signed_size, size, tokens
from kvtui.gpu.samples import DeviceInfo
from kvtui.procedure.steps import STEPS
from kvtui.report import words
from kvtui.report.escape import code, fence, table, text
from kvtui.report.facts import SessionFacts, derive
from kvtui.report.handover import pastes
from kvtui.report.markdown_quality import quality_section, recall_section
from kvtui.report.markdown_runs import finding_lines, run_section
from kvtui.report.run_facts import RunFacts
from kvtui.session.events import Decided, Recommended
from kvtui.session.records import Recommendation
from kvtui.session.state import SessionState

_OUTCOMES = {"done": "done", "findings": "done, with findings", "failed": "failed", "stopped": "stopped"}


def render(state: SessionState, *, log_dir: str = "logs") -> str:
    """The report on `state`. `log_dir` is where the engines' raw logs are, as seen from the report."""
    session = derive(state)
    lines = [
        *_verdict(session),
        *_pastes(session),
        *_machine(session),
        *_steps(state),
        *_run_table(session),
        *recall_section(session),
        *quality_section(session),
        *_findings(session),
        *_skipped(state),
        *_decisions(session),
        *_not_measured(session),
        *_time(session),
    ]
    if session.runs:
        lines += ["## Each run", ""]
    for run in session.runs:
        lines += run_section(session, run, log_dir)
    return "\n".join(lines).rstrip() + "\n"


def _verdict(session: SessionFacts) -> list[str]:
    state, started = session.state, session.state.started
    verdict = state.verdict
    lines = [f"# kvtui: {text(started.model.file_name)} on {text(started.device.name)}", ""]
    if verdict is None:
        done = sum(step.outcome is not None for step in state.steps)
        lines += [
            f"**No verdict: the session is unfinished.** {done} of {len(state.steps)} steps are closed.",
            "",
        ]
    else:
        lines += [
            f"**{text(verdict.title) or 'verdict'}** ({_OUTCOMES[verdict.outcome]})",
            "",
            text(verdict.why),
            "",
        ]
    if session.command is not None:
        lines += [*fence(session.command, "sh"), ""]
    elif verdict is not None:
        lines += ["No configuration was proven, so there is no command line to hand over.", ""]
    if session.final is not None:
        lines += _held(session, session.final)
    return lines


def _held(session: SessionFacts, run: RunFacts) -> list[str]:
    deepest = run.deepest
    at = f" at {deepest.depth:,} tokens" if deepest is not None else ""
    caveat = f" ({text(deepest.note)})" if deepest is not None and deepest.note else ""
    free = run.breakdown.free
    rows = [
        ("proven by", f"run {run.record.number}"),
        ("quantization", text(words.quantization(session.state.started.model.quant, run))),
        ("context", words.context(run.context)),
        ("prompt", words.speed(deepest.prompt_tps if deepest else None) + at + caveat),
        ("decode", words.speed(deepest.decode_tps if deepest else None) + at + caveat),
        ("time to first token", words.seconds(deepest.first_token_s if deepest else None) + at),
        ("recall", words.share(run.recall)),
        ("tasks passed", words.share(run.tasks)),
        ("peak memory", _peak(run) + (f", {size(free)} free" if free is not None else "")),
    ]
    return table(("what holds", ""), rows)


def _pastes(session: SessionFacts) -> list[str]:
    lines: list[str] = []
    for paste in pastes(session):
        lines += [
            f"### {paste.title}",
            "",
            f"{text(paste.where)}:",
            "",
            *fence(paste.text, paste.language),
            "",
        ]
        lines += [*(f"- {text(note)}" for note in paste.notes), *([""] if paste.notes else [])]
    return ["## To paste", "", *lines] if lines else []


def _peak(run: RunFacts) -> str:
    phase = f" in {run.memory.peak_phase}" if run.memory.peak_phase else ""
    return words.bytes_(run.memory.peak) + phase


def _machine(session: SessionFacts) -> list[str]:
    started = session.state.started
    device, model, engine, host = started.device, started.model, started.engine, started.host
    build = ", ".join(p for p in (engine.build and f"build {engine.build}", engine.commit) if p)
    made = ", ".join(p for p in (engine.compiler, engine.target, *engine.backends) if p)
    quant = f"{model.quant or 'unknown'} weights"
    resumed = f", resumed {session.state.resumed} times" if session.state.resumed else ""
    trained = "not stated" if model.n_ctx_train is None else tokens(model.n_ctx_train)
    rows = [
        (_device_label(device), text(_device(device))),
        ("engine", text(f"{engine.label}{f' ({build})' if build else ''}")),
        *([("built with", text(made))] if made else []),
        ("model", f"{code(model.file_name)}, {model.file_bytes:,} bytes, {text(quant)}, {text(model.arch)}"),
        ("header SHA-256", code(model.header_sha256)),
        ("trained context", trained),
        ("host", text(f"{host.system}, {host.cpu}, {host.cores} cores, {size(host.memory_bytes)}")),
        (
            "session",
            f"{code(started.session)}, kvtui {text(started.kvtui)}, begun {code(started.at)}{resumed}",
        ),
    ]
    return ["## Machine, engine, model", "", *table(("what", ""), rows)]


def _device_label(device: DeviceInfo) -> str:
    return "memory" if device.kind == "host" else "GPU"


def _device(device: DeviceInfo) -> str:
    parts = [f"{device.name}, {size(device.total_bytes)}"]
    if device.kind == "host":
        parts.append(device.note or "no GPU: host memory of the engine's process stands in for VRAM")
    else:
        api, version = ("ROCm", device.rocm) if device.kind == "amd" else ("CUDA", device.cuda)
        parts += [f"driver {device.driver or words.NOT_MEASURED}", f"{api} {version or words.NOT_MEASURED}"]
    if device.compute_capability:
        parts.append(f"compute capability {device.compute_capability}")
    if device.ecc is not None:
        parts.append(f"ECC {'on' if device.ecc else 'off'}")
    if device.display_attached is not None:
        parts.append("a display is attached" if device.display_attached else "no display attached")
    if device.kind != "host" and device.note:
        parts.append(device.note)
    return ", ".join(parts)


def _steps(state: SessionState) -> list[str]:
    rows = []
    for step, held in zip(STEPS, state.steps, strict=True):
        outcome = held.outcome or ("in progress" if held.started else "not begun")
        rows.append((f"{step.number} {step.title}", outcome, text(held.summary), text(step.gate)))
    return ["## Steps", "", *table(("step", "outcome", "what it showed", "gate"), rows)]


def _run_table(session: SessionFacts) -> list[str]:
    head = (
        *("changed", "run", "KV, proven", "context", "prompt", "decode", "first token", "at depth"),
        *("KV bytes", "peak", "recall", "tasks", "outcome"),
    )
    rows = []
    for run in session.runs:
        record, deepest = run.record, run.deepest
        outcome = words.outcome(record)
        rows.append(
            (
                text(words.changed(run)),
                str(record.number),
                code(run.kv_types) if run.kv_types else words.NOT_PROVEN,
                words.count(run.context.allocated),
                words.speed(deepest.prompt_tps if deepest else None),
                words.speed(deepest.decode_tps if deepest else None),
                words.seconds(deepest.first_token_s if deepest else None),
                f"{deepest.depth:,}" if deepest else words.NOT_MEASURED,
                words.kv_bytes(run.kv.proven),
                words.bytes_(run.memory.peak),
                words.share(run.recall),
                words.share(run.tasks),
                f"{outcome}: {text(record.reason)}" if record.reason else outcome,
            )
        )
    quant = text(session.state.started.model.quant or "unknown")
    note = [f"All runs: {quant} weights, the machine, engine and model above.", ""] if rows else []
    return ["## Runs", "", *(table(head, rows) or ["No run was started.", ""]), *note]


def _findings(session: SessionFacts) -> list[str]:
    found = [(run, finding) for run in session.runs for finding in run.record.findings]
    lines = ["## Findings", ""]
    for run, finding in found:
        lines += finding_lines(run.record.number, finding)
    return [*lines, *([""] if found else ["None.", ""])]


def _skipped(state: SessionState) -> list[str]:
    rows = [(tokens(s.context), text(s.reason)) for s in state.skipped]
    return ["## Stages not run", "", *(table(("context", "why"), rows) or ["None.", ""])]


def _decisions(session: SessionFacts) -> list[str]:
    rows = []
    for advice in session.advice:
        offered, decided = advice.recommended, advice.decided
        step = offered or decided
        rows.append(
            (
                str(step.step) if step else "",
                text(offered.recommendation.title if offered else decided.subject if decided else ""),
                text(offered.recommendation.why) if offered else "",
                _effect(offered.recommendation) if offered else "",
                _choice(decided, offered),
                "" if decided is None else decided.by if decided.by == "operator" else "kvtui, unattended",
                "" if decided is None else text(decided.reason) or "none given",
            )
        )
    head = ("step", "advised", "why", "expected effect", "decision", "by", "reason of the decision")
    return ["## Advice and decisions", "", *(table(head, rows) or ["None.", ""])]


def _effect(advice: Recommendation) -> str:
    if advice.effect:
        return text(advice.effect)
    return "not told" if advice.effect_bytes is None else signed_size(advice.effect_bytes)


def _choice(decided: Decided | None, offered: Recommended | None) -> str:
    if decided is None:
        asks = offered is not None and offered.recommendation.kind == "run"
        return "interrupted before a decision" if asks else "nothing to decide"
    if decided.choice != "change":
        return decided.choice
    return f"change: {text(words.label(decided.variable))} to {code(decided.value)}"


def _not_measured(session: SessionFacts) -> list[str]:
    lines = [f"- {text(item)}" for item in session.not_measured] or ["Nothing of what the verdict rests on."]
    notes = [f"- {text(note)}" for note in session.state.notes]
    return ["## Not measured", "", *lines, "", *(["## Notes", "", *notes, ""] if notes else [])]


def _time(session: SessionFacts) -> list[str]:
    state = session.state
    of = "of the session" if session.wall_s else "of the runs"
    rows = [
        ("session", words.seconds(session.wall_s)),
        ("runs that ended", words.seconds(session.runs_s)),
        ("inside the engine (load, prefill, decode)", words.seconds(session.engine_s)),
        (f"share inside the engine, {of}", words.percent(session.engine_share)),
        ("CPU time of kvtui itself", words.seconds(state.own_cpu_s or None)),
    ]
    return ["## Time", "", *table(("what", ""), rows)]
