"""A session as one JSON document, schema `kvtui.report/1`.

Keys are stable: they are only ever added. Sizes are bytes (`*_bytes`) or MiB exactly as the engine printed them
(`*_mib`), times seconds (`*_s`) or ISO 8601 in UTC (`*_at`), rates tokens per second (`*_tps`). What was not
measured or not proven is null, never 0. `line` is a line of that run's log, null for what is not from a log.

    schema, kvtui
    session     id, started_at, finished_at, finished, resumed, torn, command_line, plan, notes
    verdict     outcome, title, why, run, command, config: null while unfinished
    device      kind, index, name, total_bytes, driver, cuda, compute_capability, display_attached, note
    host        system, cpu, cores, memory_bytes, python
    engine      label, program, version, build, commit
    model       path, file_name, name, arch, quant, file_bytes, weights_bytes, header_sha256, n_ctx_train, n_layer,
                exactness, has_chat_template
    steps       [number, title, goal, gate, started, outcome, summary]
    runs        [one run, below]
    skipped     [context, reason]                      stages that were not run
    recommendations [at, step, after_run, kind, title, why, variable, option, before, after, effect, effect_bytes,
                risk, command, not_this]
    decisions   [at, step, by, choice, subject, variable, value, reason]
    pastes      [title, where, language, text, notes]  the verdict for systemd, Compose, Ollama, as a preset
    not_measured [text]
    time        wall_s, runs_s, engine_s, engine_share, own_cpu_s

One run:

    run, step, purpose, subject, outcome, counts, interrupted, reason, failure, exit_code, started_at, finished_at,
    wall_s, engine_s, load_s
    change      variable, option, before, after, against_run: null for the first run
    moved       [variable, before, after]              actual settings against that run; `hidden`: those not meant to
    quantization, weight_quant, kv_types_asked, kv_types
    device, driver, cuda, engine, build, commit        build and commit as this run's log states them
    model       file_name, file_bytes, header_sha256
    context     asked, allocated, per_slot, used
    slots       asked, actual;  unified asked, actual;  n_batch asked, actual;  n_ubatch asked, actual
    flash_attn  asked, actual;  gpu_layers asked, actual, total
    side_contexts [role, n_ctx, kv_types, kv_bytes]    draft and MTP; null when the log shows no context
    prompt_tokens, generated_tokens                    sums over the timed requests
    prompt_tps, decode_tps, first_token_s, at_depth    at the greatest depth that was measured
    speeds      [depth, prompt_tps, decode_tps, first_token_s, gpu_util, note, repeats [..]]
    kv          forecast_bytes, proven_bytes, difference_bytes, rounding_bytes, conventional_bytes, exactness
    memory      basis, before_bytes, after_load_bytes, after_warm_up_bytes, peak_prefill_bytes, peak_decode_bytes,
                peak_bytes, peak_phase, host_peak_bytes, interval_s, lost, phases [..]
    breakdown   total_bytes, weights_bytes, kv_bytes, compute_bytes, other_bytes, others_bytes, free_bytes, proven
    spill       kv_host_bytes, layers_on_cpu
    recall      [depth, found, total, seconds, needles [position, token_offset, expected, answer, found]]
    tasks       [task, family, depth, passed, why, error, generated_tokens, tokens, text, timing]
    prompts, prompts_reason                            `chat`: the model's own template, `raw`: plain prompts
    repeated    [like tasks]                           the same outputs asked for once more
    full_pool   [requested, depth, answer, pool, failed, errors, recovered, seconds]
    stability   [depth, n_decode, asked, start_bytes, requests [timing, memory_bytes, error], seconds]
    facts       everything that the engine's log proves, with its lines (kvtui.logs.facts.EngineFacts)
    concurrency [requested, depth, failed, errors, decode_tps, seconds]
    forecast    kv_bytes, conventional_kv_bytes, weights_bytes, total_bytes, exactness, dry_run [..]: null before any
    quality     baseline_run, identical, total, regressed, baseline_failed, not_repeated, top_agreement, shift,
                conclusion `identical`, `wording`, `verdicts` or `none`, divergences [task, depth, identical,
                first_token, baseline_tokens, passed, baseline_passed, ..]: null without a baseline
    checks      [setting, asked, actual, state, line, text, note]
    findings    [id, severity, title, why, next, evidence [line, text]]
    failures    [phase, kind, text, line, device, wanted_mib]
    config, argv, env, command, follow, missing [option, lost], sampling {temperature, seed}
"""

from __future__ import annotations

import math
from typing import Any

from kvtui.procedure.steps import STEPS
from kvtui.report.document_runs import run_document, without
from kvtui.report.facts import SessionFacts, derive
from kvtui.report.handover import pastes
from kvtui.session.codec import to_builtins
from kvtui.session.state import SessionState, StepState

SCHEMA = "kvtui.report/1"


def document(state: SessionState) -> dict[str, Any]:
    """`state` as the document above: plain dicts, lists and scalars that are strict JSON."""
    session = derive(state)
    started = state.started
    result = {
        "schema": SCHEMA,
        "kvtui": started.kvtui,
        "session": {
            "id": started.session,
            "started_at": started.at,
            "finished_at": state.finished_at,
            "finished": state.verdict is not None,
            "resumed": state.resumed,
            "torn": state.torn,
            "command_line": started.command_line,
            "plan": started.plan,
            "notes": state.notes,
        },
        "verdict": _verdict(session),
        "device": to_builtins(started.device),
        "host": to_builtins(started.host),
        "engine": to_builtins(started.engine),
        "model": to_builtins(started.model),
        "steps": [_step(step) for step in state.steps],
        "runs": [run_document(session, run) for run in session.runs],
        "skipped": [{"context": s.context, "reason": s.reason} for s in state.skipped],
        "recommendations": [
            {"at": r.at, "step": r.step, "after_run": r.after_run, **without(r.recommendation, "config")}
            for r in state.recommended
        ],
        "decisions": [to_builtins(d) for d in state.decided],
        "pastes": to_builtins(pastes(session)),
        "not_measured": session.not_measured,
        "time": {
            "wall_s": session.wall_s,
            "runs_s": session.runs_s,
            "engine_s": session.engine_s,
            "engine_share": session.engine_share,
            "own_cpu_s": state.own_cpu_s or None,
        },
    }
    plain: dict[str, Any] = _plain(result)
    return plain


def _plain(value: Any) -> Any:
    """`value` as strict JSON: not-a-number is null, and text holds no half of a character."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {_plain(str(key)): _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, (list, tuple)) else value


def _verdict(session: SessionFacts) -> dict[str, Any] | None:
    verdict = session.state.verdict
    if verdict is None:
        return None
    return {**without(verdict, "not_measured"), "command": session.command}


def _step(state: StepState) -> dict[str, Any]:
    step = next(s for s in STEPS if s.number == state.number)
    return {**to_builtins(step), "started": state.started, "outcome": state.outcome, "summary": state.summary}
