"""The report for a program: schema `kvtui.report/1`, complete, strict and without invented zeros."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from typing import Any

import pytest

from kvtui.core.units import MIB
from kvtui.probes.results import SpeedResult
from kvtui.report import as_json
from kvtui.report.document import __doc__ as documented
from kvtui.report.document import document
from kvtui.session import events as ev
from tests.report import states
from tests.session import sample

TOP = {
    *(
        "schema",
        "kvtui",
        "session",
        "verdict",
        "device",
        "host",
        "engine",
        "model",
        "steps",
        "runs",
        "skipped",
    ),
    *("recommendations", "decisions", "pastes", "not_measured", "time"),
}
RUN = {
    *("subject", "repeated", "full_pool", "stability", "prompts", "prompts_reason", "facts", "forecast"),
    *("run", "step", "purpose", "outcome", "counts", "interrupted", "reason", "failure", "exit_code"),
    *(
        "started_at",
        "finished_at",
        "wall_s",
        "engine_s",
        "load_s",
        "change",
        "moved",
        "hidden",
        "quantization",
    ),
    *("weight_quant", "kv_types_asked", "kv_types", "device", "driver", "cuda", "engine", "build", "commit"),
    *(
        "model",
        "context",
        "slots",
        "unified",
        "n_batch",
        "n_ubatch",
        "flash_attn",
        "gpu_layers",
        "side_contexts",
    ),
    *("prompt_tokens", "generated_tokens", "prompt_tps", "decode_tps", "first_token_s", "at_depth", "speeds"),
    *(
        "kv",
        "memory",
        "breakdown",
        "spill",
        "recall",
        "tasks",
        "concurrency",
        "quality",
        "checks",
        "findings",
    ),
    *("failures", "config", "argv", "env", "command", "follow", "missing", "sampling"),
}


def _run(number: int) -> dict[str, Any]:
    (found,) = (r for r in document(sample.state())["runs"] if r["run"] == number)
    return dict(found)


@pytest.mark.parametrize("state", [sample.state(), sample.unfinished(), states.bare(), states.on_host()])
def test_the_keys_are_the_same_whatever_happened(state: Any) -> None:
    found = document(state)
    assert found["schema"] == "kvtui.report/1"
    assert set(found) == TOP
    assert all(set(run) == RUN for run in found["runs"])


def test_every_key_is_documented() -> None:
    assert documented is not None
    words = set(re.findall(r"[a-z_0-9]+", documented))
    missing = {*TOP, *RUN} - words
    assert not missing


@pytest.mark.parametrize("words", ["plain", "\udc80\x00|", "🦙"])
def test_the_document_is_strict_json_of_nothing_but_text(words: str) -> None:
    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is not JSON")

    state = states.spoken(sample.state(), words)
    broken = SpeedResult(47104, math.nan, math.inf, -math.inf, ())
    report = as_json(states.with_run(state, 6, speeds=(broken,)))
    report.encode()
    found = json.loads(report, parse_constant=refuse)
    assert found["runs"][5]["prompt_tps"] is None
    assert found["runs"][5]["speeds"][0]["decode_tps"] is None


def test_what_one_run_records() -> None:
    run = _run(6)
    assert run["quantization"] == "Q6_K weights, q8_0/q8_0 KV"
    assert (run["device"], run["driver"], run["cuda"]) == ("NVIDIA GeForce RTX 4060 Ti", "580.95.05", "13.0")
    assert (run["engine"], run["build"], run["commit"]) == ("llama-server b11434", "11434", "d1f1a3c")
    assert run["model"]["file_bytes"] == 12_014_873_184
    assert len(run["model"]["header_sha256"]) == 64
    assert run["context"] == {"asked": 49152, "allocated": 49152, "per_slot": 49152, "used": 47168}
    assert run["slots"] == {"asked": 1, "actual": 1}
    assert run["unified"] == {"asked": False, "actual": False}
    assert run["n_batch"] == {"asked": 2048, "actual": 2048}
    assert run["n_ubatch"] == {"asked": 256, "actual": 256}
    assert run["flash_attn"] == {"asked": "on", "actual": "enabled"}
    assert run["gpu_layers"] == {"asked": 999, "actual": 33, "total": 33}
    assert run["side_contexts"] == []
    # two speed repeats of 47,104 tokens, and eight tasks: four at 2,048 and four at 12,288
    assert run["prompt_tokens"] == 2 * 47104 + 4 * 2048 + 4 * 12288
    assert run["generated_tokens"] == 2 * 64 + 8 * 96
    assert (run["prompt_tps"], run["decode_tps"], run["at_depth"]) == (690.0, 19.7, 47104)
    assert run["first_token_s"] == pytest.approx(47104 / 690 + 0.04)
    assert run["kv"]["proven_bytes"] == run["kv"]["forecast_bytes"] == 3264 * MIB
    assert run["kv"]["difference_bytes"] == 0
    assert run["memory"]["before_bytes"] == 611 * MIB
    assert (
        run["memory"]["after_load_bytes"]
        < run["memory"]["peak_decode_bytes"]
        < run["memory"]["peak_prefill_bytes"]
    )
    assert run["memory"]["peak_phase"] == "prefill"
    assert run["breakdown"]["kv_bytes"] == 3264 * MIB
    assert run["spill"] == {"kv_host_bytes": 0, "layers_on_cpu": 0}
    assert (run["recall"][0]["found"], run["recall"][0]["total"]) == (4, 5)
    assert [n["position"] for n in run["recall"][0]["needles"] if not n["found"]] == [0.25]
    assert _passed(run["tasks"]) == (7, 8)
    assert run["quality"]["baseline_run"] == 2
    assert run["quality"]["identical"] == 7
    assert run["findings"][0]["id"] == "thin-margin"
    assert run["sampling"] == {"temperature": 0.0, "seed": 42}
    assert run["command"].startswith("CUDA_VISIBLE_DEVICES=0 /opt/llama.cpp/bin/llama-server -m ")
    assert run["argv"] == list(states.run(sample.state(), 6).argv)
    assert run["env"] == [["CUDA_VISIBLE_DEVICES", "0"]]
    assert run["change"]["against_run"] == 5
    assert [m["variable"] for m in run["moved"]] == ["micro-batch"]
    assert run["started_at"] < run["finished_at"]


def _passed(tasks: list[dict[str, Any]]) -> tuple[int, int]:
    """Passed, and all."""
    return sum(t["passed"] for t in tasks), len(tasks)


def test_each_check_carries_its_line_and_the_text_of_it() -> None:
    checks = {c["setting"]: c for c in _run(6)["checks"]}
    proof = checks["K cache type"]
    assert (proof["asked"], proof["actual"], proof["state"], proof["line"]) == ("q8_0", "q8_0", "proven", 83)
    assert "K (q8_0)" in proof["text"]


def test_a_failed_run_says_how_it_failed() -> None:
    run = _run(5)
    assert (run["outcome"], run["failure"], run["exit_code"], run["counts"]) == (
        "failed",
        "prefill-oom",
        -6,
        False,
    )
    assert run["failures"][0]["line"] == 131
    assert run["memory"]["peak_decode_bytes"] is None
    assert (run["prompt_tps"], run["prompt_tokens"], run["quality"]) == (None, None, None)


def test_what_was_not_measured_is_null_and_never_zero() -> None:
    found = document(states.bare())
    (run,) = found["runs"]
    for key in (
        "wall_s",
        "engine_s",
        "load_s",
        "prompt_tokens",
        "generated_tokens",
        "prompt_tps",
        "side_contexts",
    ):
        assert run[key] is None, key
    assert set(run["kv"].values()) == {None}
    assert {v for k, v in run["memory"].items() if k != "phases"} == {None}
    assert run["context"] == {"asked": 8192, "allocated": None, "per_slot": None, "used": None}
    assert set(found["time"].values()) == {None}
    assert found["verdict"] is None
    assert found["session"]["finished"] is False


def test_the_session_around_the_runs() -> None:
    found = document(sample.state())
    assert found["verdict"]["run"] == 6
    assert found["verdict"]["command"].endswith("--port 18080")
    assert [s["outcome"] for s in found["steps"]] == ["passed", "passed", "passed", "failed", "passed"]
    assert [s["context"] for s in found["skipped"]] == [65536, 98304]
    assert len(found["recommendations"]) == len(found["decisions"]) == 7
    assert found["decisions"][-1]["reason"] == "code edits must stay exact; 48K is enough"
    assert found["time"]["engine_share"] == pytest.approx(727.44 / 812 + 0.0, abs=0.01)
    assert found["session"]["plan"]["stages"] == [32768, 49152, 65536, 98304]
    assert found["session"]["notes"] == ["memory was read at 10 Hz"]


def test_a_verdict_command_that_does_not_print_gives_way_to_the_runs_own() -> None:
    state = sample.state()
    assert state.verdict is not None
    odd = replace(state, verdict=replace(state.verdict, command="llama-server -m \x1b[2J"))
    assert document(odd)["verdict"]["command"] == document(odd)["runs"][5]["command"]


def test_a_repeated_run_is_reported_beside_the_interrupted_one() -> None:
    recorded = sample.events()
    first = next(e for e in recorded if isinstance(e, ev.RunStarted))
    from kvtui.session.state import fold

    state = fold([recorded[0], first, ev.SessionResumed("t", "0.1.0", 1), replace(first, run=2)])
    assert [(r["run"], r["interrupted"], r["outcome"]) for r in document(state)["runs"]] == [
        (1, True, None),
        (2, False, None),
    ]
