"""Lint, format, types and import contracts: part of the one command that passes the tests."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def run(*command: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}\n{done.stderr}"


def test_ruff_finds_nothing() -> None:
    run("ruff", "check", "--no-cache", ".")


def test_every_file_is_formatted() -> None:
    run("ruff", "format", "--no-cache", "--check", ".")


@pytest.mark.timeout(600)
def test_mypy_strict_finds_nothing(tmp_path: Path) -> None:
    run("mypy", "--cache-dir", str(tmp_path))


def test_arrows_point_one_way() -> None:
    code = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(no_cache=True))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_project_stands_alone() -> None:
    outside = "../" + "shared"
    files = [
        p
        for folder in ("kvtui", "tests", "presets", ".ci")
        for p in (ROOT / folder).rglob("*")
        if p.is_file()
    ]
    assert files
    guilty = [p for p in [*files, ROOT / "README.md"] if outside.encode() in p.read_bytes()]
    assert not guilty
