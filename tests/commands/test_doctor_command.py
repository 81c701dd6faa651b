"""`kvtui doctor`: what is found, what is missing, the lines that bring it, and no waiting for what does not answer."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from kvtui.cli import main
from kvtui.commands import doctor, doctor_box
from kvtui.commands.doctor_box import DataFolder, Terminal
from kvtui.commands.doctor_checks import Box, Check, checks
from kvtui.commands.doctor_text import overview
from kvtui.engines import survey
from kvtui.engines.base import Abilities
from kvtui.engines.survey import EngineFound
from kvtui.gpu.samples import DeviceInfo
from kvtui.gpu.source import MemorySource, open_source
from tests.engines import misbehaving

GPU = DeviceInfo(kind="nvml", index=0, name="NVIDIA GeForce RTX 4080", total_bytes=16 << 30)
GOOD = Abilities(
    options=frozenset(("-c", "-ctk", "-lv")),
    build="b6190",
    backends=("CUDA",),
    version="version: 6190 (ab12)",
)
BOX = Box(
    device=GPU,
    device_problem="",
    engines=(
        EngineFound("llama-server", "/opt/llama-server", "PATH", GOOD.version, GOOD),
        EngineFound("embedded", None),
        EngineFound("ollama", None),
        EngineFound("vllm", None),
    ),
    demo_model=False,
    data=DataFolder("/data/sessions", 50 << 30),
    terminal=Terminal(True, 120, 40, "xterm-256color", "UTF-8", True, True, True),
    tools={"nvidia-smi": "/usr/bin/nvidia-smi", "docker": None},
)


def states(box: Box) -> dict[str, str]:
    return {check.id: check.state for check in checks(box)}


def check(box: Box, name: str) -> Check:
    return next(c for c in checks(box) if c.id == name)


def with_llama(**changes: Any) -> Box:
    first = replace(BOX.engines[0], abilities=replace(GOOD, **changes))
    return replace(BOX, engines=(first, *BOX.engines[1:]))


def test_a_box_that_has_everything_it_needs() -> None:
    assert "missing" not in states(BOX).values()
    assert states(BOX)["gpu"] == states(BOX)["engine"] == states(BOX)["terminal"] == "ok"
    text = overview(BOX, checks(BOX))
    assert "NVIDIA GeForce RTX 4080, 16.0 GiB" in text
    assert "the procedure can be run" in text


def test_without_an_engine_the_main_job_stops_and_there_are_lines_to_paste() -> None:
    box = replace(BOX, engines=tuple(replace(e, program=None, abilities=None) for e in BOX.engines))
    found = check(box, "engine")
    assert found.state == "missing"
    assert "pip install 'kvtui[demo]'" in found.get
    assert any("LLAMA_SERVER_BIN" in line for line in found.get)
    assert "1 missing" in overview(box, checks(box))


def test_a_build_that_sees_no_gpu_is_missing_something_only_where_there_is_one() -> None:
    blind = with_llama(backends=(), devices=())
    assert states(blind)["engine-without-gpu"] == "missing"
    host = replace(
        blind, device=DeviceInfo(kind="host", index=0, name="cpu", total_bytes=1 << 30, note="no driver")
    )
    assert "engine-without-gpu" not in states(host)
    assert states(host)["gpu"] == "note"
    assert "engine-without-gpu" not in states(with_llama(backends=(), devices=None))


@pytest.mark.parametrize(
    ("box", "name", "state"),
    [
        (with_llama(options=frozenset(("-c",))), "engine-option", "missing"),
        (with_llama(options=frozenset(("-c", "-ctk"))), "engine-log", "note"),
        (with_llama(build=None), "engine-build", "note"),
        (replace(BOX, device=None, device_problem="it did not answer"), "gpu", "note"),
        (replace(BOX, data=DataFolder("/x", None, "/x: Read-only file system")), "data", "missing"),
        (replace(BOX, data=DataFolder("/x", 1 << 20)), "data", "note"),
        (replace(BOX, terminal=replace(BOX.terminal, columns=60)), "terminal-size", "note"),
        (
            replace(BOX, terminal=replace(BOX.terminal, encoding="ANSI_X3.4-1968")),
            "terminal-encoding",
            "note",
        ),
        (replace(BOX, terminal=replace(BOX.terminal, term="dumb")), "terminal", "note"),
        (replace(BOX, terminal=replace(BOX.terminal, is_terminal=False)), "terminal", "note"),
        (replace(BOX, terminal=replace(BOX.terminal, tmux=False)), "terminal-ssh", "note"),
        (BOX, "demo", "note"),
    ],
)
def test_what_is_said_of(box: Box, name: str, state: str) -> None:
    assert check(box, name).state == state


def test_nothing_is_wider_than_80_columns_but_lines_to_paste_and_paths() -> None:
    box = replace(BOX, engines=tuple(replace(e, program=None, abilities=None) for e in BOX.engines))
    pasted = {line for c in checks(box) for line in c.get}
    assert all(len(line) <= 80 or line.strip() in pasted for line in overview(box, checks(box)).splitlines())


@pytest.fixture
def empty_box(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """No program on PATH, sessions below the test's folder; returns the folder that is on PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("LLAMA_SERVER_BIN", "OLLAMA_BIN", "VLLM_BIN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setenv("KVTUI_DATA_DIR", str(tmp_path / "data"))
    return folder


def program(path: Path, body: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)


def found(capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, Any], dict[str, Any]]:
    status = main(["doctor", "--json"])
    document = json.loads(capsys.readouterr().out)
    return status, document, {e["kind"]: e for e in document["engines"]}


def test_engines_on_the_path_say_what_they_can_do(
    empty_box: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program(empty_box / "llama-server", f'exec {sys.executable} {misbehaving.__file__} fine "$@"')
    program(
        empty_box / "ollama",
        "echo 'Warning: could not connect to a running Ollama instance'\n"
        "echo 'Warning: client version is 0.12.6'",
    )
    program(empty_box.parent / "venv/bin/vllm", "sleep 60")
    (empty_box.parent / "venv/lib/python3.12/site-packages/vllm-0.19.1.dist-info").mkdir(parents=True)
    (empty_box / "vllm").symlink_to(empty_box.parent / "venv/bin/vllm")
    status, document, engines = found(capsys)
    assert (status, document["ok"], document["schema"]) == (0, True, "kvtui.doctor/1")
    llama = engines["llama-server"]
    assert (llama["build"], llama["commit"]) == ("b6190", "ab12cd3")
    assert llama["compiler"] == "cc (GCC) 13.3"
    assert llama["cache_types"] == ["f32", "f16", "q8_0"]
    assert "--flash-attn" in llama["options"]
    assert engines["ollama"]["version"] == "0.12.6"
    assert engines["vllm"]["version"] == "0.19.1"
    assert not (empty_box.parent / "data").exists()


def test_programs_that_hang_or_are_something_else(
    empty_box: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(survey, "embedded_is_installed", lambda: False)
    monkeypatch.setattr(survey, "LIMIT_S", 0.3)
    monkeypatch.setattr(survey.survey, "__defaults__", (0.3,))
    program(empty_box / "llama-server", "exec sleep 60")
    program(empty_box / "ollama", "exec sleep 60")
    monkeypatch.setenv("PATH", f"{empty_box}:/usr/bin:/bin")
    monkeypatch.setenv("VLLM_BIN", "/nowhere/vllm")
    began = time.monotonic()
    status, _, engines = found(capsys)
    assert time.monotonic() - began < 20
    assert status == 1
    assert "did not answer" in engines["llama-server"]["problem"]
    assert "did not answer" in engines["ollama"]["problem"]
    assert engines["vllm"]["problem"].startswith("VLLM_BIN names /nowhere/vllm")
    monkeypatch.setenv("LLAMA_SERVER_BIN", "/bin/echo")
    assert "as llama-server does" in found(capsys)[2]["llama-server"]["problem"]


def test_a_driver_that_hangs_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    released, real = Event(), open_source

    def hang() -> MemorySource:
        released.wait(30)
        return real()

    monkeypatch.setattr("kvtui.gpu.source.open_source", hang)
    began = time.monotonic()
    device, why = doctor_box.devices(0.2)
    assert time.monotonic() - began < 10
    released.set()
    assert device is None
    assert "did not answer" in why


def test_a_data_folder_that_cannot_be_written(empty_box: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (empty_box / "file").write_text("")
    monkeypatch.setenv("KVTUI_DATA_DIR", str(empty_box / "file"))
    assert "not a folder" in doctor_box.data_folder().problem
    monkeypatch.setenv("KVTUI_DATA_DIR", "a" * 5000)
    assert "File name too long" in doctor_box.data_folder().problem


def test_it_is_quick_and_exits_while_nothing_else_is_printed(empty_box: Path) -> None:
    run: Callable[..., subprocess.CompletedProcess[str]] = subprocess.run
    done = run(
        [sys.executable, "-m", "kvtui", "doctor", "--json"],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == doctor.FINE, done.stderr
    assert json.loads(done.stdout)["schema"] == doctor.SCHEMA
    assert done.stderr == ""
