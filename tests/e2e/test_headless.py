"""The whole procedure on the real embedded engine, without a screen."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from kvtui.session.state import SessionState
from kvtui.session.store import list_folders, load

pytestmark = [pytest.mark.engine, pytest.mark.timeout(600)]

Run = Callable[..., subprocess.CompletedProcess[str]]
Engines = Callable[[], list[psutil.Process]]


def tune(model: Path, preset: Path) -> list[str]:
    """The arguments of a whole procedure on a tiny model."""
    return ["tune", "-m", str(model), "--preset", str(preset), "--headless"]


def session(data_dir: Path) -> SessionState:
    """The only session there is."""
    (folder,) = list_folders(data_dir / "sessions")
    return load(folder)


def test_five_steps_on_a_sliding_window_model(
    kvtui: Run, tiny_swa_model: Path, tiny_preset: Path, data_dir: Path, engines_of: Engines
) -> None:
    done = kvtui(*tune(tiny_swa_model, tiny_preset))
    assert done.returncode in (0, 1), done.stderr
    state = session(data_dir)
    assert [s.outcome for s in state.steps] == ["passed"] * 5
    assert state.verdict is not None
    assert state.verdict.config is not None
    assert state.verdict.config.n_ctx == 2048
    for run in state.runs:
        assert run.outcome == "ok"
        assert run.facts.main is not None
        assert run.forecast is not None
        assert run.forecast.exactness == "exact"
        assert run.forecast.kv_bytes is not None
        assert run.facts.main.kv_mib == pytest.approx(run.forecast.kv_bytes / 2**20, abs=0.011)
        assert run.memory is not None
        assert run.memory.highest is not None
    quantized = next(r for r in state.runs if r.purpose == "quantized")
    assert {c.type_k for c in quantized.facts.main.caches} == {"q8_0"} if quantized.facts.main else False
    assert "step 3 of 5" in done.stderr
    report = Path(done.stdout.strip())
    assert report.name == "report.md"
    assert report.is_file()
    document = json.loads(report.with_suffix(".json").read_text())
    assert document["schema"] == "kvtui.report/1"
    assert engines_of() == []


def test_sampled_prompts_have_the_depth_that_was_asked(
    kvtui: Run, tiny_model: Path, tiny_preset: Path, data_dir: Path
) -> None:
    kvtui(*tune(tiny_model, tiny_preset))
    for run in session(data_dir).runs:
        for speed in run.speeds:
            assert {t.prompt_tokens for t in speed.repeats} == {speed.depth}
        for task in run.tasks:
            assert task.timing is not None, task.error
            assert task.timing.prompt_tokens == task.depth


def test_term_ends_the_engine_and_the_session_goes_on(
    kvtui: Run,
    environment: dict[str, str],
    tiny_model: Path,
    tiny_preset: Path,
    data_dir: Path,
    engines_of: Engines,
) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "kvtui", *tune(tiny_model, tiny_preset)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        wait_for(lambda: bool(engines_of()), 60)
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=30)
    assert process.returncode == 128 + signal.SIGTERM
    assert "tune --resume" in err
    assert engines_of() == []
    (folder,) = list_folders(data_dir / "sessions")
    done = kvtui("tune", "--resume", folder.name, "--headless")
    assert done.returncode in (0, 1), done.stderr
    assert load(folder).verdict is not None


@pytest.mark.parametrize("seed", range(4))
def test_kill_9_loses_at_most_the_run_in_progress(
    kvtui: Run,
    environment: dict[str, str],
    tiny_model: Path,
    tiny_preset: Path,
    data_dir: Path,
    engines_of: Engines,
    seed: int,
) -> None:
    shown: list[str] = []
    argv = tune(tiny_model, tiny_preset)
    for kill in range(2):
        with subprocess.Popen(
            [sys.executable, "-m", "kvtui", *argv],
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stderr is not None
            deadline = time.monotonic() + 1.0 + (seed * 2 + kill) * 0.9
            os.set_blocking(process.stderr.fileno(), False)
            while time.monotonic() < deadline and process.poll() is None:
                shown += [
                    line for line in process.stderr if line.strip().startswith("run ") and ": ok" in line
                ]
                time.sleep(0.02)
            process.kill()
        wait_for(lambda: not engines_of(), 10)
        folders = list_folders(data_dir / "sessions")
        if not folders:
            continue
        finished = {f"run {r.number}: ok" for r in load(folders[0]).runs if r.outcome == "ok"}
        assert {line.strip() for line in shown} <= finished
        if load(folders[0]).verdict is not None:
            return
        argv = ["tune", "--resume", folders[0].name, "--headless"]
    done = kvtui(*argv)
    assert done.returncode in (0, 1), done.stderr
    assert session(data_dir).verdict is not None


def wait_for(condition: Callable[[], bool], seconds: float) -> None:
    """Wait until `condition` holds; fails when it does not in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)
