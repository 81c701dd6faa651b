"""A comparison as one JSON document, schema `kvtui.compare/1`.

    schema, kind                    `sessions` or `runs`
    sentence                        what it comes to, in words
    comparable                      false where model, engine, driver or machine are not the same
    box         [what, a, b]        those that are not
    a, b        session, started_at, model, weight_quant, engine, build, device, driver, verdict {outcome, title,
                run}: verdict is null while unfinished
    same        verdict, facts      true, false; verdict is null where a session has none
                speeds              {within, differ, single, total}
    runs        [one pair, below];  only_a, only_b [run, subject]

One pair:

    a, b        run, subject, outcome, quantization, kv_types, n_ctx, command
    asked       [what, a, b]        asked differently
    proven      [what, a, b]        facts of the logs that differ, of n_proven that both show
    measures    [name, unit, depth, a, b, change, state, exact]; a and b {value, low, high, n} or null; unit `t/s`,
                `s` or `B`; change is b against a as a share; state `same`, `within` (the spread), `differs`, `single`
                (measured once on each side), `only-a`, `only-b`
    recall      [depth, a, b]       [found, of] or null
    outputs     identical, total, turned [task, depth, a_passed, b_passed], divergences [task, depth, first_token]
"""

from __future__ import annotations

from typing import Any

from kvtui.report.comparison import Comparison, RunPair
from kvtui.report.comparison_words import sentence
from kvtui.report.readings import Measure
from kvtui.report.run_facts import RunFacts
from kvtui.report.words import quantization
from kvtui.session.codec import to_builtins
from kvtui.session.state import RunRecord, SessionState

SCHEMA = "kvtui.compare/1"


def document(found: Comparison) -> dict[str, Any]:
    """`found` as the document above: plain dicts, lists and scalars."""
    speeds = [m.state for m in found.speeds]
    return {
        "schema": SCHEMA,
        "kind": "runs" if found.of_runs else "sessions",
        "sentence": sentence(found),
        "comparable": not found.box,
        "box": to_builtins(found.box),
        "a": _side(found.a),
        "b": _side(found.b),
        "same": {
            "verdict": found.same_verdict,
            "facts": found.same_facts,
            "speeds": {
                "within": speeds.count("same") + speeds.count("within"),
                "differ": speeds.count("differs"),
                "single": speeds.count("single"),
                "total": len(speeds),
            },
        },
        "runs": [_pair(found, pair) for pair in found.pairs],
        "only_a": [_alone(run) for run in found.only_a],
        "only_b": [_alone(run) for run in found.only_b],
    }


def _side(state: SessionState) -> dict[str, Any]:
    started, verdict = state.started, state.verdict
    return {
        "session": started.session,
        "started_at": started.at,
        "model": started.model.file_name,
        "weight_quant": started.model.quant,
        "engine": started.engine.label,
        "build": started.engine.build,
        "device": started.device.name,
        "driver": started.device.driver,
        "verdict": None
        if verdict is None
        else {"outcome": verdict.outcome, "title": verdict.title, "run": verdict.run},
    }


def _alone(run: RunRecord) -> dict[str, Any]:
    return {"run": run.number, "subject": run.subject}


def _pair(found: Comparison, pair: RunPair) -> dict[str, Any]:
    return {
        "a": _run(found.a, pair.a),
        "b": _run(found.b, pair.b),
        "asked": to_builtins(pair.asked),
        "proven": to_builtins(pair.proven),
        "n_proven": pair.n_proven,
        "measures": [_measure(m) for m in pair.measures],
        "recall": to_builtins(pair.recalls),
        "outputs": {
            "identical": sum(d.identical for d in pair.outputs),
            "total": len(pair.outputs),
            "turned": [
                {"task": d.task, "depth": d.depth, "a_passed": d.baseline_passed, "b_passed": d.passed}
                for d in pair.turned
            ],
            "divergences": [
                {"task": d.task, "depth": d.depth, "first_token": d.first_token}
                for d in pair.outputs
                if not d.identical
            ],
        },
    }


def _run(state: SessionState, run: RunFacts) -> dict[str, Any]:
    record = run.record
    return {
        "run": record.number,
        "subject": record.subject,
        "outcome": record.outcome,
        "quantization": quantization(state.started.model.quant, run),
        "kv_types": run.kv_types,
        "n_ctx": record.config.n_ctx,
        "command": run.command,
    }


def _measure(measure: Measure) -> dict[str, Any]:
    return {**to_builtins(measure), "change": measure.change, "state": measure.state}
