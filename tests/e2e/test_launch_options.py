"""What the operator gives for the engine's start: it arrives, it is recorded, and a key is recorded nowhere."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kvtui.procedure.findings.clocks import STOOD_STILL_S
from tests.e2e.test_bad_input import script

Run = Callable[..., subprocess.CompletedProcess[str]]
KEY = "sk-very-secret-key"


def test_options_variables_a_wrapper_and_a_key(
    kvtui: Run, tmp_path: Path, tiny_model: Path, tiny_preset: Path, data_dir: Path
) -> None:
    seen = tmp_path / "seen"
    body = f'printf "%s\\n" "$@" > {seen}; env >> {seen}; echo "error: invalid argument: --frobnicate" >&2; exit 1'
    engine = script(tmp_path / "llama-server", body)
    done = kvtui(
        *("tune", "-m", str(tiny_model), "--preset", str(tiny_preset), "--headless"),
        *("--engine-command", f"env WRAPPED=1 {engine}", "--env", "GGML_X=7"),
        *("--engine-args", f"--api-key {KEY}", "--", "--ctx-checkpoints", "4"),
    )
    assert done.returncode == 3, done.stderr
    arrived = seen.read_text().splitlines()
    assert "--ctx-checkpoints" in arrived
    assert {"WRAPPED=1", "GGML_X=7", f"LLAMA_API_KEY={KEY}", "KVTUI_ENGINE=1"} <= set(arrived)
    assert "--api-key" not in arrived
    report = Path(done.stdout.strip())
    written = [path for path in data_dir.rglob("*") if path.is_file()]
    assert report in written
    assert not [path for path in written if KEY.encode() in path.read_bytes()]
    assert KEY not in done.stderr
    events = [json.loads(line) for line in (report.parent / "events.jsonl").read_text().splitlines()]
    started = events[0]
    assert started["engine"]["program"][1:] == ["WRAPPED=1", str(engine)]
    run = next(e for e in events if "argv" in e)
    assert ["GGML_X", "7"] in run["env"]
    assert run["argv"][-2:] == ["--ctx-checkpoints", "4"]


def test_a_fault_is_named_with_its_next_step_in_the_report(
    kvtui: Run, tmp_path: Path, tiny_model: Path, tiny_preset: Path
) -> None:
    options = ("tune", "-m", str(tiny_model), "--preset", str(tiny_preset), "--headless", "--engine-bin")
    for body, title, what_to_do in (
        ("echo 'error: invalid argument: -x' >&2; exit 1", "does not know an argument", "the option"),
        ("kill -9 $$", "killed from outside", "dmesg"),
    ):
        done = kvtui(*options, str(script(tmp_path / "llama-server", body)))
        report = Path(done.stdout.strip()).read_text()
        assert title in report, body
        assert what_to_do in report, body


@pytest.mark.engine
def test_a_session_that_is_suspended_goes_on_and_says_so(
    environment: dict[str, str], tiny_model: Path, tiny_preset: Path, data_dir: Path
) -> None:
    command = ("tune", "-m", str(tiny_model), "--preset", str(tiny_preset), "-t", "1", "--headless")
    with subprocess.Popen(
        [sys.executable, "-m", "kvtui", *command],
        env=environment,
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stderr is not None
        suspended = False
        for line in process.stderr:
            if not suspended and "step 1 of 5, run 1: " in line:
                suspended = True
                process.send_signal(signal.SIGSTOP)
                time.sleep(STOOD_STILL_S + 1)
                process.send_signal(signal.SIGCONT)
            if "  run 1: ok" in line:
                process.terminate()
    (events,) = data_dir.rglob("events.jsonl")
    finished = next(e for e in map(json.loads, events.read_text().splitlines()) if "outcome" in e)
    assert finished["outcome"] == "ok"
    found = next(f for f in finished["findings"] if f["id"] == "kvtui-stood-still")
    assert found["next"]


def test_the_engine_of_a_session_is_found_again_by_its_command(
    kvtui: Run, tmp_path: Path, tiny_model: Path, tiny_preset: Path, data_dir: Path
) -> None:
    """Two processes: one that is stopped while the engine loads, one that goes on."""
    engine = script(tmp_path / "llama-server", "sleep 60")
    command = ("tune", "-m", str(tiny_model), "--preset", str(tiny_preset), "--headless")
    first = subprocess.Popen(
        [sys.executable, "-m", "kvtui", *command, "--engine-command", f"env A=1 {engine}"],
        env={**os.environ, "KVTUI_DATA_DIR": str(data_dir)},
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )
    assert first.stderr is not None
    for line in first.stderr:
        if "run 1" in line:
            break
    first.terminate()
    first.stderr.read()
    first.wait(30)
    first.stderr.close()
    engine.write_text(engine.read_text().replace("sleep 60", "echo 'error: gone' >&2; exit 1"))
    done = kvtui("tune", "--resume", "last", "--headless")
    assert done.returncode == 3, done.stderr
    events = (Path(done.stdout.strip()).parent / "events.jsonl").read_text().splitlines()
    runs = [e for e in map(json.loads, events) if "argv" in e]
    assert len(runs) >= 2
    assert all(run["argv"][1:3] == ["A=1", str(engine)] for run in runs)
