"""The five steps by Ollama: against the stand-in of an older era, and against the real program where there is one."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from kvtui.cli import main
from kvtui.session.state import SessionState
from kvtui.session.store import list_folders, load
from tests.engines.ollama.conftest import Stand

PRESET = """\
title = "Small"
description = "Every step, as few runs as can be."
[floor]
context = 256
[baseline]
context = 1024
depths = [640]
[kv]
type = "q8_0"
[stages]
contexts = [1024, 2048]
target = 2048
recall_positions = [0.1, 0.9]
decode_tokens = 16
repeats = 1
[stability]
requests = 1
[limits]
min_recall = 0.0
[memory]
margin_gib = 0.1
[server]
n_parallel = 1
kv_unified = false
n_batch = 512
n_ubatch = 256
swa_full = false
prefix_reuse = true
cache_ram_mib = 0
[transients]
run = "always"
"""
REAL = os.environ.get("OLLAMA_BIN") or shutil.which("ollama")


def tuned(stand: Stand, program: str) -> tuple[SessionState, str]:
    """The session of a whole headless procedure, and its report."""
    preset = stand.folder / "small.toml"
    preset.write_text(PRESET)
    stand.patch.setenv("KVTUI_DATA_DIR", str(stand.folder / "data"))
    arguments = [
        "-m",
        "tiny",
        "--engine",
        "ollama",
        "--engine-bin",
        program,
        "--preset",
        str(preset),
        "-t",
        "1",
    ]
    assert main(["tune", *arguments, "--headless"]) in (0, 1)
    (folder,) = list_folders(stand.folder / "data" / "sessions")
    return load(folder), (folder / "report.md").read_text()


def check(state: SessionState) -> None:
    """What holds for every era."""
    assert [step.outcome for step in state.steps] == ["passed"] * 5
    assert state.verdict is not None
    assert state.verdict.config is not None
    assert (state.verdict.config.n_ctx, state.verdict.config.kv_types) == (2048, "q8_0/q8_0")
    assert state.started.model.file_name == "tiny"
    for run in state.runs:
        assert run.outcome == "ok", run.reason
        assert run.config.model == "tiny"
        assert run.config.n_batch == run.config.n_ubatch
        assert run.facts.main is not None
        assert run.forecast is not None
        assert run.forecast.kv_bytes is not None
        rounding = run.facts.main.kv_rounding_mib + 0.001
        assert run.facts.main.kv_mib == pytest.approx(run.forecast.kv_bytes / 2**20, abs=rounding)
        assert not {f.id for f in run.findings} & {"kv-forecast-off", "ollama-reload"}
        # Batch and micro-batch are one setting: that both move is said, and is nobody's mistake.
        assert {f.severity for f in run.findings if f.id == "second-variable"} <= {"info"}
        assert run.memory is not None
        assert run.memory.highest is not None
        assert run.memory.highest.engine_bytes
    quantized = next(run for run in state.runs if run.purpose == "quantized")
    assert {(c.type_k, c.type_v) for c in quantized.facts.main.caches} == {("q8_0", "q8_0")}  # type: ignore[union-attr]
    assert dict(quantized.env)["OLLAMA_KV_CACHE_TYPE"] == "q8_0"


def test_five_steps_by_an_older_ollama(stand: Stand) -> None:
    state, report = tuned(stand, stand.program("0.12"))
    check(state)
    assert "Ollama 0.12.3" in report
    assert 'Environment="OLLAMA_KV_CACHE_TYPE=q8_0"' in report
    assert "PARAMETER num_ctx 2048" in report
    assert "/api/generate" in report


@pytest.mark.engine
@pytest.mark.timeout(300)
@pytest.mark.skipif(REAL is None, reason="no Ollama on this machine: OLLAMA_BIN names none and PATH has none")
def test_five_steps_by_the_real_ollama(stand: Stand) -> None:
    assert REAL is not None
    state, report = tuned(stand, str(Path(REAL).absolute()))
    check(state)
    assert "Ollama" in report
