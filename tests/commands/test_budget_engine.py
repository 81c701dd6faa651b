"""`kvtui budget --ask-engine`: the engine's dry run beside kvtui's figures."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kvtui.cli import main
from tests.tiny_model import write_tiny_model

HELP = "-c, --ctx-size N  context\n-ctk, --cache-type-k TYPE  type\n-fitp, --fit-print [on|off]  print\n"


@pytest.fixture
def model(tmp_path: Path) -> str:
    return str(write_tiny_model(tmp_path / "tiny.gguf"))


def program(folder: Path, *lines: str) -> str:
    path = folder / "llama-fit-params"
    told = "\n".join(f"echo '{line}'" for line in lines) or "echo 'E failed to load' >&2; exit 1"
    path.write_text(
        f"#!/bin/sh\ncase \"$1\" in --help) printf '%b' '{HELP}';; --version) echo 'version: 1 (a)';;"
        f" *) {told};; esac\n"
    )
    path.chmod(0o755)
    return str(path)


def budget(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    status = main(["budget", *arguments])
    return status, capsys.readouterr().out


def test_a_dry_run_that_agrees(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, before = budget(capsys, model, "-c", "131072", "--json")
    kv = json.loads(before)["kv_bytes"]
    assert "engine" not in json.loads(before)
    asked = program(tmp_path, f"CUDA0 10 {kv >> 20} 30 ", "Host 1 0 2 ")
    status, text = budget(capsys, model, "-c", "131072", "--ask-engine", asked)
    assert status == 0
    assert "the engine the same to its MiB" in text
    assert "weights on GPU" in text
    status, told = budget(capsys, model, "-c", "131072", "--ask-engine", asked, "--json")
    entry = json.loads(told)["engine"][0]
    assert entry["agrees"] is True
    assert entry["devices"][0] == {
        "device": "CUDA0",
        "model_mib": 10,
        "context_mib": kv >> 20,
        "compute_mib": 30,
    }
    assert entry["difference_bytes"] == (kv >> 20 << 20) - kv


def test_a_dry_run_that_differs_says_by_how_much(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, before = budget(capsys, model, "-c", "131072", "--json")
    more = (json.loads(before)["kv_bytes"] >> 20) + 64
    _, text = budget(capsys, model, "-c", "131072", "--ask-engine", program(tmp_path, f"Host 1 {more} 2 "))
    assert "differs by +6" in text
    assert "weights on GPU:" not in text
    assert all(len(line) <= 80 for line in text.splitlines() if "engine" in line)


def test_several_contexts_are_each_asked_and_refused_ones_are_not(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = program(tmp_path, "Host 1 2 3 ")
    _, told = budget(capsys, model, "-c", "4096", "8192", "--ask-engine", asked, "--json")
    assert [e["n_ctx"] for e in json.loads(told)["engine"]] == [4096, 8192]
    status, told = budget(capsys, model, "-ctv", "q8_0", "-fa", "off", "--ask-engine", asked, "--json")
    assert status == 1
    assert "engine" not in json.loads(told)


@pytest.mark.parametrize(("lines", "status"), [((), 3), (("nonsense",), 3)])
def test_a_program_that_tells_nothing_is_an_error(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], lines: tuple[str, ...], status: int
) -> None:
    assert main(["budget", model, "--ask-engine", program(tmp_path, *lines)]) == status
    assert capsys.readouterr().err.startswith("kvtui: llama-fit-params:")


def test_a_program_that_is_not_there_is_an_input_error(
    model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["budget", model, "--ask-engine", "/nowhere/llama-fit-params"]) == 2
    assert "not a program that can be run" in capsys.readouterr().err
