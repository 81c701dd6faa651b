"""The five steps with vLLM: the same procedure, its own options, its own memory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kvtui.cli import main
from kvtui.engines.vllm.server import Vllm
from kvtui.session.state import SessionState
from kvtui.session.store import list_folders, load

Make = Callable[..., Vllm]
PRESET = """\
title = "Tiny"
description = "Every step in seconds."
[floor]
context = 256
[baseline]
context = 1024
depths = [640]
[stages]
contexts = [2048, 4096, 8192]
target = 8192
recall_positions = [0.1, 0.9]
decode_tokens = 16
repeats = 1
[limits]
min_recall = 0.0
[memory]
margin_gib = 0.1
[server]
n_batch = 512
n_ubatch = 512
"""


@pytest.fixture
def tune(
    vllm: Make, hf_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[int, SessionState, str]]:
    """Runs the procedure on the stand-in's card; gives exit status, state and report."""

    def run(*arguments: str, **card: object) -> tuple[int, SessionState, str]:
        monkeypatch.setenv("KVTUI_DATA_DIR", str(tmp_path / "data"))
        preset = tmp_path / "tiny.toml"
        preset.write_text(PRESET)
        program = vllm(**card).command_name
        status = main(
            ["tune", "-m", str(hf_model), "--engine", "vllm", "--engine-bin", program, "--preset", str(preset),
             "--headless", *arguments]
        )  # fmt: skip
        (folder,) = list_folders(tmp_path / "data" / "sessions")
        return status, load(folder), (folder / "report.md").read_text()

    return run


@pytest.mark.timeout(120)
def test_five_steps(tune: Callable[..., tuple[int, SessionState, str]]) -> None:
    status, state, report = tune()
    assert status in (0, 1)
    assert [s.outcome for s in state.steps[:4]] == ["passed"] * 4
    assert state.verdict is not None
    assert state.verdict.config is not None
    assert (state.verdict.config.n_ctx, state.verdict.config.kv_types) == (8192, "fp8/fp8")
    assert "--kv-cache-dtype fp8" in state.verdict.command
    assert "--max-model-len 8192" in state.verdict.command
    assert {r.config.kv_types for r in state.runs if r.step < 3} == {"auto/auto"}
    shares = {r.config.gpu_memory_utilization for r in state.runs}
    assert len(shares) == 1
    assert 0 < (shares.pop() or 0) < 1
    for run in state.runs:
        assert run.outcome == "ok", run.reason
        assert run.facts.main is not None
        assert {c.type_k for c in run.facts.main.caches} == {run.config.type_k}
    assert "vLLM 0.11.0" in report


@pytest.mark.timeout(120)
def test_a_pool_that_holds_less_than_the_target_ends_below_it(
    tune: Callable[..., tuple[int, SessionState, str]],
) -> None:
    # 0.9 GiB of pool: 7,372 tokens at 16 bits, 14,745 at 8.
    status, state, _ = tune("--target-context", "16384", weights_gib=14.0, total_gib=16.0, share=0.9625)
    assert status == 1
    assert state.verdict is not None
    assert state.verdict.config is not None
    assert state.verdict.config.n_ctx == 8192
    assert [(s.context, "more than the engine's pool holds" in s.reason) for s in state.skipped] == [
        (16384, True)
    ]
    assert "offload" not in state.steps[4].summary
    tried = [(r.purpose, r.config.n_batch, r.config.enforce_eager) for r in state.runs if r.step == 5]
    assert ("transient", 256, False) in tried
    assert ("transient", 512, True) in tried
