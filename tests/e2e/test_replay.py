"""A report done again on the real embedded engine: this box's model and engine, the recorded settings."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from kvtui.model.header import read_header
from kvtui.procedure.preset import load_preset
from kvtui.report import as_json
from kvtui.session.codec import to_builtins
from kvtui.session.store import list_folders, load
from tests.session import sample

pytestmark = [pytest.mark.engine, pytest.mark.timeout(300)]

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def report(tmp_path: Path, tiny_model: Path, tiny_preset: Path) -> Path:
    """A report on one run of the tiny model, made on a box with a GPU that is not here."""
    document = json.loads(as_json(sample.state()))
    document["session"]["plan"] = to_builtins(load_preset(str(tiny_preset)))
    document["model"] |= {
        "path": "/not/on/this/box.gguf",
        "header_sha256": read_header(str(tiny_model)).header_sha256,
        "has_chat_template": False,
    }
    document["engine"]["program"] = ["/bin/false"]
    (run,) = document["runs"] = document["runs"][:1]
    run["config"] |= {"n_ctx": 256, "n_batch": 256, "n_ubatch": 256, "n_gpu_layers": 0, "threads": 1}
    run["config"]["env"] = [["CUDA_VISIBLE_DEVICES", "GPU-0"]]
    path = tmp_path / "report.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


def test_what_was_recorded_is_done_again_and_compared(
    kvtui: Run, report: Path, tiny_model: Path, data_dir: Path
) -> None:
    again = kvtui(
        "tune", "--replay", str(report), "-m", str(tiny_model), "--engine", "embedded", "--headless"
    )
    assert (data_dir / "sessions").exists(), again.stderr
    (folder,) = list_folders(data_dir / "sessions")
    state = load(folder)
    (run,) = state.runs
    assert (run.subject, run.outcome) == ("floor", "ok"), again.stderr
    assert (run.config.model, run.config.n_ctx, run.config.n_ubatch) == (str(tiny_model), 256, 256)
    assert "CUDA_VISIBLE_DEVICES" not in dict(run.env)
    assert "embedded" in state.started.engine.label
    assert state.steps[1].summary == "not run in the session that is replayed"
    said = (folder / "comparison.txt").read_text(encoding="utf-8")
    assert "Not the same: weights, engine, engine build and " in " ".join(said.split())
    assert "floor: run 1 in A (ok), run 1 in B (ok)" in said


def test_another_model_or_none_is_not_the_same_thing_again(
    kvtui: Run, report: Path, tiny_swa_model: Path, data_dir: Path
) -> None:
    other = kvtui(
        "tune", "--replay", str(report), "-m", str(tiny_swa_model), "--engine", "embedded", "--headless"
    )
    assert other.returncode == 2
    assert "not the model file that was recorded (another header): give the same file with -m" in other.stderr
    none = kvtui("tune", "--replay", str(report), "--engine", "embedded", "--headless")
    assert none.returncode == 2
    assert "/not/on/this/box.gguf" in none.stderr
    assert not (data_dir / "sessions").exists()
